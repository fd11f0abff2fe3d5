"""Which collective programs the workers have launched, compared one by one.

The n-th call of a worker meets the n-th of the others on the devices, whatever they are: other
shapes hang or, worse, give wrong numbers. So every worker tells what it called, and the first
difference ends the job. What is equal on all is forgotten.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple


class Difference(NamedTuple):
    """The first call that is not the same everywhere."""

    number: int
    called: list[str]


class CallLogs:
    """What each worker has called, as far as others have not called it yet."""

    def __init__(self, workers: int) -> None:
        self._open: list[deque[tuple[int, str]]] = [deque() for _ in range(workers)]
        self._equal = 0

    def add(self, worker: int, runs: Sequence[Sequence[object]]) -> Difference | None:
        """Notes further calls of a worker; returns the first difference, if there is one now."""
        self._open[worker].extend((int(str(count)), str(what)) for count, what in runs)
        while all(self._open):
            heads = [runs[0] for runs in self._open]
            if any(what != heads[0][1] for _, what in heads):
                return Difference(self._equal + 1, [what for _, what in heads])
            least = min(count for count, _ in heads)
            self._equal += least
            for runs, (count, what) in zip(self._open, heads, strict=True):
                runs.popleft()
                if count > least:
                    runs.appendleft((count - least, what))
        return None
