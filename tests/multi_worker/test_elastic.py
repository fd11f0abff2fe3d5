"""Workers come and go between generations; the training does not notice."""

from pathlib import Path

import pytest

from tests.multi_worker.programs.audit import Audit
from tests.multi_worker.programs.faults import Fault
from tests.multi_worker.programs.runs import EPOCHS, ROWS, finish, launched, quiet_run, said


def test_three_workers_then_two_then_three_again(tmp_path: Path):
    """It takes long: eight processes are started, and import JAX."""
    faults = [Fault("kill", 2, 8), Fault("raise", 0, 14)]
    options = ("--workers=2:3", "--max-restarts=2")
    with launched(tmp_path, *options, faults=faults) as job:
        finish(job)
    assert "generation 1 starts with 2 workers" in said(job)
    assert "generation 2 starts with 3 workers" in said(job)
    audit = Audit(tmp_path)
    assert [audit.starts[each][0]["workers"] for each in audit.generations] == [3, 2, 3]
    # Here is checked that each began with the very bits that the one before it had saved.
    steps = audit.check(ROWS, EPOCHS)
    made = {step.generation for step in steps}
    assert made == {0, 1, 2}
    for step, quiet in zip(steps, quiet_run(2, "--seed=3"), strict=True):
        assert step.rows == quiet.rows
        assert step.loss == pytest.approx(quiet.loss, rel=1e-5)
