"""What was recorded of TensorFlow, and what is to be expected of replicax."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ._observation import Observation
from ._registry import Scenario

FOLDER = Path(__file__).parent / "recorded"
RECORD_AGAIN = "run `python -m tests.parity.record` where tensorflow-cpu is installed"
RECORDED: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text())["scenarios"] for path in FOLDER.glob("*.json")
}


def recorded(scenario: Scenario) -> Observation:
    """Returns what a scenario is to observe, or each of its workers."""
    entry = RECORDED.get(scenario.topic, {}).get(scenario.name)
    assert entry is not None, f"{scenario.full_name} is not recorded: {RECORD_AGAIN}"
    return entry["tensorflow"] if scenario.difference is None else entry["ours"]
