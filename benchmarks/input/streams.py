"""Streams of batches, whose time is taken in any interpreter."""

import itertools
import resource
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from benchmarks.harness.sides import AnySide, Cost, Side, Work

Key = TypeVar("Key", bound=Hashable)


def cpu_seconds() -> float:
    """Returns those of all threads of this process, and of the children that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def cost_of(work: Callable[[], Any], count: int = 1) -> Cost:
    """Returns the cost of work that does something so many times."""
    wall, cpu = time.perf_counter(), cpu_seconds()
    work()
    return Cost((time.perf_counter() - wall) / count, (cpu_seconds() - cpu) / count)


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
        """Draws some batches, which nobody looks at, and returns what one costs."""
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
        """Returns the rows of a first epoch, and a sum over each leaf: equal for equal data."""
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


def _weight(array: np.ndarray) -> float:
    """Returns a number that does not depend on the order of elements."""
    if array.dtype.kind in "OS":
        return float(sum(len(each) + each[0] for each in array.tolist()))
    return float(np.sum(np.abs(array), dtype=np.float64))


Pipelines = dict[str, Callable[[], Pipeline]]


class Streams(Side):
    """The pipelines of one library.

    Attributes:
      pipelines: by their names.
      alone: whether it has a process to itself. Then the processor time that its threads take
        between two turns is work ahead, and the next turn pays for it.
    """

    pipelines: Pipelines
    alone = True

    def prepare(self, name: str) -> Work:
        pipeline, self.idle_since = self.pipelines[name](), None
        self.pipeline = pipeline
        return lambda count: pipeline.digest()

    def turn(self, count: int) -> Cost:
        """Returns what one batch costs in a turn, whose length the pipeline has itself."""
        pipeline, begin = self.pipeline, cpu_seconds()
        assert pipeline is not None, "a case is started before its turns"
        cost = pipeline.turn()
        if self.alone and pipeline.endless and self.idle_since is not None:
            batches = pipeline.most or pipeline.batches or 1
            cost = cost._replace(cpu=cost.cpu + (begin - self.idle_since) / batches)
        self.idle_since = cpu_seconds()
        return cost

    def stop(self) -> None:
        super().stop()
        self.pipeline = None


def best_turns(sides: Mapping[Key, AnySide], rounds: int) -> dict[Key, Cost]:
    """Returns the best turn of each side; they alternate."""
    best: dict[Key, Cost] = {}
    for _ in range(rounds):
        for name, side in sides.items():
            cost = side.turn(1)
            best[name] = cost.best(best.get(name, cost))
    return best
