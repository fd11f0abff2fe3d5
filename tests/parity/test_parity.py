"""replicax does what TensorFlow was recorded to do, or what is marked as ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..old_names import with_old_names
from ..under_test import EXECUTORS, Executor
from ._observation import differences
from ._registry import Scenario
from ._replicax import ReplicaxLibrary
from .scenarios import all_scenarios

RECORD_AGAIN = "run `python -m tests.parity.record` where tensorflow-cpu is installed"
RECORDED: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text())["scenarios"]
    for path in Path(__file__).parent.glob("recorded/*.json")
}
SCENARIOS = list(all_scenarios())


def _identifier(scenario: Scenario) -> str:
    return f"{scenario.topic}.{scenario.name}"


def test_every_scenario_is_recorded_and_no_other() -> None:
    declared: dict[str, dict[str, Any]] = {}
    for scenario in SCENARIOS:
        declared.setdefault(scenario.topic, {})[scenario.name] = scenario.ours
    recorded = {
        topic: {name: entry.get("ours") for name, entry in entries.items()}
        for topic, entries in RECORDED.items()
    }
    assert declared == recorded, RECORD_AGAIN


@with_old_names
@pytest.mark.parametrize(
    "executor, scenario",
    [
        pytest.param(executor, scenario, id=f"{executor}-{_identifier(scenario)}")
        for executor in EXECUTORS
        for scenario in SCENARIOS
        if executor == "eager" or not scenario.eager_only
    ],
    indirect=["executor"],
)
def test_parity(scenario: Scenario, executor: Executor) -> None:
    entry = RECORDED.get(scenario.topic, {}).get(scenario.name)
    assert entry is not None, f"{_identifier(scenario)} is not recorded: {RECORD_AGAIN}"
    expected = entry["tensorflow"] if scenario.difference is None else entry["ours"]
    # Through JSON, so that both sides have its types.
    got = json.loads(json.dumps(scenario.play(ReplicaxLibrary(executor))))
    found = list(differences(expected, got))
    if found:
        whose = "TensorFlow does" if scenario.difference is None else scenario.difference.reason
        pytest.fail("\n".join([f"{_identifier(scenario)} ({whose})", *found]), pytrace=False)
