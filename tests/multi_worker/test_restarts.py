"""Faults that a job outlives: started again, it goes on as if nothing had happened.

Every step that has counted is compared with that of a quiet run: the rows of its batch, its loss,
and a hash of all variables after it.
"""

import re
from pathlib import Path

from tests.multi_worker.programs.audit import Audit
from tests.multi_worker.programs.faults import Fault, notes
from tests.multi_worker.programs.runs import (
    EPOCHS,
    ROWS,
    finish,
    launched,
    quiet_run,
    said,
    small_disk,
)

STALL = 3.0

# One after the other, each in a generation of its own, and what the launcher says about it. Those
# that leave nothing to find out afterwards are in `tests/cli/test_launch_training.py` and, without
# a launcher, in `test_faults.py`: workers that are killed in a step, or that end too early.
FAULTS = [
    (
        Fault("stop", 1, 7),
        r"worker 1 \S+ does not answer \(its process is stopped\); restart \d+ of \d+",
    ),
    (Fault("raise", 0, 8), r"worker 0 failed: ValueError: bad row in step 8; restart \d+ of \d+"),
    (Fault("hang", 1, 13), r"worker 1 \S+ has made no progress for 3 s .*; restart \d+ of \d+"),
    (Fault("kill-in-save", 0, 15), r"worker 0 was killed by SIGKILL; restart \d+ of \d+"),
]


def test_every_fault_in_turn(tmp_path: Path):
    """It takes long: each of them is followed by two new processes, which import JAX."""
    arguments = ("--seed=3", "--noise")
    faults = [fault for fault, _ in FAULTS]
    # A few more than needed: a machine that is very busy may itself look stuck for so long.
    options = ("--workers=2", f"--max-restarts={len(faults) + 3}", f"--stall-timeout={STALL:g}")
    with launched(tmp_path, *options, faults=faults, arguments=arguments) as job:
        finish(job)
    log = said(job)
    for (fault, words), note in zip(FAULTS, notes(tmp_path), strict=True):
        assert any(re.match(words, line) for line in log), (fault, log)
        assert note["name"] == fault.name and note["inside"] == (fault.name == "kill-in-save")
    check_told_once(job)
    check_report("\n".join(log))
    audit = Audit(tmp_path)
    assert len(audit.generations) > len(faults)
    assert audit.check(ROWS, EPOCHS) == quiet_steps(audit, *arguments)


def quiet_steps(audit: Audit, *arguments: str):
    """Those of a run in which nothing happened, as if they had been made in these generations."""
    made = [step.generation for step in audit.committed()]
    quiet = quiet_run(2, *arguments)
    return [step._replace(generation=one) for step, one in zip(quiet, made, strict=True)]


def check_told_once(job):
    """The traceback of a failure is there in full, once; the other worker names the cause."""
    assert job[0].output.count("Traceback") == 1
    own = "\n".join(said(job, 0))
    found = re.search(r"Traceback .*?\nValueError: bad row in step 8$", own, re.S | re.M)
    assert found and "in main" in found[0] and "in _raise" in found[0]
    pattern = r"replicax: worker 0 \S+ failed: ValueError: bad row in step 8; worker 1 leaves\."
    assert sum(bool(re.match(pattern, line)) for line in said(job, 1)) == 1


def check_report(log: str):
    """The watchdog tells what each worker was doing, with its stack."""
    reports = log.split("No progress for 3 s. What each worker was doing:\n")[1:]
    stopped = r"worker 1 \S+: call \d+, .*\n  no answer; its process is stopped"
    assert any(re.search(stopped, report) for report in reports), log
    hung = r"worker 0 \S+: call \d+, .*\n  thread MainThread:\n(.|\n)*? in train_on\n"
    hung += r"(.|\n)*?\nworker 1 \S+: call \d+, .*\n  thread MainThread:\n(.|\n)*? in _hang\n"
    assert any(re.search(hung, report) for report in reports), log


def test_full_disk_and_shuffling_without_a_seed(tmp_path: Path):
    """A save fails: all stop, with the reason; with room again, the same rows follow."""
    disk = small_disk(tmp_path / "checkpoints", "400k")
    fault = Fault("full-disk" if disk else "small-files", 0, 8)
    options = ("--workers=2", "--max-restarts=1")
    with launched(tmp_path, *options, faults=[fault], arguments=(), before=disk or ()) as job:
        finish(job)
    reason = "the disk is full: .* MB are needed" if disk else "File too large"
    assert re.search(rf"The checkpoint \S+ could not be written: .*{reason}", job[0].output)
    assert re.match(r"worker \d failed: \w+: The checkpoint .*restart 1 of 1", said(job)[0])
    audit = Audit(tmp_path)
    audit.check(ROWS, EPOCHS)
    restored = audit.restored(1)
    assert 3 <= restored < 9
    before, after = audit.rows(0), audit.rows(1)
    assert min(after) == restored + 1
    replayed = before.keys() & after.keys()
    assert replayed
    for step in replayed:
        if step < max(before):
            assert sorted(before[step]) == sorted(after[step])
        else:  # one worker may have been ended before it told of this step
            assert set(before[step]) <= set(after[step])


def test_programs_are_compiled_once(tmp_path: Path):
    """The launcher keeps what was compiled for the next generation, and for nobody else."""
    options = ("--workers=2", "--max-restarts=1")
    with launched(tmp_path, *options, program="compiled.py", shared_programs=False) as job:
        finish(job)
    for worker in (0, 1):
        lines = [line.split() for line in said(job, worker) if line.startswith("compiled")]
        (_, first, _, asked, mode, folder), (_, second, *_) = lines
        assert first == asked != "0" and second == "0"
        assert mode == "0o700" and not Path(folder).exists()
