"""Runs a Python program as a user would: in a process and an empty folder of its own."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.guards import ROOT
from tests.warm import keras_if_safe
from tests.warm import run as run_warm


def run_python(
    arguments: list[str],
    folder: Path,
    timeout: float = 600,
    *,
    warm: bool = False,
    keras: bool = False,
    status: int = 0,
    given: str = "",
) -> str:
    """Returns what `python <arguments>` prints; fails with its whole output when it fails.

    It is to end with `status`. `given` is what it reads, if it is not `warm`.

    The program finds eight virtual CPU devices, unless it asks for another number itself. `warm`
    spares it the imports (see `tests/warm.py`), with `keras` also that of Keras.
    """
    environment = {
        **os.environ,
        "JAX_NUM_CPU_DEVICES": "8",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
    }
    with tempfile.TemporaryDirectory() as place:
        output = Path(place) / "output"
        ended = None
        if warm:
            imports = keras_if_safe() if keras else ()
            ended = run_warm(arguments, folder, environment, output, timeout, imports)
        if ended is None:
            ended = _run_cold(arguments, folder, environment, output, timeout, given)
        text = output.read_text(encoding="utf-8")
    assert ended == status, f"python {' '.join(arguments)} failed:\n{text}"
    return text


def _run_cold(
    arguments: list[str],
    folder: Path,
    environment: dict[str, str],
    output: Path,
    timeout: float,
    given: str,
) -> int:
    with output.open("wb") as file:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env=environment,
            input=given.encode(),
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=timeout,
        ).returncode
