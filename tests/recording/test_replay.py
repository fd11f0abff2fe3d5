"""Steps are replayed on the layout of the job and on others, compared, and debugged."""

import re
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import replicax as rx
from replicax._src.cli.main import main
from replicax._src.recording._recorded import Recorded
from replicax._src.recording._replay import Replay
from tests.cli.launches import environment
from tests.processes import command as process
from tests.scripts import run_python

HERE = Path(__file__).parent


def replay(capsule: Path, program: Path, *options: str, given: str = "", status: int = 0) -> str:
    command = ["-m", "replicax", "replay", str(capsule), str(program), *options]
    return run_python(command, capsule.parent, given=given, status=status, warm=True)


@pytest.mark.parametrize("which", ["demo", "transformer", "sharded"])
def test_bits_on_the_same_layout_and_close_on_one_device(tmp_path: Path, which: str):
    program = HERE / "layouts.py"
    own = [str(tmp_path / "checkpoints"), which]
    run_python([str(program), *own], tmp_path, warm=True)
    capsule = tmp_path / "checkpoints" / "recording" / "capsules" / "step-6"
    if which == "transformer":  # the bias of the keys has no gradient but for rounding
        printed = replay(capsule, program, "--", *own)
        printed += replay(capsule, program, "--devices", "1", "--", *own)
    else:
        printed = replay(capsule, program, "--compare", "1", "--", *own)
        assert "values are the same in both, to rounding" in printed
    assert printed.count("step 6, from a checkpoint of step 3") == 2
    four, one = re.findall(r"step 6: .*", printed)
    assert "the recorded bits" in four
    assert re.search(r"the recorded (bits|value to [0-9.]+e-0[6-9])", one)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of two workers with two devices each, which does not ask to be recorded."""
    folder = tmp_path_factory.mktemp("launched")
    arguments = ["--workers=2", "--devices-per-worker=2", f"--record={folder / 'recording'}"]
    arguments += ["--traps=finite", str(HERE / "unrecorded.py"), str(folder / "checkpoints")]
    launch = [sys.executable, "-m", "replicax", "launch", *arguments]
    with process(launch, environment=dict(environment())) as job:
        job.expect_exit(status=1)
    assert "the gradient of w:0 on replica 3" in job[0].output
    return folder


def test_a_launched_program_is_recorded_by_argument(recorded: Path):
    program = HERE / "unrecorded.py"
    capsule = recorded / "recording" / "capsules" / "step-5"
    own = ["--", str(recorded / "checkpoints")]
    printed = replay(capsule, program, "--workers", *own)
    # Steps 3 to 5, in two processes; all if the checkpoint was on its way when it was trapped.
    assert printed.count("the recorded bits") in (3, 5), printed
    assert "the recorded value to" not in printed and "recorded was" not in printed
    printed = replay(recorded / "recording", program, "--step", "4", *own)
    assert "had another value" not in printed and "step 4: " in printed


def test_a_debugger_where_the_value_was_made(recorded: Path):
    program = HERE / "unrecorded.py"
    capsule = recorded / "recording" / "capsules" / "step-5"
    options = ["--replica", "3", "--pdb", "--", str(recorded / "checkpoints")]
    printed = replay(capsule, program, *options, given="p 'rows', x.shape\nn\np root\nq\n")
    assert "sqrt at " in printed and "on replica 3" in printed
    assert "root = jnp.sqrt(x @ w)[:, 0]" in printed  # the line, as Python
    assert "('rows', (2, 2))" in printed and re.search(r"\(Pdb\) .*nan", printed)
    fine = replay(capsule, program, "--replica", "0", *options[3:])
    assert "all values that come from this replica" in fine


@pytest.mark.parametrize(
    "options, words",
    [
        (["--workers", "--eager"], "leave out --workers"),
        (["--replica", "4"], "the job has replicas 0 to 3"),
    ],
)
def test_options_that_do_not_go_together(
    recorded: Path, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
):
    """No script runs, so that it needs no process of its own."""
    capsule = recorded / "recording" / "capsules" / "step-5"
    assert main(["replay", str(capsule), str(HERE / "unrecorded.py"), *options]) == 2
    assert words in capsys.readouterr().err


def test_steps_before_a_step_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    w, unsaved = rx.Variable(0.0), rx.Variable(1.0)

    @rx.function
    def step(x: jax.Array) -> jax.Array:
        unsaved.assign_add(1.0)
        return w.assign_add(x * unsaved)

    checkpoint = rx.train.Checkpoint(w=w)
    with rx.debug.Recorder(checkpoint, step, tmp_path / "recording") as recorder:
        for number in range(5):
            step(jnp.float32(number))
        recorded = Recorded(recorder.save())
    calls: list[Any] = []

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        calls.append(args)
        return step(*args, **kwargs), {}

    replay = Replay(recorded, checkpoint, call, lambda *_: ([w, unsaved], []))
    assert len(replay.go_to(4)) == len(calls) == 3
    replay.keep()
    before = w.numpy(), unsaved.numpy()
    replay.run_next()
    assert replay.go_to(4) == []
    assert (w.numpy(), unsaved.numpy()) == before
    assert len(calls) == 4
    assert replay.run_next().same_bits
    assert len(replay.go_to(2)) == 1  # what is kept comes too late
