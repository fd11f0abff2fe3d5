"""Every example runs, and the files that are meant to be diffed tell the truth."""

import functools
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.guards import ROOT
from tests.scripts import run_python

EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs" / "examples.md"
MARK = "  # new"
# What each example is diffed with: it is that one and some marked lines.
BEFORE = {
    "02_mirrored.py": "01_single_device.py",
    "03_compiled.py": "02_mirrored.py",
    "04_tfrecords.py": "03_compiled.py",
    "05_uneven_batches.py": "03_compiled.py",
    "06_merge_call.py": "03_compiled.py",
    "07_keras_fit.py": "single_device/keras_fit.py",
    "08_flax_nnx.py": "single_device/flax_nnx.py",
    "09_checkpoint.py": "03_compiled.py",
    "10_two_workers.py": "09_checkpoint.py",
    "11_killed_worker.py": "10_two_workers.py",
    "12_logical_devices.py": "03_compiled.py",
    "13_sharded_transformer.py": "12_logical_devices.py",
    "14_gradient_accumulation.py": "03_compiled.py",
    "15_parameter_servers.py": "03_compiled.py",
    "16_plan.py": "03_compiled.py",
    "17_tensorflow_weights.py": "03_compiled.py",
    "18_find_the_nan.py": "03_compiled.py",
    "19_evaluator.py": "07_keras_fit.py",
    "libraries/equinox_mlp.py": "single_device/equinox_mlp.py",
    "libraries/flax_linen.py": "single_device/flax_linen.py",
    "libraries/keras_custom_loop.py": "07_keras_fit.py",
}
# Those whose losses are the same, and whose.
SAME_LOSSES = {
    "02_mirrored.py": "01_single_device.py",
    "03_compiled.py": "01_single_device.py",
    "04_tfrecords.py": "01_single_device.py",
    "07_keras_fit.py": "single_device/keras_fit.py",
    "08_flax_nnx.py": "single_device/flax_nnx.py",
    "14_gradient_accumulation.py": "01_single_device.py",
    "libraries/equinox_mlp.py": "single_device/equinox_mlp.py",
    "libraries/flax_linen.py": "single_device/flax_linen.py",
    "libraries/keras_custom_loop.py": "single_device/keras_fit.py",
}


def run_example(name: str, folder: Path, *arguments: str) -> str:
    program = EXAMPLES / name
    keras = "import keras" in program.read_text(encoding="utf-8")
    return run_python([str(program), *arguments], folder, warm=True, keras=keras)


def losses_in(output: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", output)]


@functools.cache
def losses_of(name: str) -> list[float]:
    """What an example prints as losses; it runs once, however many are compared with it."""
    with tempfile.TemporaryDirectory() as folder:
        return losses_in(run_example(name, Path(folder)))


# --- what the files say ---------------------------------------------------------------------------


def test_every_example_is_compared_with_another():
    numbered = {path.name for path in EXAMPLES.glob("[0-9]*.py")}
    libraries = {f"libraries/{path.name}" for path in (EXAMPLES / "libraries").glob("*.py")}
    assert numbered | libraries == {"01_single_device.py", *BEFORE}
    assert len({name[:2] for name in numbered}) == len(numbered), "two have the same number"


@pytest.mark.parametrize("after", BEFORE)
def test_example_is_the_one_before_and_marked_lines(after: str):
    """Each example marks what is new in it, and says nothing of what was new in an earlier one.

    A line that was moved to the right, into a function, is not new.
    """
    before = BEFORE[after]
    rest = iter([line.removesuffix(MARK) for line in _code_lines(before)])
    unmarked = [line for line in _code_lines(after) if not line.endswith(MARK)]
    strangers = [line for line in unmarked if line not in rest]
    assert not strangers, f"not in {before}, in this order, and not marked: {strangers}"


@pytest.mark.parametrize("after", BEFORE)
def test_what_is_marked_is_new(after: str):
    before = [line.removesuffix(MARK) for line in _code_lines(BEFORE[after])]
    marked = [line for line in _code_lines(after) if line.endswith(MARK)]
    assert marked
    # Brackets and the like are marked where they close something new.
    words = [line.removesuffix(MARK) for line in marked if re.search(r"\w{3}", line[: -len(MARK)])]
    assert sum(line in before for line in words) <= 0.2 * len(words), words


@pytest.mark.parametrize("name", BEFORE)
def test_example_says_what_it_is_diffed_with(name: str):
    docstring = (EXAMPLES / name).read_text(encoding="utf-8").split('"""')[1]
    assert f"`{BEFORE[name]}`" in docstring


def _code_lines(name: str) -> list[str]:
    """Returns the lines of an example after its docstring that are not blank, unindented."""
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    return [line.strip() for line in text.split('"""', 2)[2].splitlines() if line.strip()]


def test_the_page_lists_every_example():
    page = PAGE.read_text(encoding="utf-8")
    programs = [
        str(path.relative_to(EXAMPLES))
        for path in EXAMPLES.rglob("*.py")
        if path.parent.name != "single_device"
    ]
    missing = [name for name in programs if f"`{name}`" not in page]
    assert not missing, f"add to docs/examples.md: {missing}"
    commands = re.findall(r"examples/([\w/]+\.py)", page)
    assert commands and all((EXAMPLES / name).exists() for name in commands)


# --- what they print ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAME_LOSSES)
def test_example_has_the_losses_of_the_single_device_one(name: str):
    single = losses_of(SAME_LOSSES[name])
    assert len(single) == 5
    np.testing.assert_allclose(losses_of(name), single, atol=2e-4)


def test_weights_of_tensorflow_go_on_with_the_same_losses():
    wanted = losses_of("03_compiled.py")[2:]
    np.testing.assert_allclose(losses_of("17_tensorflow_weights.py"), wanted, atol=2e-4)


def test_an_evaluator_runs_beside_the_training(tmp_path: Path):
    output = run_example("19_evaluator.py", tmp_path)
    np.testing.assert_allclose(losses_in(output)[:5], losses_of("07_keras_fit.py"), atol=2e-4)
    evaluated = re.findall(r"evaluated after step (\d+): ([\d.]+)", output)
    assert evaluated[-1][0] == "100" and float(evaluated[-1][1]) < 0.2
    assert "best: ckpt-5" in output


def test_workers_that_do_not_wait_learn_as_well(tmp_path: Path):
    pytest.importorskip("ray")
    losses = losses_in(run_python([str(EXAMPLES / "15_parameter_servers.py")], tmp_path))
    assert len(losses) == 5 and losses[-1] < 0.6 * losses[0]


def test_metrics_of_uneven_batches_are_those_of_one_device(tmp_path: Path):
    output = run_example("05_uneven_batches.py", tmp_path)
    assert "47 rows, in shares of [12, 12, 12, 11]" in output
    text = (EXAMPLES / "05_uneven_batches.py").read_text(encoding="utf-8")
    (tmp_path / "on_one_device.py").write_text(
        text.replace("MirroredStrategy()", "OneDeviceStrategy('CPU:0')"), encoding="utf-8"
    )
    alone = run_python(["on_one_device.py"], tmp_path, warm=True)
    assert "47 rows, in shares of [47]" in alone
    ours, theirs = (re.findall(r"(?:loss|error) (\d\.\d+)", each) for each in (output, alone))
    assert len(ours) == 6
    np.testing.assert_allclose(np.array(ours, float), np.array(theirs, float), atol=2e-4)


def test_optimizer_with_merge_call_is_that_of_optax(tmp_path: Path):
    optimizer = "optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1))"
    single = (EXAMPLES / "01_single_device.py").read_text(encoding="utf-8")
    assert "optax.adam(1e-2)" in single
    single = single.replace("optax.adam(1e-2)", optimizer)
    (tmp_path / "clipped.py").write_text(single, encoding="utf-8")
    expected = losses_in(run_python(["clipped.py"], tmp_path, warm=True))
    output = run_example("06_merge_call.py", tmp_path)
    assert len(expected) == 5
    np.testing.assert_allclose(losses_in(output), expected, atol=2e-4)
    norms = [float(norm) for norm in re.findall(r"norm of the gradient (\S+)", output)]
    assert max(norms) > 1.0, "it is clipped"


def test_run_that_was_stopped_goes_on_with_the_same_losses(tmp_path: Path):
    program = str(EXAMPLES / "09_checkpoint.py")
    first = run_python([program, "--stop-at", "25"], tmp_path, warm=True)
    second = run_python([program], tmp_path)
    assert "begins" in first and "continues after step 25" in second
    np.testing.assert_allclose(
        losses_in(first) + losses_in(second), losses_of("03_compiled.py"), atol=2e-4
    )


def test_a_plan_needs_no_memory_and_tells_what_it_would(tmp_path: Path):
    output = run_example("16_plan.py", tmp_path)
    assert "plan of 'step_on_all_replicas' on cpu:2x8" in output
    assert "16 (cpu:2x8) on 2 host(s)" in output and "between hosts" in output
    assert "1.07 billion parameters, 0.27 GB on each device" in output


def test_a_bad_row_is_trapped_and_found(tmp_path: Path):
    output = run_example("18_find_the_nan.py", tmp_path)
    assert "step 23 was trapped" in output and "step 23: nan, the recorded bits" in output
    assert "argument 0 is not finite: nan on replica 2, row 5 of its share" in output


def test_two_workers_have_the_losses_of_one_process(tmp_path: Path):
    output = launch(tmp_path, "10_two_workers.py", "--devices-per-worker=2")
    assert "[worker 0] 4 replicas" in output and not re.search(r"\[worker 1\] \S", output), output
    np.testing.assert_allclose(losses_in(output), losses_of("03_compiled.py"), atol=2e-4)


def test_workers_that_were_killed_end_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The command that README has for it, with one device for each worker."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [command] = re.findall(
        r"^replicax launch --workers 2 (.*) examples/(11\S*\.py) (--kill-at .*)$", readme, re.M
    )
    options, name, fault = command
    options = ["--devices-per-worker=1", *options.split()]
    quiet = launch(tmp_path, name, *options, arguments=["--checkpoints=quiet"])
    hurt = launch(tmp_path, name, *options, arguments=fault.split())
    assert "worker 1 was killed by SIGKILL; restart 1 of 1" in hurt
    # Checkpoints are written in the background: how many are whole by then is up to the machine.
    found = re.search(r"continues after step (\d+)$", hurt, re.M)
    assert found and int(found[1]) in range(5, 31, 5), hurt
    results = [re.findall(r"\[worker (\d)\] weights (.*)", each) for each in (quiet, hurt)]
    assert results[0] == results[1] and len(results[0]) == 1, (quiet, hurt)


def launch(folder: Path, name: str, *options: str, arguments: list[str] | None = None) -> str:
    command = ["-m", "replicax", "launch", "--workers=2", *options, str(EXAMPLES / name)]
    return run_python([*command, *(arguments or [])], folder, warm=True)


def test_split_images_have_the_losses_of_whole_ones_and_lie_in_quarters(tmp_path: Path):
    output = run_example("12_logical_devices.py", tmp_path)
    found = re.findall(r"loss (\S+), on one device (\S+)", output)
    split, whole = np.array(found, float).T
    assert len(split) == 5
    np.testing.assert_allclose(split, whole, atol=2e-4)
    assert split[-1] < 0.7 * split[0]
    assert output.count(": (32, 8, 8)") == 8


def test_state_in_parts_is_smaller_and_has_the_same_losses(tmp_path: Path):
    output = run_example("13_sharded_transformer.py", tmp_path)
    found = re.findall(r"(\d+) kB of state on each device; losses (.*)", output)
    sizes = [int(size) for size, _ in found]
    assert len(sizes) == 4 and all(b < a for a, b in zip(sizes, sizes[1:])), output
    losses = np.array([each.split(", ") for _, each in found], float)
    np.testing.assert_allclose(losses, np.tile(losses[0], (4, 1)), atol=2e-4)
    assert losses[0, -1] < 0.7 * losses[0, 0]


def test_demo_with_shares_that_are_not_even(tmp_path: Path):
    arguments = ["--epochs", "1", "--replicas", "3", "--batch-size", "400"]
    assert "on 3 replica(s)" in run_example("digits.py", tmp_path, *arguments)


def test_demo_writes_its_picture_and_accuracy(tmp_path: Path):
    arguments = ["--epochs", "2", "--replicas", "2", "--out", "curve.png"]
    output = run_example("digits.py", tmp_path, *arguments)
    accuracy = re.search(r"test accuracy (\d\.\d+) after 2\s+epochs on 2 replica", output)
    assert accuracy and float(accuracy[1]) > 0.8, output
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
