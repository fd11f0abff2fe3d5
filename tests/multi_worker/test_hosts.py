"""Jobs over three hosts, each with a network and a name of its own (`hosts.py`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.multi_worker.hosts import Host, hosts
from tests.multi_worker.programs.audit import Audit
from tests.multi_worker.programs.runs import EPOCHS, PROGRAMS, ROWS, TIMEOUT, quiet_run
from tests.processes import Job

PORT = 23456


@pytest.fixture
def three() -> Iterator[list[Host]]:
    """Three hosts, gone when the test ends."""
    with hosts(3) as made:
        yield made


def launched_on(three: Sequence[Host], folder: Path, *options: str) -> Job:
    """A launcher with one worker on each host; `job[rank]` is the launcher of a node."""
    common = [f"--coordinator={three[0].address}:{PORT}", "--workers=1", *options]
    train = [str(PROGRAMS / "train.py"), str(folder), "--seed=3"]
    python = [sys.executable, "-m", "replicax", "launch"]
    return Job(
        [
            host.command([*python, *common, f"--node-rank={rank}", *train])
            for rank, host in enumerate(three)
        ],
        [{}] * len(three),
        timeout=TIMEOUT,
    )


def check_states(folder: Path) -> None:
    """Every row counted once per epoch, and all states are those of a quiet run on one host."""
    states = [step.state for step in Audit(folder).check(ROWS, EPOCHS)]
    assert states == [step.state for step in quiet_run(3, "--seed=3")]


@pytest.mark.timeout(600)
def test_hosts_whose_names_lead_to_their_loopback_train_together(three: list[Host], tmp_path: Path):
    with launched_on(three, tmp_path, "--nodes=3") as job:
        job.expect_exit(status=0)
    check_states(tmp_path)
