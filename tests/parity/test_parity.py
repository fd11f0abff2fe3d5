"""replicax does what TensorFlow was recorded to do, or what is marked as ours."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

from ..old_names import with_old_names
from ..under_test import EXECUTORS, Executor
from ._observation import differences
from ._recorded import RECORD_AGAIN, RECORDED, recorded
from ._registry import Scenario
from ._replicax import ReplicaxLibrary
from .scenarios import all_scenarios

SCENARIOS = list(all_scenarios())


def test_every_scenario_is_recorded_and_no_other() -> None:
    declared: dict[str, dict[str, Any]] = {}
    for scenario in SCENARIOS:
        declared.setdefault(scenario.topic, {})[scenario.name] = scenario.ours
    recorded = {
        topic: {name: entry.get("ours") for name, entry in entries.items()}
        for topic, entries in RECORDED.items()
    }
    assert declared == recorded, RECORD_AGAIN


def _by_body() -> dict[str, list[Scenario]]:
    """The cases of each scenario: one test has them all, as most take a few milliseconds."""
    cases: dict[str, list[Scenario]] = {}
    for scenario in SCENARIOS:
        if scenario.layout:  # test_workers.py has them
            continue
        cases.setdefault(f"{scenario.topic}.{scenario.body.__name__}", []).append(scenario)
    return cases


@with_old_names
@pytest.mark.parametrize(
    "executor, cases",
    [
        pytest.param(executor, played, id=f"{executor}-{name}")
        for executor in EXECUTORS
        for name, cases in _by_body().items()
        if (played := [each for each in cases if executor == "eager" or not each.eager_only])
    ],
    indirect=["executor"],
)
def test_parity(cases: list[Scenario], executor: Executor) -> None:
    found = [line for case in cases for line in _differences(case, executor)]
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def _differences(scenario: Scenario, executor: Executor) -> Iterator[str]:
    """Yields the case and in what it differs from what was recorded, if it does."""
    expected = recorded(scenario)
    try:
        # Through JSON, so that both sides have its types.
        got = json.loads(json.dumps(scenario.play(ReplicaxLibrary(executor))))
    except Exception:  # the other cases are played all the same
        yield f"{scenario.full_name} failed\n{traceback.format_exc()}"
        return
    if found := list(differences(expected, got)):
        whose = "TensorFlow does" if scenario.difference is None else scenario.difference.reason
        yield "\n".join([f"{scenario.full_name} ({whose})", *found])
