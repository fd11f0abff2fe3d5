"""Sides do the same work in different ways. They take turns, and their costs are compared."""

import argparse
import json
import os
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from benchmarks.harness.processes import Processes

Options = argparse.Namespace

# Does the work so many times, waits until it is done, and returns numbers (losses, sums) that are
# the same for all sides that do the same work.
Work = Callable[[int], Sequence[Any]]


class Cost(NamedTuple):
    """Seconds that the work takes once."""

    wall: float
    cpu: float  # of all threads

    def best(self, other: "Cost") -> "Cost":
        """Returns the lower of both, clock by clock."""
        return Cost(min(self.wall, other.wall), min(self.cpu, other.cpu))


class Side(ABC):
    """One way to do the work of a benchmark.

    A subclass sets its library up in `__init__`, which gets JSON values only. It runs in this
    process, or behind `Processes` in others, which have the same methods.

    Attributes:
      version: of its library.
    """

    version = ""
    _work: Work | None = None

    @abstractmethod
    def prepare(self, *case: Any) -> Work:
        """Returns the work of a case, which is described by JSON values."""

    def start(self, case: Sequence[Any], count: int) -> list[float]:
        """Prepares the work of a case, does it `count` times, and returns its numbers."""
        self.stop()
        self._work = self.prepare(*case)
        return [float(number) for number in self._work(count)]

    def first_turn(self, case: Sequence[Any]) -> tuple[float, float]:
        """Prepares a case, and returns the seconds of doing the work once, and its number."""
        work = self.prepare(*case)
        begin = time.perf_counter()
        (number,) = work(1)
        return time.perf_counter() - begin, float(number)

    def turn(self, count: int) -> Cost:
        """Does the work `count` times, and returns the mean cost."""
        assert self._work is not None, "a case is started before its turns"
        wall, cpu = time.perf_counter(), time.process_time()
        self._work(count)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return Cost(wall / count, cpu / count)

    def stop(self) -> None:
        """Frees what the case holds."""
        self._work = None


AnySide: TypeAlias = "Side | Processes"
Sides = Mapping[str, AnySide]


class Turns(dict[str, list[Cost]]):
    """The costs of each side, turn by turn."""

    def seconds(self, side: str, clock: str = "wall") -> list[float]:
        """Returns the seconds of each turn."""
        return [getattr(cost, clock) for cost in self[side]]

    def ratio(self, above: str, below: str, clock: str = "wall") -> float | None:
        """Returns the median over the turns of the ratio of two sides, if both took part.

        A busy machine slows both sides of a turn, so this is steadier than a ratio of medians.
        """
        if above not in self or below not in self:
            return None
        pairs = zip(self.seconds(above, clock), self.seconds(below, clock), strict=True)
        return statistics.median(a / b for a, b in pairs)

    def row(
        self, names: Iterable[str], scale: float, clock: str = "wall", **ratios: tuple[str, str]
    ) -> dict[str, float | None]:
        """Returns the fields of a row: the median of each side, and the ratios of some pairs.

        Args:
          names: of the sides; None for those that took no part.
          scale: of the medians; 1e3 for milliseconds.
          clock: "wall" or "cpu".
          ratios: for each field, the side above and the one below.
        """
        return {
            name: scale * statistics.median(self.seconds(name, clock)) if name in self else None
            for name in names
        } | {field: self.ratio(*pair, clock) for field, pair in ratios.items()}


def take_turns(sides: Sides, options: Options, alike: bool = False) -> Turns:
    """Returns what the sides cost, which alternate so that a busy machine slows all of them.

    Args:
      sides: each with a case that was started.
      options: has `rounds`, the `seconds` that a turn takes about, and `max_steps` of a turn.
      alike: whether all do the work equally often in a turn.
    """
    counts = {}
    for name, side in sides.items():
        once = side.turn(2).wall
        counts[name] = min(max(round(options.seconds / once), 1), options.max_steps)
    if alike:
        counts = dict.fromkeys(counts, max(counts.values()))
    turns = Turns({name: [] for name in sides})
    names = list(sides)
    for turn in range(options.rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            turns[name].append(sides[name].turn(counts[name]))
    return turns


def start_alike(
    sides: Sides,
    case: Sequence[Any],
    count: int,
    what: str,
    reference: str | Sequence[float],
    tolerance: float | Mapping[str, float] = 1e-4,
) -> None:
    """Starts a case on all sides, and ends the program unless they compute the same numbers.

    Args:
      sides: that are compared.
      case: what `Side.prepare` gets.
      count: how often the work is done.
      what: the case, in words.
      reference: the side that the others are compared with, or the numbers.
      tolerance: relative and absolute; of some sides, if it is not the same for all.
    """
    numbers = {name: side.start(case, count) for name, side in sides.items()}
    expected = numbers[reference] if isinstance(reference, str) else reference
    for name, computed in numbers.items():
        most = tolerance.get(name, 1e-4) if isinstance(tolerance, Mapping) else tolerance
        check_equal(f"the numbers of {name} ({what})", computed, expected, most)


def check_equal(what: str, computed: Any, expected: Any, tolerance: float) -> None:
    """Ends the program unless numbers are those of the others: wrong answers can be fast."""
    close = np.shape(computed) == np.shape(expected) and np.allclose(
        computed, expected, rtol=tolerance, atol=tolerance
    )
    if not close:
        raise SystemExit(
            f"{what} are {np.asarray(computed).tolist()}, and should be "
            f"{np.asarray(expected).tolist()}. The times would not be comparable."
        )


def set_tf_config(rank: int, addresses: Sequence[str]) -> None:
    """Tells strategies of several workers in this process who they are."""
    task = {"type": "worker", "index": rank}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
