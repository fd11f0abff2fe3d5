"""Every example runs, and the pairs that are meant to be diffed tell the truth."""

import functools
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.guards import ROOT
from tests.scripts import run_python

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# Enough to go through every line, in seconds.
ARGUMENTS = {
    "digits.py": ["--epochs", "1", "--replicas", "3", "--batch-size", "400"],
    "many_workers.py": ["--epochs", "2"],
}
# Run by a test of their own, which looks at what they print.
LOOKED_AT = (
    *("01_single_device.py", "02_mirrored.py", "03_compiled.py"),
    *("05_logical_devices.py", "06_sharded_transformer.py"),
    *("07_flax_linen.py", "08_flax_nnx.py", "09_equinox.py"),
    *("10_keras_fit.py", "11_keras_custom_loop.py"),
)
MARK = "  # new"


def run_example(path: Path, folder: Path, *arguments: str) -> str:
    return run_python([str(path), *(arguments or ARGUMENTS.get(path.name, []))], folder)


@pytest.mark.parametrize(
    "path",
    [path for path in EXAMPLES if path.name not in LOOKED_AT],
    ids=lambda path: path.name,
)
def test_example_runs(path: Path, tmp_path: Path):
    assert run_example(path, tmp_path).strip()


def test_demo_writes_its_picture_and_accuracy(tmp_path: Path):
    output = run_example(
        *(ROOT / "examples" / "digits.py", tmp_path, "--epochs", "2", "--replicas", "2"),
        *("--out", "curve.png"),
    )
    accuracy = re.search(r"test accuracy (\d\.\d+) after 2\s+epochs on 2 replica", output)
    assert accuracy and float(accuracy[1]) > 0.8, output
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_workers_that_were_killed_end_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

    def launch(folder: str, *arguments: str) -> str:
        options = ["--workers=2", "--devices-per-worker=1", "--max-restarts=1"]
        script = [str(ROOT / "examples" / "many_workers.py"), "--epochs=3", *arguments]
        command = ["-m", "replicax", "launch", *options, *script, "--checkpoints", folder]
        return run_python(command, tmp_path)

    quiet, hurt = launch("quiet"), launch("hurt", "--crash-at=50")
    assert "worker 1 was killed by SIGKILL; restart 1 of 1" in hurt
    assert re.search(r"goes on from \S+/hurt/ckpt-3", hurt)
    results = [re.findall(r"\[worker (\d)\] test accuracy (.*)", each) for each in (quiet, hurt)]
    assert results[0] == results[1] and len(results[0]) == 1, (quiet, hurt)
    assert "after 66 steps, weights " in results[0][0][1]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("01_single_device.py", "02_mirrored.py"),
        ("02_mirrored.py", "03_compiled.py"),
        ("03_compiled.py", "04_files.py"),
        ("03_compiled.py", "05_logical_devices.py"),
        ("05_logical_devices.py", "06_sharded_transformer.py"),
        ("single_device/flax_linen.py", "07_flax_linen.py"),
        ("single_device/flax_nnx.py", "08_flax_nnx.py"),
        ("single_device/equinox_mlp.py", "09_equinox.py"),
        ("single_device/keras_fit.py", "10_keras_fit.py"),
        ("10_keras_fit.py", "11_keras_custom_loop.py"),
    ],
)
def test_example_is_the_one_before_and_marked_lines(before: str, after: str):
    """Each example marks what is new in it, and says nothing of what was new in an earlier one.

    A line that was moved to the right, into a function, is not new.
    """
    rest = iter([line.removesuffix(MARK) for line in _code_lines(before)])
    unmarked = [line for line in _code_lines(after) if not line.endswith(MARK)]
    strangers = [line for line in unmarked if line not in rest]
    assert not strangers, f"not in {before}, in this order, and not marked: {strangers}"


@pytest.mark.parametrize(
    ("name", "single_device"),
    [
        ("02_mirrored.py", "01_single_device.py"),
        ("03_compiled.py", "01_single_device.py"),
        ("07_flax_linen.py", "single_device/flax_linen.py"),
        ("08_flax_nnx.py", "single_device/flax_nnx.py"),
        ("09_equinox.py", "single_device/equinox_mlp.py"),
        ("10_keras_fit.py", "single_device/keras_fit.py"),
        ("11_keras_custom_loop.py", "single_device/keras_fit.py"),
    ],
)
def test_example_has_the_losses_of_the_single_device_one(name: str, single_device: str):
    single = losses_of(single_device)
    assert len(single) == 5
    np.testing.assert_allclose(losses_of(name), single, atol=2e-4)


@functools.cache
def losses_of(name: str) -> list[float]:
    """What an example prints as losses; it runs once, however many are compared with it."""
    with tempfile.TemporaryDirectory() as folder:
        output = run_example(ROOT / "examples" / name, Path(folder))
    return [float(loss) for loss in re.findall(r"loss (\S+)", output)]


def test_split_images_have_the_losses_of_whole_ones_and_lie_in_quarters(tmp_path: Path):
    output = run_example(ROOT / "examples" / "05_logical_devices.py", tmp_path)
    found = re.findall(r"loss (\S+), on one device (\S+)", output)
    split, whole = np.array(found, float).T
    assert len(split) == 5
    np.testing.assert_allclose(split, whole, atol=2e-4)
    assert split[-1] < 0.7 * split[0]
    assert output.count(": (32, 8, 8)") == 8


def test_state_in_parts_is_smaller_and_has_the_same_losses(tmp_path: Path):
    output = run_example(ROOT / "examples" / "06_sharded_transformer.py", tmp_path)
    found = re.findall(r"(\d+) kB of state on each device; losses (.*)", output)
    sizes = [int(size) for size, _ in found]
    assert len(sizes) == 4 and all(b < a for a, b in zip(sizes, sizes[1:])), output
    losses = np.array([each.split(", ") for _, each in found], float)
    np.testing.assert_allclose(losses, np.tile(losses[0], (4, 1)), atol=2e-4)
    assert losses[0, -1] < 0.7 * losses[0, 0]


def _code_lines(name: str) -> list[str]:
    """Returns the lines of an example after its docstring that are not blank, unindented."""
    text = (ROOT / "examples" / name).read_text(encoding="utf-8")
    return [line.strip() for line in text.split('"""', 2)[2].splitlines() if line.strip()]
