"""replicax's workers observe what TensorFlow's were recorded to, or what is marked as ours.

One job for each layout plays all its scenarios, under both executors; the test that comes first
runs it, and the others read what it left, also from other processes of the same test run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..parity._observation import differences
from ._job import Played
from ._layout import LAYOUTS, Layout
from ._plan import SCENARIOS, pairs

RECORD_AGAIN = "run `python -m tests.multi_worker.record` where tensorflow-cpu is installed"
RECORDED: dict[str, dict[str, Any]] = {
    name: layouts
    for path in Path(__file__).parent.glob("recorded/*.json")
    for name, layouts in json.loads(path.read_text())["scenarios"].items()
}
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


def test_every_scenario_is_recorded_and_no_other() -> None:
    declared = {
        scenario.name: {layout: scenario.ours(LAYOUTS[layout]) for layout in scenario.layouts}
        for scenario in SCENARIOS
    }
    recorded = {
        name: {layout: entry.get("ours") for layout, entry in layouts.items()}
        for name, layouts in RECORDED.items()
    }
    assert declared == recorded, RECORD_AGAIN


def _by_topic() -> Iterator[Any]:
    """The scenarios of each topic: one test has them all, as it only reads what was observed."""
    for layout in LAYOUTS.values():
        names: dict[tuple[str, str], list[str]] = {}
        for executor, name in pairs(layout):
            names.setdefault((executor, BY_NAME[name].topic), []).append(name)
        for (executor, topic), played in names.items():
            identifier = f"{layout.name}-{executor}-{topic}"
            yield pytest.param(layout, executor, played, id=identifier)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("layout", "executor", "names"), list(_by_topic()))
def test_conformance(layout: Layout, executor: str, names: list[str], played: Any) -> None:
    found = played(layout)
    if lines := [line for name in names for line in _differences(layout, executor, name, found)]:
        pytest.fail("\n".join(lines), pytrace=False)


def _differences(layout: Layout, executor: str, name: str, found: Played) -> Iterator[str]:
    """Yields the scenario and in what it differs from what was recorded, if it does."""
    entry = RECORDED.get(name, {}).get(layout.name)
    assert entry is not None, f"{name} is not recorded: {RECORD_AGAIN}"
    expected = entry.get("ours") or entry["tensorflow"]
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
        difference = BY_NAME[name].difference(layout)
        whose = "TensorFlow does" if difference is None else difference.reason
        yield "\n".join([f"{name} ({whose})", *lines])


def _by_worker(expected: list[Any], got: list[Any]) -> Any:
    for worker, pair in enumerate(zip(expected, got, strict=True)):
        if isinstance(pair[1], dict) and "broke" in pair[1]:
            yield [f"worker {worker}: {pair[1]['broke']}"]
        else:
            yield [f"worker {worker}: {line}" for line in differences(*pair)]
