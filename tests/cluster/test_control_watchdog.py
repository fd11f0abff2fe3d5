"""When a job is stuck, and who is to blame: pure functions of what the server knows."""

import dataclasses
from typing import Any

import pytest

from replicax._src.cluster.control._records import WorkerRecord
from replicax._src.cluster.control._types import WorkerState
from replicax._src.cluster.control._watchdog import is_stalled, report, suspects, verdict

NOW = 1000.0
MOVING = WorkerRecord(
    rank=0,
    name="worker 0",
    state=WorkerState.RUNNING,
    calls=10,
    phase="running step",
    step=5,
    busy=False,
    heard=NOW,
    moved=NOW,
    stack="main.py, line 1",
)


def records(*changes: dict[str, Any]) -> list[WorkerRecord]:
    return [
        dataclasses.replace(MOVING, rank=rank, name=f"worker {rank}", **change)
        for rank, change in enumerate(changes)
    ]


STILL = {"moved": NOW - 70}


@pytest.mark.parametrize(
    ("changes", "stalled"),
    [
        ([{}, {}], False),
        ([STILL, {}], False),  # the others would stop soon if it were stuck
        ([STILL, STILL], True),
        ([STILL, {**STILL, "busy": True}], False),
        ([STILL, {**STILL, "state": WorkerState.FINISHED}], False),
        ([STILL, {**STILL, "busy": True, "state": WorkerState.FINISHED}], False),
        ([STILL, {"state": WorkerState.FINISHED}], False),  # it finished just now
        ([{**STILL, "state": WorkerState.FINISHED}] * 2, False),
        ([{"busy": True}, {"busy": True, "heard": NOW - 70}], True),
    ],
)
def test_is_stalled(changes: list[dict[str, object]], stalled: bool):
    assert is_stalled(records(*changes), NOW, 60) is stalled


@pytest.mark.parametrize(
    ("changes", "suspected", "text"),
    [
        ([{}, {"stack": None}], [1], "does not answer"),
        (
            [{}, {"calls": 9}, {}],
            [1],
            r"no progress for 60 s \(step 5, call 9, running step\); the",
        ),
        ([{}, {"calls": 9}, {"calls": 9}], [1, 2], "; so with worker 2$"),
        ([{}, {}], [], "No worker has made progress for 60 s"),
        ([{}], [0], "has made no progress"),
        ([{"state": WorkerState.FINISHED, "calls": 3}, {"calls": 3}], [1], "has made no progress"),
    ],
)
def test_who_is_to_blame(changes: list[dict[str, object]], suspected: list[int], text: str):
    found = records(*changes)
    assert [each.rank for each in suspects(found)] == suspected
    with pytest.raises(AssertionError, match=text):
        raise AssertionError(verdict(found, 60))


def test_report_tells_of_everyone():
    text = report(records({}, {"stack": None}, {"state": WorkerState.FINISHED}), 60)
    assert text.splitlines() == [
        "No progress for 60 s. What each worker was doing:",
        "worker 0: step 5, call 10, running step",
        "  main.py, line 1",
        "worker 1: step 5, call 10, running step",
        "  no answer",
        "worker 2: finished after 10 calls",
        "  main.py, line 1",
    ]
