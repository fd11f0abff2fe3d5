"""A step that was run again, compared with what was recorded of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from replicax._src._typing import PyTree
from replicax._src.recording._inputs import bits_of, from_line
from replicax._src.recording._probe import BITS, PEAKS
from replicax._src.recording._recorded import Step
from replicax._src.recording._writer import small_results

_ROUNDING = 1e-4  # relative


@final
@dataclasses.dataclass(frozen=True)
class Replayed:
    """A step that was run again.

    Attributes:
      step: its number.
      result: what the function returned.
      results: the small arrays in it, for each leaf those of all replicas.
      recorded: the same as recorded; None if the job ended before they were there.
      same_bits: whether both are the same, bit by bit; None if nothing was recorded of it.
      largest_difference: between the two, relative to the recorded values.
      same_layout: whether it ran in as many processes as it was recorded in. In another number of
        them sums may be rounded in another way.
      changes: if it was asked for: by trainable variable, the largest absolute value of its
        gradient on any replica, and of the change that the step made to it.
      outside: in words, what something else than the function has done to its variables since the
        step before. It was done again before this one, as far as it is recorded.
      other_bits: variables and gradients whose bits, as traps saw them, are not those recorded: the
        name and the number of the replica. Where results and data are the same, something else has
        changed them: a program, or the memory of a device.
    """

    step: int
    result: Any
    results: list[list[np.ndarray]]
    recorded: list[list[np.ndarray]] | None
    same_bits: bool | None
    largest_difference: float
    other_bits: tuple[tuple[str, int], ...] = ()
    same_layout: bool = True
    changes: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    outside: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether it gave what was recorded: the same bits, or in another layout to 1e-5."""
        is_close = not self.same_layout and self.largest_difference <= 1e-5
        return self.same_bits is not False or is_close


def recorded_results(
    steps: Sequence[Step], counts: Sequence[int] = ()
) -> list[list[np.ndarray]] | None:
    """Returns the small results of a step that all workers recorded, joined over their replicas.

    Args:
      steps: what each worker recorded.
      counts: of how many replicas a replay has each result, if there is one.
    """
    by_worker = [
        [[bits_of(from_line(part)) for part in parts] for parts in step.results]
        for step in steps
        if step.results is not None
    ]
    if not by_worker or len({len(each) for each in by_worker}) > 1:
        return None
    found: list[list[np.ndarray]] = []
    for index, of_each in enumerate(zip(*by_worker, strict=True)):
        joined = [part for parts in of_each for part in parts]
        # What is the same on all workers was recorded by each of them.
        is_one = all(len(parts) == 1 for parts in of_each) and (
            counts[index] == 1
            if index < len(counts)
            else len({part.tobytes() for part in joined}) == 1
        )
        if not is_one and len(by_worker) < len(steps):
            return None
        found.append(joined[:1] if is_one else joined)
    return found


def other_bits(
    figures: dict[str, np.ndarray], steps: Sequence[Step]
) -> tuple[tuple[str, int], ...]:
    """Returns the variables and gradients, with the replica, that are not what was recorded.

    Of one worker their bits are compared, or their largest values if those alone were recorded; of
    several, which are one process here and may round in another way, their largest values.
    """
    has_bits = BITS in figures and all(BITS in each.figures for each in steps)
    which = BITS if len(steps) == 1 and has_bits else PEAKS
    rows = [each.figures[which] for each in steps if which in each.figures]
    if which not in figures or len(rows) != len(steps):
        return ()
    arrays = [from_line(row) for row in rows]
    names, mine = steps[0].names, figures[which]
    if any(each.shape[1:] != mine.shape[1:] for each in arrays):
        return ()
    recorded = np.concatenate(arrays)
    if recorded.shape != mine.shape or recorded.shape[1] != len(names):
        return ()
    if which == BITS:
        is_same = recorded == mine
    else:
        tolerance = 0.0 if len(steps) == 1 else _ROUNDING
        is_same = np.isclose(recorded, mine, tolerance, 0.0, True)
    # The sums of metrics may begin anew between two steps, or be in no checkpoint.
    is_same[:, [name.startswith("metric ") for name in names]] = True
    found = np.argwhere(~is_same)
    return tuple((names[column], int(replica)) for replica, column in found)


def compared(
    step: int,
    result: PyTree,
    figures: dict[str, np.ndarray],
    steps: Sequence[Step],
    same_layout: bool | None = None,
) -> Replayed:
    """Compares what a step gave with what was recorded of it.

    Args:
      step: its number.
      result: what it gave.
      figures: what traps saw.
      steps: what the workers recorded, of which these are the replicas here.
      same_layout: whether it ran on as many replicas in as many processes.
    """
    results = [[bits_of(part) for part in parts] for parts in small_results(result)]
    recorded = recorded_results(steps, [len(parts) for parts in results])
    is_same_layout = len(steps) == 1 if same_layout is None else same_layout
    if recorded is None:
        return Replayed(step, result, results, None, None, 0.0)
    if is_same_layout is False and len(results) == len(recorded):  # what can be compared
        both = [
            pair if len(pair[0]) == len(pair[1]) else tuple(map(_as_one, pair))
            for pair in zip(results, recorded, strict=True)
        ]
        both = [pair for pair in both if len(pair[0]) == len(pair[1])]
        mine, recorded = [pair[0] for pair in both], [pair[1] for pair in both]
    else:
        mine = results
    shapes = [[(part.dtype, part.shape) for part in parts] for parts in mine]
    if shapes != [[(part.dtype, part.shape) for part in parts] for parts in recorded]:
        return Replayed(step, result, results, recorded, False, float("inf"))
    pairs = [
        pair
        for ours, theirs in zip(mine, recorded, strict=True)
        for pair in zip(ours, theirs, strict=True)
    ]
    same: bool | None = all(ours.tobytes() == theirs.tobytes() for ours, theirs in pairs)
    if not pairs and not all(each.figures for each in steps):
        same = None  # there is nothing to compare
    worst = max((_relative_difference(ours, theirs) for ours, theirs in pairs), default=0.0)
    bits = other_bits(figures, steps)
    return Replayed(step, result, results, recorded, same, worst, bits, is_same_layout)


def _as_one(parts: list[np.ndarray]) -> list[np.ndarray]:
    """Returns what replicas have of a result: one array if all have the same."""
    return parts[:1] if len({each.tobytes() for each in parts}) == 1 else parts


def largest(arrays: Sequence[np.ndarray], others: Sequence[np.ndarray] | None = None) -> float:
    """Returns the largest absolute value of arrays, or of their differences to others."""
    pairs = zip(arrays, others or [np.zeros(())] * len(arrays), strict=True)
    with np.errstate(invalid="ignore", over="ignore"):
        found = [np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)) for a, b in pairs]
    return max((float(np.max(each)) for each in found if each.size), default=0.0)


def _relative_difference(mine: np.ndarray, theirs: np.ndarray) -> float:
    """Returns the largest difference of two arrays, by the largest value; NaNs are equal."""
    if not np.size(mine) or mine.tobytes() == theirs.tobytes():
        return 0.0
    a, b = (np.asarray(each, np.float64) for each in (mine, theirs))
    if not np.array_equal(np.isnan(a), np.isnan(b)):
        return float("inf")
    with np.errstate(invalid="ignore"):
        off = np.nan_to_num(np.abs(a - b), nan=0.0, posinf=float("inf"))
    scale = max(np.max(np.abs(np.nan_to_num(b, posinf=1.0, neginf=1.0))), 1e-30)
    return float(np.max(off) / scale)
