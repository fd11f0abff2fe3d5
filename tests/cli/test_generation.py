"""The life of a generation, step by step: who is blamed, when all are killed, what comes out."""

from collections.abc import Sequence
from typing import Any

import pytest

from replicax._src.cli._generation import Generation, Result
from replicax._src.cluster.control import Event, EventKind


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def told(*steps: Any, workers: int = 3) -> tuple[Generation, Clock]:
    """Returns a generation that was told events, and exits as (worker, status)."""
    clock = Clock()
    generation = Generation(0, workers, grace=30.0, clock=clock)
    for step in steps:
        if isinstance(step, Event):
            generation.heard(step)
        else:
            generation.exited(*step)
    return generation, clock


LOST = Event(EventKind.LOST, 1, "was killed by SIGKILL", {"status": -9})
FAILED = Event(EventKind.FAILED, 2, "ValueError: bad", {"status": 3})
DOWN = Event(EventKind.DOWN, 2, "worker 2 (host:1) failed: ValueError: bad")
STALLED = Event(
    EventKind.STALLED, 0, "worker 0 (host:1) does not answer", {"report": "what each did"}
)
REFUSED = Event(EventKind.REFUSED, None, "2 of 3 workers arrived")
FINISHED = Event(EventKind.FINISHED, 0, "", {"status": 0})
PREEMPTED = Event(EventKind.FINISHED, 0, "", {"status": 42})


@pytest.mark.parametrize(
    ("steps", "worker", "text", "status", "lost"),
    [
        ([(1, -9)], 1, "was killed by SIGKILL", 137, True),
        ([(1, 4)], 1, "exited with status 4", 4, False),
        ([LOST, (0, 1), (2, 1)], 1, "was killed by SIGKILL", 137, True),
        ([(1, -9), (0, 1)], 1, "was killed by SIGKILL", 137, True),
        ([FAILED, DOWN, (0, 1), (1, 1), (2, 3)], 2, "failed: ValueError: bad", 3, False),
        ([STALLED], 0, STALLED.text, 1, False),
        ([REFUSED, (0, 1)], None, REFUSED.text, 1, False),
        ([Event(EventKind.LOST, 1, "exited with status 0", {"status": 0})], 1, None, 1, False),
        ([Event(EventKind.DOWN, None, "stopped")], None, "stopped", 1, False),
    ],
)
def test_first_cause_is_blamed(
    steps: Sequence[Any], worker: int | None, text: str | None, status: int, lost: bool
):
    generation, _ = told(*steps)
    assert generation.result is Result.FAILED
    cause = generation.cause
    assert cause is not None
    assert (cause.worker, cause.status, cause.lost) == (worker, status, lost)
    assert text is None or cause.text == text


def test_all_finish():
    generation, _ = told(FINISHED, (0, 0), (1, 0))
    assert not generation.over
    generation.exited(2, 0)
    assert generation.over and generation.result is Result.FINISHED


@pytest.mark.parametrize("step", [(1, -9), (1, 4), LOST, STALLED])
def test_death_kills_all_at_once(step: Any):
    assert told(step)[0].over


def test_worker_that_fails_may_say_so_in_full():
    generation, clock = told(FAILED, DOWN, (0, 1))
    assert not generation.over
    generation.exited(2, 3)
    assert generation.over, "it has gone, so there is nothing to wait for"
    generation, clock = told(FAILED, DOWN, (0, 1))
    clock.now += 1.0
    assert generation.over, "nor forever"


def test_preempted_workers_leave_one_after_the_other():
    generation, clock = told(PREEMPTED, (0, 42), LOST, (1, 1))
    assert not generation.over and generation.result is Result.PREEMPTED
    clock.now += 30.0
    assert generation.over and generation.result is Result.PREEMPTED


def test_failure_before_the_preemption_counts():
    generation, _ = told((1, -9), (0, 42))
    assert generation.result is Result.FAILED


def test_nobody_is_blamed_once_all_were_told_to_end():
    generation, clock = told()
    generation.end_within(5)
    generation.exited(0, -15)
    assert generation.cause is None and not generation.over
    clock.now += 5
    assert generation.over and generation.result is Result.FAILED


def test_worker_that_hangs_after_the_end_does_not_spoil_it():
    generation, clock = told(Event(EventKind.DONE, None, "", {"status": 0}), (0, 0), (1, 0))
    assert not generation.over
    clock.now += 60.0
    assert generation.over and generation.result is Result.FINISHED


@pytest.mark.parametrize(
    ("steps", "lost"),
    [
        ([(1, -9)], [1]),
        ([(2, -9), (0, -9)], [0, 2]),
        ([(1, -9), (0, -6), (2, 1)], [1]),  # aborted because of the first
        ([LOST], [1]),
        ([(1, 4)], []),
        ([FAILED], []),
        ([STALLED], []),
    ],
)
def test_killed_workers_are_lost(steps: Sequence[Any], lost: list[int]):
    assert told(*steps)[0].lost == lost


def test_report_of_the_watchdog_is_kept():
    assert told(STALLED)[0].report == "what each did"
