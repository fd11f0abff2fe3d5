"""Records what TensorFlow does: `python -m tests.parity.record`, or with the topics to record.

Plays every scenario in TensorFlow (`pip install tensorflow-cpu`) and writes one JSON file a topic
under `recorded/`, beside what replicax does instead where it differs on purpose.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from ._observation import Observation, differences
from ._registry import Scenario
from ._tensorflow import TensorFlowLibrary
from .scenarios import all_scenarios

RECORDED = Path(__file__).parent / "recorded"


def main(wanted: list[str]) -> None:
    """Plays the scenarios of some topics, or all, in TensorFlow and replaces the recorded files."""
    scenarios = _scenarios(wanted)
    observed: list[Observation] = []
    version = ""
    while len(observed) < len(scenarios):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            version, played = process.submit(_play_from, len(observed), wanted).result()
        observed += played
    topics: dict[str, dict[str, Any]] = defaultdict(dict)
    for scenario, observation in zip(scenarios, observed, strict=True):
        topics[scenario.topic][scenario.name] = _entry(scenario, observation)
    RECORDED.mkdir(exist_ok=True)
    for stale in [] if wanted else RECORDED.glob("*.json"):
        stale.unlink()
    for topic, entries in topics.items():
        _write(RECORDED / f"{topic}.json", version, entries)
    print(f"{len(observed)} scenarios recorded from TensorFlow {version}")


def _scenarios(wanted: list[str]) -> list[Scenario]:
    return [each for each in all_scenarios() if not wanted or each.topic in wanted]


def _play_from(start: int, wanted: list[str]) -> tuple[str, list[Observation]]:
    """Plays scenarios from `start` until one leaves TensorFlow unfit for the next."""
    tensorflow = TensorFlowLibrary()
    observed: list[Observation] = []
    for scenario in _scenarios(wanted)[start:]:
        try:
            observed.append(scenario.play(tensorflow))
        except Exception as error:
            error.add_note(f"The scenario was {scenario.topic}.{scenario.name}.")
            raise
        if not tensorflow.is_sound():
            break
    return tensorflow.version, observed


def _entry(scenario: Scenario, observed: Observation) -> dict[str, Observation]:
    if scenario.difference is None:
        return {"tensorflow": observed}
    if not list(differences(scenario.ours, observed)):
        raise ValueError(
            f"{scenario.topic}.{scenario.name} is marked as ours but TensorFlow agrees"
        )
    return {
        "tensorflow": observed,
        "ours": scenario.ours,
        "reason": scenario.difference.reason,
    }


def _write(path: Path, version: str, entries: dict[str, Any]) -> None:
    # One scenario a line: a change of behaviour is then one line in a diff.
    lines = [f"    {json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items()]
    body = ",\n".join(lines)
    path.write_text(f'{{\n  "tensorflow": "{version}",\n  "scenarios": {{\n{body}\n  }}\n}}\n')


if __name__ == "__main__":
    main(sys.argv[1:])
