"""Runs of `train.py` for tests: under the launcher, or as a scheduler would start its workers."""

from __future__ import annotations

import fcntl
import functools
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.forks import interpreter
from tests.multi_worker.programs.audit import Audit, Step
from tests.multi_worker.programs.faults import Fault, write_plan
from tests.processes import Job, command, workers
from tests.quick_compiles import folder_of_this_run, programs_of_this_run

PROGRAMS = Path(__file__).parent
ROWS, EPOCHS = 120, 2
TIMEOUT = 600.0
"""Seconds for a run: generous, for machines that do other things as well."""


def launched(
    folder: Path,
    *options: str,
    faults: Sequence[Fault] = (),
    arguments: Sequence[str] = ("--seed=3",),
    before: Sequence[str] = (),
    program: str = "train.py",
    shared_programs: bool = True,
    timeout: float = TIMEOUT,
) -> Job:
    """A run under `replicax launch`; `before` is what the launcher's own command line follows.

    `shared_programs`: whether what it compiles is kept for other runs too.
    """
    write_plan(folder, list(faults))
    script = str(PROGRAMS / program)
    # What comes before may give it other folders or rights, which forks would not have.
    python = sys.executable if before else interpreter()
    line = [python, "-m", "replicax", "launch", *options, script, str(folder), *arguments]
    environment = programs_of_this_run() if shared_programs else {}
    return command([*before, *line], environment=environment, timeout=timeout)


def scheduled(
    folder: Path,
    count: int = 2,
    *,
    faults: Sequence[Fault] = (),
    arguments: Sequence[str] = ("--seed=3",),
    environment: dict[str, str] | None = None,
) -> Job:
    """The workers of a run without a launcher, each with its `TF_CONFIG`."""
    write_plan(folder, list(faults))
    return workers(
        PROGRAMS / "train.py",
        count,
        arguments=[str(folder), *arguments],
        environment=environment,
        timeout=TIMEOUT,
    )


@functools.cache
def quiet_run(count: int, *arguments: str) -> list[Step]:
    """Returns the steps of a run of so many workers in which nothing happens.

    It is made once in a run of tests, whose other processes wait for it.
    """
    folder = folder_of_this_run() / "-".join(["quiet", str(count), *arguments])
    ended = folder / "ended"
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ended.exists():
            shutil.rmtree(folder, ignore_errors=True)  # one that has failed
            with scheduled(folder, count, arguments=arguments) as job:
                job.expect_exit(status=0)
            ended.touch()
    return Audit(folder).check(ROWS, EPOCHS)


def finish(job: Job, status: int = 0) -> None:
    """Waits for the end of a launched run, and for that of everything that it has started."""
    job.expect_exit(0)
    short = [line for line in said(job) if not line.startswith(" ")]
    assert job[0].status == status, "\n".join([str(job[0]), "", "in short:", *short])
    job.expect_nothing_left()


def said(job: Job, worker: int | None = None) -> list[str]:
    """What the launcher (or a worker) has written to the combined log, without the prefix."""
    prefix = "[launch] " if worker is None else f"[worker {worker}] "
    lines = [text for _, text in job[0].lines]
    return [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]


def small_disk(folder: Path, size: str) -> list[str] | None:
    """What to put before a command so that `folder` is a disk of that size for it; None: cannot."""
    folder.mkdir(parents=True, exist_ok=True)
    script = 'mount -t tmpfs -o size="$1" tmpfs "$2" && shift 2 && exec "$@"'
    before = ["unshare", "-rm", "sh", "-c", script, "sh", size, str(folder)]
    if shutil.which("unshare") is None:
        return None
    tried = subprocess.run([*before, "true"], capture_output=True, timeout=100)
    return before if tried.returncode == 0 else None
