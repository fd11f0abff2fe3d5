"""`PreemptionCheckpointHandler`: told to end, all workers save the same step and leave.

The program takes its batches with `next(iterator)` as an argument of `handler.run`, so that one has
always been taken from the iterator when the checkpoint is saved before it is used.
"""

from pathlib import Path

from tests.multi_worker.programs.audit import Audit
from tests.multi_worker.programs.faults import Fault
from tests.multi_worker.programs.runs import (
    EPOCHS,
    ROWS,
    finish,
    launched,
    quiet_run,
    said,
    scheduled,
)
from tests.processes import run_workers

ARGUMENTS = ("--seed=3", "--handler", "--save-every=1000")
RESTART_STATUS = 42


def check_complete(folder: Path) -> Audit:
    """Nothing was lost, doubled or changed; and no step was made twice."""
    audit = Audit(folder)
    steps = audit.check(ROWS, EPOCHS)
    assert [step[2:] for step in steps] == [step[2:] for step in quiet_run(2, "--seed=3")]
    for generation, following in zip(audit.generations, audit.generations[1:], strict=False):
        assert max(audit.rows(generation)) == audit.restored(following)
    return audit


def test_launcher_starts_preempted_workers_again(tmp_path: Path):
    """Once for each worker, the second time at any moment of a step; no restart is counted."""
    faults = [Fault("term", 1, 4), Fault("term", 0, 9, delay=0.005)]
    with launched(tmp_path, "--workers=2", faults=faults, arguments=ARGUMENTS) as job:
        finish(job)
    again = "the workers were preempted and have saved; starting them again"
    assert said(job).count(again) == 2
    audit = check_complete(tmp_path)
    assert audit.restored(1) in (4, 5) and audit.restored(2) >= 9
    assert "Traceback" not in job[0].output


def test_told_from_outside(tmp_path: Path):
    """The launcher is told to end, or a scheduler tells one worker, or all of them."""
    faults = [Fault("await-term", 0, step) for step in (5, 8, 12)]
    with launched(tmp_path, "--workers=2", faults=faults, arguments=ARGUMENTS) as job:
        job.wait_for(0, "awaits SIGTERM")
        job.terminate(0)
        job.expect_exit(0, status=RESTART_STATUS)
        job.expect_nothing_left()
    assert said(job)[-1] == f"the workers have saved and left; exit status {RESTART_STATUS}"
    for generation, told in ((1, [0]), (2, [0, 1]), (3, [])):
        environment = {"REPLICAX_GENERATION": str(generation)}
        with scheduled(
            tmp_path, faults=faults, arguments=ARGUMENTS, environment=environment
        ) as workers:
            if told:
                workers.wait_for(0, "awaits SIGTERM")
            for rank in told:
                workers.terminate(rank)
            workers.expect_exit(status=RESTART_STATUS if told else 0)
    audit = check_complete(tmp_path)
    for generation, fault in enumerate(faults):
        assert audit.restored(generation + 1) - fault.step in (0, 1)


def test_alone(tmp_path: Path):
    """One process without a cluster: configurations, and a real SIGTERM at the end."""
    run_workers(
        "tests.multi_worker.programs.preempted",
        1,
        arguments=[str(tmp_path)],
        environment={"TF_CONFIG": None},
    )
