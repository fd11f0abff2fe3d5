"""Runs the programs of `examples/pairs`, and compares what two of them print."""

import re
from pathlib import Path

import numpy as np

from tests.guards import ROOT
from tests.scripts import run_python

PAIRS = ROOT / "examples" / "pairs"
NAMES = sorted(path.name.removesuffix("_replicax.py") for path in PAIRS.glob("*_replicax.py"))
_NUMBER = re.compile(r"-?\d+\.\d+")
# What TensorFlow says where it is installed: Keras imports it, to know its tensors.
_LOG = re.compile(r"^(WARNING: All log messages|[IWE]\d{4} ).*\n", re.M)


def output_of_replicax(name: str, folder: Path) -> str:
    """What our side prints; of several workers, the first."""
    program = str(PAIRS / f"{name}_replicax.py")
    if not name.startswith("multi_worker"):
        keras = "import keras" in Path(program).read_text(encoding="utf-8")
        return _LOG.sub("", run_python([program], folder, warm=True, keras=keras))
    launch = ["-m", "replicax", "launch", "--workers=2", "--devices-per-worker=1"]
    output = run_python([*launch, program, str(folder / "checkpoints")], folder, warm=True)
    return "".join(f"{line}\n" for line in re.findall(r"^\[worker 0\] (.*)$", output, re.M))


def assert_same(found: str, expected: str) -> None:
    """The same words, and the same numbers but for the last digit that is printed."""
    assert _NUMBER.sub("#", found) == _NUMBER.sub("#", expected), found
    ours, theirs = (np.array(_NUMBER.findall(text), float) for text in (found, expected))
    assert len(ours)
    np.testing.assert_allclose(ours, theirs, atol=2e-4)
