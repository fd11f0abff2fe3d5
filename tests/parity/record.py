"""Records what TensorFlow does: `python -m tests.parity.record`, or with the topics to record.

Plays every scenario in TensorFlow (`pip install tensorflow-cpu`), those of several workers in jobs
of real processes, and writes one JSON file a topic under `recorded/`, beside what replicax does
instead where it differs on purpose.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from ._job import play
from ._layout import LAYOUTS, Layout
from ._observation import Observation, differences
from ._recorded import FOLDER
from ._registry import Scenario
from ._tensorflow import TensorFlowLibrary
from .scenarios import all_scenarios

RESTARTS = 40


def main(wanted: list[str]) -> None:
    """Plays the scenarios of some topics, or all, in TensorFlow and replaces the recorded files."""
    scenarios = [each for each in all_scenarios() if not wanted or each.topic in wanted]
    version, observed = _in_one_process(wanted)
    problems: list[str] = []
    for layout in LAYOUTS.values():
        played = [each for each in scenarios if each.layout == layout]
        told, seen, broken = _in_workers(layout, played)
        version = version or told
        observed |= seen
        problems += broken
    topics: dict[str, dict[str, Any]] = defaultdict(dict)
    for scenario in scenarios:
        entry = _entry(scenario, observed)
        topics[scenario.topic][scenario.name] = entry
        if "ours" in entry and not list(differences(entry["ours"], entry.get("tensorflow"))):
            problems.append(f"{scenario.full_name} is marked as ours but TensorFlow agrees")
    FOLDER.mkdir(exist_ok=True)
    for stale in [] if wanted else FOLDER.glob("*.json"):
        stale.unlink()
    for topic, entries in topics.items():
        write(topic, version, entries)
    print("\n".join([f"{len(scenarios)} scenarios recorded from TensorFlow {version}", *problems]))
    sys.exit(1 if problems else 0)


def _of_one_process(wanted: list[str]) -> list[Scenario]:
    return [
        each
        for each in all_scenarios()
        if each.layout is None and (not wanted or each.topic in wanted)
    ]


def _in_one_process(wanted: list[str]) -> tuple[str, dict[str, Observation]]:
    scenarios = _of_one_process(wanted)
    observed: list[Observation] = []
    version = ""
    while len(observed) < len(scenarios):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            version, played = process.submit(_play_from, len(observed), wanted).result()
        observed += played
    return version, {each.full_name: seen for each, seen in zip(scenarios, observed, strict=True)}


def _play_from(start: int, wanted: list[str]) -> tuple[str, list[Observation]]:
    """Plays scenarios from `start` until one leaves TensorFlow unfit for the next."""
    tensorflow = TensorFlowLibrary()
    observed: list[Observation] = []
    for scenario in _of_one_process(wanted)[start:]:
        try:
            observed.append(scenario.play(tensorflow))
        except Exception as error:
            error.add_note(f"The scenario was {scenario.full_name}.")
            raise
        if not tensorflow.is_sound():
            break
    return tensorflow.version, observed


def _in_workers(
    layout: Layout, scenarios: list[Scenario]
) -> tuple[str, dict[str, Observation], list[str]]:
    """Returns the version, what each worker observed by scenario, and what went wrong."""
    wanted = [("eager", each.full_name) for each in scenarios if not each.not_in_tensorflow]
    played = play("tensorflow", layout, wanted, RESTARTS)
    observed: dict[str, Observation] = {}
    problems: list[str] = []
    for pair in wanted:
        _, name = pair
        observed[name] = played.observed.get(pair, [None])
        for seen in observed[name]:
            if isinstance(seen, dict) and "broke" in seen:
                problems.append(f"{name}: {seen['broke']}")
            elif seen is None:
                problems.append(f"{name}: {played.broken.get(pair, 'not played')}")
    return played.version, observed, problems


def _entry(scenario: Scenario, observed: dict[str, Observation]) -> dict[str, Observation]:
    entry = {}
    if not scenario.not_in_tensorflow:
        entry["tensorflow"] = observed[scenario.full_name]
    if scenario.difference is not None:
        reason = scenario.not_in_tensorflow or scenario.difference.reason
        entry |= {"ours": scenario.ours, "reason": reason}
    return entry


def write(topic: str, version: str, entries: dict[str, Any]) -> None:
    """Writes what was recorded of a topic."""
    # One scenario a line: a change of behaviour is then one line in a diff.
    lines = [f"    {json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items()]
    body = ",\n".join(lines)
    text = f'{{\n  "tensorflow": "{version}",\n  "scenarios": {{\n{body}\n  }}\n}}\n'
    (FOLDER / f"{topic}.json").write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
