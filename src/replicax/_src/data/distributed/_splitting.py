"""How the batches of a data set become the shares of replicas: TensorFlow's two rules.

*Each batch for itself*: a batch of n rows is cut into as many pieces as there are replicas, of
ceil(n / replicas) rows as long as there are any, the last ones empty.

*The stream of rows*: batch borders are forgotten, and the rows are dealt out in shares whose sizes
sum up to the global batch size, as even as they can be. What is left of one batch goes on into
the next.

Which rule holds is decided in `_sharding.py`. Nothing is computed here: rows are in blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, final

import numpy as np

from replicax._src._typing import override
from replicax._src.data._batching import row_block, unbatched
from replicax._src.data._blocks import EMPTY, Block, Broken, Held
from replicax._src.data._composed_blocks import Batched, concatenate
from replicax._src.data._elements import Element, Structure
from replicax._src.data._node import Peekable, Pulled, Reader, take_all

WHAT = "A distributed data set"


class Step(NamedTuple):
    """The rows of this worker's replicas in one step: `sizes` of them for each, in turn."""

    rows: Block
    sizes: Sequence[int]
    apart: SeparateArrays | None = None
    """In the place of rows, where the arrays of a batch have different numbers of them."""
    is_uneven: bool = False
    """Whether replicas, here or on other workers, have different numbers of rows."""
    everywhere: Sequence[int] = ()
    """As `sizes`, for the replicas of all workers, where they are known."""


class SeparateArrays(NamedTuple):
    """The arrays of a batch, each for itself: `leaves` of the batch, or the parts of each."""

    structure: Structure
    leaves: Sequence[Any]


def parts_of_different_sizes(element: Element) -> SeparateArrays | None:
    """Returns the arrays of a batch if they have different numbers of rows; otherwise None."""
    structure = Structure(element)
    leaves = structure.leaves(element)
    if any(not isinstance(leaf, np.ndarray) or leaf.ndim == 0 for leaf in leaves):
        return None  # which is refused elsewhere
    return SeparateArrays(structure, leaves) if len({len(leaf) for leaf in leaves}) > 1 else None


class Steps:
    """The steps of this worker."""

    def next_step(self) -> Step | None:
        """Returns the next one, or None at the end."""
        raise NotImplementedError

    def skip(self, steps: int) -> None:
        """Goes past some steps, without computing their rows."""
        for _ in range(steps):
            if self.next_step() is None:
                return

    def close(self) -> None:
        """Ends the walk."""


@functools.lru_cache
def pieces_of(rows: int, pieces: int) -> tuple[range, ...]:
    """Returns the rows of each piece of a batch."""
    size = -(-rows // pieces)
    return tuple(
        range(min(number * size, rows), min((number + 1) * size, rows)) for number in range(pieces)
    )


def shares_of(batch_size: int, replicas: int) -> list[int]:
    """Returns the sizes of the shares of a global batch, nearly even, the larger ones first."""
    size, extra = divmod(batch_size, replicas)
    return [size + 1] * extra + [size] * (replicas - extra)


def _in_turn(sizes: Sequence[int], workers: int) -> list[int]:
    """Sizes of pieces, of which a worker has every n-th, in the order of the replicas."""
    return [size for worker in range(workers) for size in sizes[worker::workers]]


class BatchByBatch(Steps):
    """Each batch for itself: it has a piece for every replica of all workers."""

    def __init__(self, reader: Reader, workers: int, local: int):
        self._reader = reader
        self._workers = workers
        self._local = local

    @property
    def _replicas(self) -> int:
        return self._workers * self._local

    @override
    def close(self) -> None:
        self._reader.close()


@final
class EachBatch(BatchByBatch):
    """One step for each batch; of the pieces, a worker has every n-th."""

    def __init__(self, reader: Reader, workers: int, worker: int, local: int):
        super().__init__(reader, workers, local)
        self._worker = worker

    @override
    def next_step(self) -> Step | None:
        block = self._reader.take(1)
        if len(block) == 0:
            return None
        try:
            return self._step_of(block)
        except Exception as error:  # of this batch: the next may be well
            return Step(Broken(error), [1])

    def _step_of(self, block: Block) -> Step:
        if not isinstance(block, Batched):
            block = Held(block.rows())
            if (parts := parts_of_different_sizes(block.elements[0])) is not None:
                cut = [*map(self._cut, parts.leaves)]
                uneven = any(len(leaf) % self._replicas for leaf in parts.leaves)
                return Step(EMPTY, [], SeparateArrays(parts.structure, cut), uneven)
        rows = row_block(block, WHAT)
        pieces, uneven = self._pieces(len(rows)), len(rows) % self._replicas > 0
        sizes, everywhere = [len(piece) for piece in pieces], ()
        if self._workers > 1:
            if uneven:
                of_all = map(len, pieces_of(len(rows), self._replicas))
                everywhere = _in_turn(list(of_all), self._workers)
            rows = concatenate([rows.select(slice(each.start, each.stop)) for each in pieces])
        return Step(rows, sizes, is_uneven=uneven, everywhere=everywhere)

    def _pieces(self, rows: int) -> Sequence[range]:
        return pieces_of(rows, self._replicas)[self._worker :: self._workers]

    def _cut(self, leaf: np.ndarray) -> list[Any]:
        return [leaf[each.start : each.stop] for each in self._pieces(len(leaf))]

    @override
    def skip(self, steps: int) -> None:
        self._reader.skip(steps)


@final
class EachOwnBatch(BatchByBatch):
    """Every worker has batches of its own: it takes all the pieces.

    So one batch makes as many steps as there are workers.
    """

    def __init__(self, reader: Reader, workers: int, local: int):
        super().__init__(reader, workers, local)
        self._waiting: list[Step] = []

    @override
    def next_step(self) -> Step | None:
        if not self._waiting:
            block = self._reader.take(1)
            if len(block) == 0:
                return None
            try:
                self._waiting = self._steps_of(row_block(block, WHAT))
            except Exception as error:
                return Step(Broken(error), [1])
            self._waiting.reverse()
        return self._waiting.pop()

    def _steps_of(self, rows: Block) -> list[Step]:
        pieces = pieces_of(len(rows), self._replicas)
        steps: list[Step] = []
        for first in range(0, len(pieces), self._local):
            mine = pieces[first : first + self._local]
            part = rows.select(slice(mine[0].start, mine[-1].stop))
            steps.append(Step(part, [len(piece) for piece in mine]))
        return steps

    @override
    def skip(self, steps: int) -> None:
        batches, rest = divmod(steps, self._workers)
        self._reader.skip(batches)
        super().skip(rest)


@final
class RowStream(Steps):
    """The rows in shares of the given sizes, in turn."""

    def __init__(self, reader: Reader, sizes: list[int], local: int, whole_batches: int | None):
        """
        Args:
          reader: of batches.
          sizes: of the shares of all replicas, this worker's first ones first.
          local: how many of them make a step of this worker.
          whole_batches: the size of all batches but the last, if it is known.
        """
        self._batches = reader
        self._rows = Peekable(Pulled(unbatched(reader, WHAT), reader))
        self._steps = [sizes[i : i + local] for i in range(0, len(sizes), local)]
        self._next = 0
        self._whole_batches = whole_batches

    @override
    def next_step(self) -> Step | None:
        sizes = self._steps[self._next]
        self._next = (self._next + 1) % len(self._steps)
        if sum(sizes) == 0 and self._rows.peek() is not None:
            return Step(EMPTY, sizes)  # there are fewer rows than replicas, and not yet for these
        rows = take_all(self._rows, sum(sizes))
        left = len(rows)
        if left == 0:
            return None
        if left < sum(sizes):
            ends = np.minimum(np.cumsum(sizes), left).tolist()
            sizes = [end - start for start, end in zip([0, *ends], ends)]
        return Step(rows, sizes)

    @override
    def skip(self, steps: int) -> None:
        around, rest = divmod(steps, len(self._steps))
        rows = around * sum(map(sum, self._steps)) + sum(map(sum, self._steps[:rest]))
        self._next = rest
        if self._whole_batches:
            whole, rows = divmod(rows, self._whole_batches)
            self._batches.skip(whole)
        self._rows.skip(rows)

    @override
    def close(self) -> None:
        self._rows.close()


@final
class Successive(Steps):
    """Whole elements: each replica takes the next one, of a reader of its own or of a shared one.

    Here the rows of a step are elements, one or none for each replica.
    """

    def __init__(self, readers: list[Reader], local: int, whole_steps_only: bool):
        self._readers = readers
        self._local = local
        self._whole_steps_only = whole_steps_only

    @override
    def next_step(self) -> Step | None:
        shares = [self._readers[i % len(self._readers)].take(1) for i in range(self._local)]
        sizes = [len(share) for share in shares]
        if not any(sizes) or (self._whole_steps_only and not all(sizes)):
            return None
        return Step(concatenate(shares), sizes)

    @override
    def skip(self, steps: int) -> None:
        per_reader = self._local // len(self._readers)
        for reader in self._readers:
            reader.skip(steps * per_reader)

    @override
    def close(self) -> None:
        for reader in self._readers:
            reader.close()
