"""The lease in a shared folder: one leader at a time, whatever happens to it."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replicax._src.cli import _lease
from replicax._src.cli._lease import Lease
from replicax._src.cli._options import Usage

SECONDS = 60.0


class Clock:
    """The clock of the leases, which a test may put forward: a slow machine loses no lease."""

    def __init__(self) -> None:
        self._forward = 0.0
        self._real = _lease._now

    def now(self) -> float:
        return self._real() + self._forward

    def run_until(self, is_so: Callable[[], bool]) -> None:
        """Lets much time pass, until it is so."""

        def is_so_later() -> bool:
            self._forward += 1.0
            return is_so()

        until(is_so_later)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(_lease, "_BEAT_SECONDS", _lease._BEAT_SECONDS / 10)
    monkeypatch.setattr(_lease, "_now", made.now)
    return made


@pytest.fixture
def lease(tmp_path: Path) -> Iterator[Callable[[int], Lease]]:
    """Makes leases of nodes in one folder."""
    with contextlib.ExitStack() as stack:

        def make(node: int) -> Lease:
            made = Lease(str(tmp_path / "shared"), node)
            stack.callback(made.close)
            return made

        yield make


def until(is_so: Callable[[], bool]) -> None:
    """Waits for something that another thread does."""
    end = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.005)


def leading(lease: Lease, address: str = "host:1", new_job: bool = True) -> Lease:
    """Has a launcher lead."""
    lease.claim(address, new_job)
    until(lambda: lease.is_held)
    return lease


def stop(lease: Lease, other: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stops a launcher's thread, as if its host stood still; `other` has seen its last beat."""
    monkeypatch.setattr(lease, "_renew", lambda: None)
    for each in (lease, other, other):  # what was being written, or read, is so
        began = _lease._now()
        until(lambda each=each, began=began: each._answered_at > began)


def test_leader_is_seen_by_the_others(lease):
    first, second = lease(0), lease(1)
    assert first.is_vacant and not second.is_alive
    leading(first, "host0:12345")
    until(lambda: second.is_alive)
    term = second.term
    assert term is not None and (term.number, term.node, term.address) == (1, 0, "host0:12345")
    assert first.is_held and not second.is_held and not second.is_vacant


def test_lease_is_renewed_for_as_long_as_it_is_held(lease):
    first, second = leading(lease(0)), lease(1)
    until(lambda: second.term is not None and second.term.beat > 15)
    assert first.is_held and not second.is_vacant


def test_who_claims_while_another_leads_gets_nothing(lease):
    first, second = leading(lease(0)), lease(1)
    until(lambda: second.is_alive)
    second.claim("host1:1", new_job=False)
    until(lambda: second._wish is None)
    assert first.is_held and not second.is_held


def test_of_many_who_claim_one_leads(lease):
    all_of_them = [lease(node) for node in range(8)]
    barrier = threading.Barrier(8)

    def claim(each: Lease) -> None:
        barrier.wait(SECONDS)
        each.claim("host:1", new_job=True)

    threads = [threading.Thread(target=claim, args=(each,)) for each in all_of_them]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    until(lambda: all(each._wish is None for each in all_of_them))
    until(lambda: all(each.term is not None for each in all_of_them))
    assert sum(each.is_held for each in all_of_them) == 1


def test_leader_that_stands_still_stops_before_another_may_lead(
    lease, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    first, second = leading(lease(0)), lease(1)
    first.note(generation=4, restarts=2)
    until(lambda: second.term is not None and second.term.generation == 4)
    stop(first, second, monkeypatch)
    clock.run_until(lambda: second.is_vacant)
    assert not first.is_held
    leading(second, "host1:1", new_job=False)
    term = second.term
    assert term is not None and (term.number, term.generation, term.restarts) == (2, 4, 2)


def test_leader_that_wakes_up_late_neither_leads_nor_looks_alive(
    lease, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    first, second = leading(lease(0)), lease(1)
    until(lambda: second.is_alive)
    with monkeypatch.context() as stopped:
        stop(first, second, stopped)
        clock.run_until(lambda: not first.is_held)
    clock.run_until(lambda: second.is_vacant)  # also though `first` runs again
    assert not first.is_held


def test_lead_is_left_to_another_at_once(lease):
    first, second = leading(lease(0)), lease(1)
    until(lambda: second.is_alive)
    first.end(None)
    until(lambda: second.is_vacant)
    assert not first.is_held
    leading(second, new_job=False)


def test_end_of_the_job_is_written_down(lease):
    first, second = leading(lease(0)), lease(1)
    first.note(generation=7, restarts=3)
    first.end(42)
    until(lambda: second.term is not None and second.term.status == 42)
    assert second.is_vacant and not first.is_held
    term = leading(second).term  # another job
    assert term is not None and (term.number, term.generation, term.restarts) == (2, -1, 0)


@pytest.mark.parametrize("data", [b"", b'{"number": 1}', b"\xff" * 600])
def test_damaged_file_is_waited_for_and_followed_by_the_next(
    tmp_path: Path, lease, clock: Clock, data: bytes
):
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "replicax-leader-000001").write_bytes(data)
    first = lease(0)
    until(lambda: first._newest[0] == 1)
    assert first.term is None and not first.is_alive
    clock.run_until(lambda: first.is_vacant)
    term = leading(first).term
    assert term is not None and (term.number, term.node, term.address) == (2, 0, "host:1")


def test_trouble_with_the_folder_ends_the_lead_and_is_told(
    lease, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    first = leading(lease(0))

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.fsync", fail)
    until(lambda: first.trouble != "")
    clock.run_until(lambda: not first.is_held)
    until(lambda: first.trouble.endswith("shared: input/output error"))


def test_folder_that_does_not_answer_is_told(lease, clock: Clock, monkeypatch: pytest.MonkeyPatch):
    first = leading(lease(0))
    answers = threading.Event()
    monkeypatch.setattr(first, "_look", lambda: answers.wait(SECONDS))
    try:
        clock.run_until(lambda: "has not answered for" in first.trouble)
        clock.run_until(lambda: not first.is_held)
    finally:
        answers.set()


def test_folder_that_cannot_be_made_is_refused(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(Usage, match="not a directory. Name a folder that the launchers of all"):
        Lease(str(tmp_path / "file" / "folder"), 0)
