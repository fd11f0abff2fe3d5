"""Which scenarios are played where, and how a test run plays each layout once."""

from __future__ import annotations

import fcntl
import pickle
from pathlib import Path

from ..everything import EVERYTHING
from ._job import Pair, Played, play
from ._layout import Layout
from ._registry import Scenario
from .scenarios import all_scenarios

SCENARIOS = [each for each in all_scenarios() if each.layout]
TWENTY_STEPS = "workers_training.twenty_steps"
RESTARTS = 3
"""How many scenarios may end a job before the rest is given up."""

# Otherwise each scenario is played in some layout under each executor: a short test run.
_SHARED_BY_WORKERS = ("cluster", "data", "input", "reducing", "variable_creation")


def _is_training(scenario: Scenario) -> bool:
    return f"{scenario.topic}.{scenario.body.__name__}" == TWENTY_STEPS


def _is_played(layout: Layout, executor: str, scenario: Scenario) -> bool:
    topic = scenario.topic.removeprefix("workers_")
    by_workers = topic.startswith(_SHARED_BY_WORKERS)
    match layout.name:
        case "2x1":
            return executor == "eager" or "2x2" not in scenario.places
        case "2x2":
            return executor == "compiled" or bool(scenario.eager_only)
        case "3x1":
            return executor == "eager" and by_workers
        case _:
            is_compiled_training = executor == "compiled" and _is_training(scenario)
            return is_compiled_training or topic in ("data_files", "input_functions")


def pairs(layout: Layout) -> list[Pair]:
    """Returns what is played in a layout, in order: (executor, scenario)."""
    return [
        (executor, scenario.full_name)
        for executor in ("eager", "compiled")
        for scenario in SCENARIOS
        if scenario.layout == layout
        and not (scenario.eager_only and executor == "compiled")
        and (EVERYTHING or _is_played(layout, executor, scenario))
    ]


def play_once(layout: Layout, folder: Path) -> Played:
    """Plays a layout in the first process that asks with this folder; reads it in the others."""
    kept = folder / f"{layout.name}.pickle"
    with open(folder / f"{layout.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            kept.write_bytes(pickle.dumps(play("replicax", layout, pairs(layout), RESTARTS)))
        return pickle.loads(kept.read_bytes())
