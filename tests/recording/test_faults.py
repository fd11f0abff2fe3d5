"""What goes wrong in a job of four workers is trapped, and named by a replay on one machine."""

from pathlib import Path

import pytest

import replicax as rx
from tests.processes import run_workers
from tests.recording.faulty import BAD_STEP, SLOW_STEPS, write_rows
from tests.scripts import run_python

PROGRAM = Path(__file__).with_name("faulty.py")

# The step, words of the trap, and words of the replay.
FAULTS = {
    "row": (
        BAD_STEP,
        "worker 2: the gradient of kernel:0 on replica 2 (given to the optimizer at faulty.py:",
        [
            "nan on replica 2, row 1 of its share",
            "it is row 1 of element 6 of the data of worker 2 (rows from 0): "
            "record 21 of rows-2.bin",
            "hidden = jnp.tanh(x @ self.kernel)",
        ],
    ),
    "rate": (
        BAD_STEP,
        "'output:0' on replica 0 is beyond the bound",
        ["look at the learning rate"],
    ),
    "variable": (
        BAD_STEP,
        "Step 6: Variable 'output:0', float32[8], is not the same on all replicas. Compared with "
        "replica 0 (worker 0, CPU:0):\n  replica 3 (worker 3, CPU:0): 8 of 8 elements differ",
        [
            "before step 6, not by the function: output:0 was changed on worker 3 alone",
            f"step {BAD_STEP}: the gradient of",
            "on replica 3 had another value",
        ],
    ),
    "bit": (
        BAD_STEP,
        "worker 1: the gradient of output:0 on replica 1",
        ["the gradient of output:0 on replica 1 had another value when it was recorded"],
    ),
    "sleep": (SLOW_STEPS - 2, "Workers 0, 1, 3 waited for worker 2", []),
}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    write_rows(folder)
    run_workers(str(PROGRAM), 4, arguments=[str(folder), *FAULTS])
    return folder


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_trapped_and_named(job: Path, fault: str):
    step, trapped, replayed = FAULTS[fault]
    capsules = job / f"recording-{fault}" / "capsules"
    steps = sorted(int(each.name.split("-")[1]) for each in capsules.iterdir())
    assert step in steps
    if fault != "sleep":  # on a busy machine other steps are slow as well
        assert steps[0] == step
    capsule = capsules / f"step-{step}"
    assert trapped in str(rx.debug.load(capsule).trap)
    if not replayed:
        return
    eager = ["--eager"] if fault == "row" else []
    status = 1 if fault in ("variable", "bit") else 0
    command = ["-m", "replicax", "replay", str(capsule), str(PROGRAM), *eager]
    printed = run_python([*command, "--", str(job), fault], job, status=status, warm=True)
    for words in replayed:
        assert words in printed, printed
    assert f"step {step}: " in printed
