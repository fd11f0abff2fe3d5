"""The text of the status line: how far each worker is, the generation, time, restarts."""

from collections.abc import Sequence
from typing import NamedTuple


class WorkerPlace(NamedTuple):
    """How far a worker is, as last heard."""

    phase: str
    step: int = 0
    """As the program counts; 0 if it does not say."""
    calls: int = 0
    """Collective programs so far."""


def status_line(
    states: Sequence[WorkerPlace],
    generation: int,
    seconds: float,
    restarts: int,
    max_restarts: int,
) -> str:
    """Returns the status line.

    Workers in the same phase are named together, so that many workers fit in a line.

    >>> running = WorkerPlace("running step", 120)
    >>> status_line([running, running._replace(step=121), WorkerPlace("saving")], 1, 75.2, 1, 3)
    '0:01:15 | generation 1 | restarts 1/3 | 0-1: step 120-121, running step | 2: saving'
    """
    hours, rest = divmod(int(seconds), 3600)
    parts = [f"{hours}:{rest // 60:02}:{rest % 60:02}", f"generation {generation}"]
    if max_restarts or restarts:
        parts.append(f"restarts {restarts}/{max_restarts}")
    phases: dict[str, list[int]] = {}
    for rank, state in enumerate(states):
        phases.setdefault(state.phase, []).append(rank)
    for phase, ranks in phases.items():
        who = "all" if len(phases) == 1 and len(ranks) > 1 else in_short(ranks)
        parts.append(f"{who}: {_how_far([states[rank] for rank in ranks])}{phase}")
    return " | ".join(parts)


def _how_far(states: Sequence[WorkerPlace]) -> str:
    for name, numbers in (
        ("step", [state.step for state in states]),
        ("call", [state.calls for state in states]),
    ):
        least, most = min(numbers), max(numbers)
        if most:
            return f"{name} {least if least == most else f'{least}-{most}'}, "
    return ""


def in_short(numbers: Sequence[int]) -> str:
    """Returns increasing numbers as text, with runs as ranges.

    >>> in_short([0, 1, 2, 5, 7, 8])
    '0-2,5,7-8'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)
