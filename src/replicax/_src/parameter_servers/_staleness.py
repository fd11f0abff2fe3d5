"""How old the values were that updates were computed from."""

from __future__ import annotations

import collections
import threading
from collections.abc import Iterable
from typing import NamedTuple, final


@final
class StalenessReport(NamedTuple):
    """What `coordinator.staleness` returns: ages in updates.

    An age is how many updates the server has made between the read and the update, those of this
    function not counted. Of several servers the oldest counts.

    Attributes:
      updates: how many updates there were.
      mean: of their ages.
      largest: of their ages.
      histogram: how many updates had each age.
    """

    updates: int
    mean: float
    largest: int
    histogram: dict[int, int]


@final
class StalenessLimit:
    """Says when functions may begin, so that no value gets older than a limit.

    A function may begin if, should all that run then make their updates before it, or it before
    them, no update is computed from values that are older. How many updates a function makes is
    known from when it ran last, and taken to be one before that. Not for several threads at once.
    """

    def __init__(self, limit: int | None) -> None:
        """
        Args:
          limit: in updates; None for no limit.
        """
        self._limit = limit
        self._usual: dict[int, int] = {}  # updates of a function, by its number
        self._running: dict[str, _Running] = {}

    def admits(self, function: int) -> bool:
        """Returns whether a function may begin now."""
        if self._limit is None or not self._running:
            return True
        coming = sum(each.updates for each in self._running.values())
        others = (
            each.age + coming - each.updates + self._usual.get(function, 1)
            for each in self._running.values()
        )
        return max(coming, *others) <= self._limit

    def begin(self, token: str, function: int) -> None:
        """Called when a call of a function begins."""
        self._running[token] = _Running(self._usual.get(function, 1))

    def made(self, function: int, updates: int) -> None:
        """Called when a function has made so many updates."""
        self._usual[function] = max(updates, self._usual.get(function, 1))

    def forget(self, function: int) -> None:
        """Called when a function is gone."""
        self._usual.pop(function, None)

    def end(self, token: str) -> None:
        """Called when a call has ended, or its worker was lost, perhaps after its updates."""
        ended = self._running.pop(token)
        for each in self._running.values():
            each.age += ended.updates


@final
class _Running:
    """A call that runs.

    Attributes:
      updates: that it is expected to make.
      age: how many updates others have made since it began.
    """

    def __init__(self, updates: int) -> None:
        self.updates = updates
        self.age = 0


@final
class Staleness:
    """Counts ages."""

    def __init__(self) -> None:
        self._counts: collections.Counter[int] = collections.Counter()
        self._lock = threading.Lock()

    def add(self, ages: Iterable[int]) -> None:
        """Counts the ages of the updates of one function."""
        with self._lock:
            self._counts.update(ages)

    def report(self) -> StalenessReport:
        """Returns what was counted so far."""
        with self._lock:
            counts = dict(sorted(self._counts.items()))
        updates = sum(counts.values())
        mean = sum(age * count for age, count in counts.items()) / updates if updates else 0.0
        return StalenessReport(updates, mean, max(counts, default=0), counts)
