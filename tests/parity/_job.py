"""Plays scenarios in the real worker processes of one job, or of as many as it takes."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field

from ..processes import Worker, workers
from ._layout import Layout
from ._observation import Observation

SECONDS_FOR_A_JOB = 600.0

Pair = tuple[str, str]
"""An executor, and the name of a scenario."""


@dataclass
class Played:
    """What came of playing scenarios in one layout."""

    version: str = ""
    observed: dict[Pair, list[Observation]] = field(default_factory=dict)
    """What each worker observed; None of one that did not get so far."""
    broken: dict[Pair, str] = field(default_factory=dict)
    """What the workers said where a job ended in a scenario, or right after it."""


def play(library: str, layout: Layout, wanted: list[Pair], restarts: int = 0) -> Played:
    """Plays the wanted scenarios in one job.

    Where the job ends early, a new one goes on behind the scenario that ended it, as often as
    `restarts` allows; what comes after that is not played.
    """
    played = Played()
    while wanted:
        ended = _run(library, layout, wanted)
        played.version = ended[0].results.get("version", played.version)
        seen = [_observed(worker) for worker in ended]
        through = min(len(worker.history("in step")) for worker in ended)
        for pair in wanted[: through + 1]:
            played.observed[pair] = [each.get(pair) for each in seen]
        if all(worker.status == 0 for worker in ended):
            break
        played.broken[wanted[min(through, len(wanted) - 1)]] = "\n".join(map(str, ended))
        wanted = wanted[through + 1 :]
        if restarts == 0:
            break
        restarts -= 1
    return played


def _run(library: str, layout: Layout, wanted: list[Pair]) -> list[Worker]:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as plan:
        json.dump(wanted, plan)
        plan.flush()
        job = workers(
            "tests.parity.play",
            layout.workers,
            devices=layout.devices,
            chief=layout.chief,
            arguments=[library, layout.name, plan.name],
            timeout=SECONDS_FOR_A_JOB,
        )
        with job:
            job.expect_exit()
    return list(job)


def _observed(worker: Worker) -> dict[Pair, Observation]:
    return {(executor, name): seen for executor, name, seen in worker.history("observed")}
