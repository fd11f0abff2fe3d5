"""Jobs over three hosts, each with a network and a name of its own (`hosts.py`).

Whatever happens to the cables, a job ends with the very bits of a quiet one, or it ends with an
error; and never do two parts of it both go on. `REPLICAX_TEST_EVERYTHING=1` runs all of them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.everything import EVERYTHING, VARIABLE
from tests.multi_worker.hosts import Host, hosts
from tests.multi_worker.programs.audit import Audit
from tests.multi_worker.programs.faults import Fault, write_plan
from tests.multi_worker.programs.runs import EPOCHS, PROGRAMS, ROWS, TIMEOUT, quiet_run
from tests.processes import Job, tf_config

PORT = 23456
STOP_AT = 8  # the step at which worker 0 waits for the test to do what it does
long = pytest.mark.skipif(not EVERYTHING, reason=f"takes a minute: set {VARIABLE}=1")


@pytest.fixture
def three() -> Iterator[list[Host]]:
    """Three hosts, gone when the test ends."""
    with hosts(3) as made:
        yield made


def launched_on(
    three: Sequence[Host], folder: Path, *options: str, faults: Sequence[Fault] = ()
) -> Job:
    """A launcher with one worker on each host; `job[rank]` is the launcher of a node."""
    write_plan(folder, list(faults))
    common = ["--workers=1", *options]
    if not any(each.startswith("--coordinator=") for each in options):
        common.append(f"--coordinator={three[0].address}:{PORT}")
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


def stopped_on(three: Sequence[Host], folder: Path, *options: str) -> Job:
    """A job whose worker 0 waits after a step, until `go_on`."""
    return launched_on(three, folder, *options, faults=[Fault("await-go", 0, STOP_AT)])


def cut(job: Job, host: Host, folder: Path) -> float:
    """Cuts a host off while the workers wait, and lets them go on; returns when."""
    job.wait_for(0, "awaits go")
    host.cut()
    (folder / "go").touch()
    return time.time()


def check_bits(folder: Path) -> None:
    """Every row counted once per epoch, with the very bits of a quiet run on one host."""
    states = [step.state for step in Audit(folder).check(ROWS, EPOCHS)]
    assert states == [step.state for step in quiet_run(3, "--seed=3")]


def check_went_on_with_two(folder: Path) -> float:
    """Generation 1 went on where 0 had saved, and nobody else did; returns when it did."""
    audit = Audit(folder)
    assert [audit.starts[each][0]["workers"] for each in audit.generations] == [3, 2]
    # Here is checked that no step counted twice, and that each began with the bits of the last.
    steps = audit.check(ROWS, EPOCHS)
    for step, quiet in zip(steps, quiet_run(3, "--seed=3"), strict=True):
        assert sorted(step.rows) == sorted(quiet.rows)
        assert step.loss == pytest.approx(quiet.loss, rel=1e-5)
    lines = (folder / "audit-1-0.jsonl").read_text(encoding="utf-8").splitlines()
    return next(line["time"] for line in map(json.loads, lines) if "step" in line)


def test_hosts_whose_names_lead_to_their_loopback_train_together(three: list[Host], tmp_path: Path):
    where = f"--coordinator={three[0].name}:{PORT}"
    with launched_on(three, tmp_path, "--nodes=3", where) as job:
        job.expect_exit(status=0)
    check_bits(tmp_path)


def test_a_cluster_of_such_names_needs_no_launcher(three: list[Host]):
    program = """
import replicax as rx
strategy = rx.distribute.MultiWorkerMirroredStrategy()
total = rx.function(lambda: strategy.reduce("SUM", strategy.run(lambda: 1.0), axis=None))
print("replicas:", float(total()))
"""
    first, second, _ = three
    # Two workers on the first host, for which its name must not be that of the loopback either.
    where = [first, first, second]
    addresses = [f"{host.name}:{PORT + rank}" for rank, host in enumerate(where)]
    environments = [{"TF_CONFIG": tf_config(addresses, rank)} for rank in range(3)]
    python = [sys.executable, "-c", program]
    with Job([host.command(python) for host in where], environments, timeout=TIMEOUT) as job:
        job.expect_exit(status=0)
    assert all("replicas: 3.0" in each.output for each in job)


@long
@pytest.mark.parametrize("cut_host", [0, 2])
def test_short_cut_changes_nothing(three: list[Host], tmp_path: Path, cut_host: int):
    with stopped_on(three, tmp_path, "--nodes=3") as job:
        cut(job, three[cut_host], tmp_path)
        time.sleep(3)  # which is how long the cut is
        three[cut_host].mend()
        job.expect_exit(status=0)
    assert Audit(tmp_path).generations == [0]
    check_bits(tmp_path)


@long
def test_bad_cables_change_nothing(three: list[Host], tmp_path: Path):
    for host in three:
        host.spoil(delay=0.05, loss=0.01)
    with launched_on(three, tmp_path, "--nodes=3") as job:
        job.expect_exit(status=0)
    check_bits(tmp_path)


@long
def test_job_goes_on_without_a_host_that_is_cut_off(three: list[Host], tmp_path: Path):
    with stopped_on(three, tmp_path, "--nodes=2:3", "--max-restarts=3") as job:
        when = cut(job, three[2], tmp_path)
        job.expect_exit([0, 1], status=0)
        job.expect_exit(2, status=1)
    assert "the launcher of node 0 (10.77.0.1:23456) is gone" in job[2].output
    took = check_went_on_with_two(tmp_path) - when
    print(f"first new step {took:.1f} s after the cut")


@long
def test_job_ends_with_its_first_host(three: list[Host], tmp_path: Path):
    with stopped_on(three, tmp_path, "--nodes=2:3", "--max-restarts=3", "--join-timeout=5") as job:
        cut(job, three[0], tmp_path)
        job.expect_exit(status=1)
    assert "1 of 2:3 nodes are here after 5 s; missing: node 1, node 2" in job[0].output
    for rank in (1, 2):
        assert "the launcher of node 0 (10.77.0.1:23456) is gone" in job[rank].output
    assert Audit(tmp_path).generations == [0]


def shared(folder: Path) -> tuple[str, ...]:
    """The options with which the loss of the first host is the loss of one host."""
    return "--nodes=2:3", "--max-restarts=3", f"--shared-folder={folder / 'leaders'}"


@long
def test_first_host_that_is_cut_off_leaves_the_lead_to_another(three: list[Host], tmp_path: Path):
    """It still sees the folder, and learns there how the job has ended."""
    with stopped_on(three, tmp_path, *shared(tmp_path)) as job:
        when = cut(job, three[0], tmp_path)
        job.expect_exit(status=0)
    assert "this one leaves the lead to it" in job[0].output
    assert "the job has ended with exit status 0" in job[0].output
    took = check_went_on_with_two(tmp_path) - when
    print(f"first new step {took:.1f} s after the cut")


@long
def test_first_host_that_is_enough_alone_goes_on_and_the_others_do_not(
    three: list[Host], tmp_path: Path
):
    options = ("--nodes=1:3", *shared(tmp_path)[1:], "--join-timeout=20")
    with stopped_on(three, tmp_path, *options) as job:
        cut(job, three[0], tmp_path)
        job.expect_exit(0, status=0)
        # By then they have given up, or read in the folder how the job has ended.
        job.expect_exit([1, 2], status=(0, 1))
    audit = Audit(tmp_path)
    assert [audit.starts[each][0]["workers"] for each in audit.generations] == [3, 1]
    audit.check(ROWS, EPOCHS)


@long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_first_host_that_is_dead_is_replaced(
    three: list[Host], tmp_path: Path, number: signal.Signals
):
    with stopped_on(three, tmp_path, *shared(tmp_path)) as job:
        when = cut(job, three[0], tmp_path)
        job.signal(0, number)
        job.expect_exit([1, 2], status=0)
    took = check_went_on_with_two(tmp_path) - when
    print(f"first new step {took:.1f} s after the cut")


@long
def test_first_host_that_comes_back_takes_part_again(three: list[Host], tmp_path: Path):
    """As one of many, while another leads."""
    faults = [Fault("await-go", 0, STOP_AT), Fault("await-go", 0, 12)]
    with launched_on(three, tmp_path, *shared(tmp_path), faults=faults) as job:
        cut(job, three[0], tmp_path)
        job.wait_for(0, "this one leaves the lead to it")
        (tmp_path / "go").unlink()
        job.wait_for(1, "generation 1 starts with 2 workers on 2 nodes")
        three[0].mend()
        job.wait_for(1, "node 0 (10.77.0.1) has joined")
        job.wait_for(1, "awaits go")
        book = (tmp_path / "audit-1-0.jsonl").read_text(encoding="utf-8")
        os.kill(json.loads(book.partition("\n")[0])["pid"], signal.SIGKILL)
        job.expect_exit(status=0)
    audit = Audit(tmp_path)
    assert [audit.starts[each][0]["workers"] for each in audit.generations] == [3, 2, 3]
    audit.check(ROWS, EPOCHS)
