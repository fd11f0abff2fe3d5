"""Faults that end a job: everyone is gone soon, and knows why. Training goes on with the next one.

What is meant to hold on a quiet machine is in the comments.
"""

import re
import signal
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("fault", "victim", "status", "words"),
    [
        # The survivor is to be gone within 1 s.
        ("kill", 0, -signal.SIGKILL, "was killed or crashed"),
        ("kill", 1, -signal.SIGKILL, "was killed or crashed"),
        ("term", 1, -signal.SIGTERM, "was killed or crashed"),
        # Within 2 s.
        ("raise", 1, 1, "failed: ValueError: bad row in step 8"),
        ("exit", 1, 1, "finished after .* calls, but worker 0 .* is in call"),
    ],
)
def test_failing_worker_of_a_scheduler(
    fault: str, victim: int, status: int, words: str, tmp_path: Path
):
    other = 1 - victim
    with scheduled(tmp_path, faults=[Fault(fault, victim, 8)]) as job:
        job.expect_exit()
    assert (job[victim].status, job[other].status) == (status, 1), "\n".join(map(str, job))
    pattern = rf"replicax: worker {victim} .*{words}.*; worker {other} leaves\."
    assert re.search(pattern, job[other].stderr), job[other]
    assert "Traceback" not in job[other].stderr
    assert job[victim].stderr.count("Traceback") == (fault == "raise"), job[victim]
    if fault == "kill" and victim == 1:  # once is enough
        check_that_it_goes_on(tmp_path)


def check_that_it_goes_on(folder: Path):
    """Started again by the scheduler, the job ends as if nothing had happened."""
    with scheduled(folder, environment={"REPLICAX_GENERATION": "1"}) as job:
        job.expect_exit(status=0)
    steps = Audit(folder).check(ROWS, EPOCHS)
    assert [step.state for step in steps] == [step.state for step in quiet_run(2, "--seed=3")]


def test_status_of_the_launcher_is_that_of_the_failure(tmp_path: Path):
    with launched(tmp_path, "--workers=2", faults=[Fault("exit-3", 1, 2)]) as job:
        finish(job, status=3)
    assert said(job) == ["worker 1 failed: sys.exit(3); all workers are ended, exit status 3"]


def test_workers_die_with_the_launcher(tmp_path: Path):
    with launched(tmp_path, "--workers=2", arguments=["--seed=3", "--epochs=100"]) as job:
        for worker in (0, 1):
            job.wait_for(0, f"[worker {worker}] step 2")
        assert len(job.leftovers()) == 3
        job.kill(0)
        job.expect_nothing_left()  # 2 s


def test_ctrl_c(tmp_path: Path):
    with launched(tmp_path, "--workers=2", arguments=["--seed=3", "--epochs=100"]) as job:
        for worker in (0, 1):
            job.wait_for(0, f"[worker {worker}] step 2")
        job.signal(0, signal.SIGINT)
        job.expect_exit(0, status=128 + signal.SIGINT)
        job.expect_nothing_left()
    assert said(job) == ["SIGINT: ending all workers"]


def test_long_first_trace_does_not_trip_the_watchdog(tmp_path: Path):
    """It takes long: the trace sleeps for 9 seconds, and the watchdog waits for 6."""
    with launched(
        tmp_path, "--workers=2", "--stall-timeout=6", program="slow_start.py", arguments=["9"]
    ) as job:
        finish(job)
    assert said(job) == [] and said(job, 0) == said(job, 1) == ["total 4.0"]
