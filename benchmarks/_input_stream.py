"""Takes the time of streams of batches, in any interpreter, and serves them to a parent process.

A library's file gives a `Pipeline` for each case. `input.py` times those of this process itself,
and asks children, which run `serve`, for the others.
"""

import itertools
import json
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np


class Cost(NamedTuple):
    """Seconds for one batch."""

    cpu: float
    wall: float

    def best(self, other: "Cost") -> "Cost":
        return Cost(min(self.cpu, other.cpu), min(self.wall, other.wall))


def cpu_seconds() -> float:
    """All threads of this process, and the children that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def cost_of(work: Callable[[], Any], count: int = 1) -> Cost:
    cpu, wall = cpu_seconds(), time.perf_counter()
    work()
    return Cost((cpu_seconds() - cpu) / count, (time.perf_counter() - wall) / count)


@dataclass
class Pipeline:
    """A stream of batches.

    Args:
        make: gives an iterable of batches; it is called again for each turn, unless the stream is
            endless.
        batches: of an epoch; None: whatever comes, and a cost is that of the whole epoch.
        endless: the stream goes on where the last turn left it, so that what is done once only
            (filling a shuffle buffer) is not counted.
        leaves: the arrays of a batch; by default the batch is a flat tuple of them.
        most: batches in a turn, for libraries that need seconds for a whole epoch.
        finish: called with the last batch of a turn, where batches may still be on their way.
    """

    make: Callable[[], Iterable[Any]]
    batches: int | None
    endless: bool = False
    leaves: Callable[[Any], Iterable[Any]] = tuple
    most: int | None = None
    finish: Callable[[Any], Any] = lambda batch: None
    _iterator: Iterator[Any] | None = field(default=None, repr=False)

    def turn(self) -> Cost:
        """Some batches, which nobody looks at."""
        if self._iterator is None and self.endless:
            self._iterator = iter(self.make())
            self._draw(self._iterator, 2)
        count = self.most or self.batches
        return cost_of(lambda: self._draw(self._iterator or iter(self.make()), count), count or 1)

    def _draw(self, iterator: Iterator[Any], count: int | None) -> None:
        last, drawn = None, 0
        for batch in itertools.islice(iterator, count):
            last = batch
            drawn += 1
        if count is not None and drawn != count:
            raise RuntimeError(f"{drawn} batches came where {count} were expected.")
        self.finish(last)

    def digest(self) -> list[float]:
        """Of a first epoch: the rows, and a sum over each leaf. Equal for equal data."""
        rows, sums = 0, []
        iterator = iter(self.make())
        for batch in itertools.islice(iterator, self.batches):
            arrays = [np.asarray(leaf) for leaf in self.leaves(batch)]
            rows += len(arrays[0])
            sums = sums or [0.0] * len(arrays)
            sums = [total + _weight(array) for total, array in zip(sums, arrays, strict=True)]
        if self.endless and self.most is None:
            self._iterator = iterator
        return [rows, *sums]

    def close(self) -> None:
        self._iterator = None


def _weight(array: np.ndarray) -> float:
    """Does not depend on the order of elements."""
    if array.dtype.kind in "OS":
        return float(sum(len(each) + each[0] for each in array.tolist()))
    return float(np.sum(np.abs(array), dtype=np.float64))


class _Idle:
    """The processor time that threads of this process take between two turns: it is work ahead."""

    def __init__(self) -> None:
        self._end: float | None = None

    def charged(self, pipeline: Pipeline) -> Cost:
        begin = cpu_seconds()
        cost = pipeline.turn()
        if self._end is not None and pipeline.endless:
            count = pipeline.most or pipeline.batches or 1
            cost = cost._replace(cpu=cost.cpu + (begin - self._end) / count)
        self._end = cpu_seconds()
        return cost


def serve(
    pipelines: dict[str, Callable[[], Pipeline]],
    answer: Callable[..., None],
    **others: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    """In a child: answers {"do": "prepare", "case": ...}, then {"do": "turn"}; see `Remote`."""
    pipeline, idle = None, _Idle()
    for line in sys.stdin:
        request = json.loads(line)
        do = request["do"]
        if do == "prepare":
            pipeline, idle = None, _Idle()
            pipeline = pipelines[request["case"]]()
            answer(digest=pipeline.digest())
        elif do == "turn":
            assert pipeline is not None, "a pipeline is prepared before its turns"
            answer(cost=idle.charged(pipeline))
        elif do == "close":
            pipeline = None
            answer(closed=True)
        else:
            answer(**others[do](request))


class Remote:
    """A pipeline of a child, timed there."""

    def __init__(self, child: Any, case: str):
        self.child, self.case = child, case

    def digest(self) -> list[float]:
        return self.child.ask(do="prepare", case=self.case)["digest"]

    def turn(self) -> Cost:
        return Cost(*self.child.ask(do="turn")["cost"])

    def close(self) -> None:
        self.child.ask(do="close")
