"""replicax's workers observe what TensorFlow's were recorded to, or what is marked as ours.

One job for each layout plays all its scenarios, under both executors; the test that comes first
runs it, and the others read what it left, also from other processes of the same test run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ._job import Played
from ._layout import LAYOUTS, Layout
from ._observation import differences
from ._plan import SCENARIOS, pairs
from ._recorded import recorded

BY_NAME = {scenario.full_name: scenario for scenario in SCENARIOS}


def _by_topic() -> Iterator[Any]:
    """The scenarios of each topic: one test has them all, as it only reads what was observed."""
    for layout in LAYOUTS.values():
        names: dict[tuple[str, str], list[str]] = {}
        for executor, name in pairs(layout):
            names.setdefault((executor, BY_NAME[name].topic), []).append(name)
        for (executor, topic), played in names.items():
            identifier = f"{layout.name}-{executor}-{topic}"
            yield pytest.param(layout, executor, played, id=identifier)


@pytest.mark.parametrize(("layout", "executor", "names"), list(_by_topic()))
def test_workers(layout: Layout, executor: str, names: list[str], played: Any) -> None:
    found = played(layout)
    if lines := [line for name in names for line in _differences(executor, name, found)]:
        pytest.fail("\n".join(lines), pytrace=False)


def _differences(executor: str, name: str, found: Played) -> Iterator[str]:
    """Yields the scenario and in what it differs from what was recorded, if it does."""
    scenario = BY_NAME[name]
    expected = recorded(scenario)
    if (executor, name) in found.broken:
        yield f"{name} ended the job:\n{found.broken[executor, name]}"
        return
    observed = found.observed.get((executor, name))
    if observed is None:
        yield f"{name} was not played, because of {list(found.broken)}"
        return
    # Through JSON, so that both sides have its types.
    got = json.loads(json.dumps(observed))
    if lines := [line for each in _by_worker(expected, got) for line in each]:
        difference = scenario.difference
        whose = "TensorFlow does" if difference is None else difference.reason
        yield "\n".join([f"{name} ({whose})", *lines])


def _by_worker(expected: list[Any], got: list[Any]) -> Any:
    for worker, pair in enumerate(zip(expected, got, strict=True)):
        if isinstance(pair[1], dict) and "broke" in pair[1]:
            yield [f"worker {worker}: {pair[1]['broke']}"]
        else:
            yield [f"worker {worker}: {line}" for line in differences(*pair)]
