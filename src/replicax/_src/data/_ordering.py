"""Which elements, and in which order: shuffle, repeat, take, skip, shard."""

from __future__ import annotations

import dataclasses
import sys
from typing import final

import numpy as np

from replicax._src._typing import override
from replicax._src.data._blocks import EMPTY, Block, Counted
from replicax._src.data._composed_blocks import Zipped, concatenate
from replicax._src.data._elements import Structure
from replicax._src.data._node import (
    INFINITE,
    UNKNOWN,
    OneInput,
    Reader,
    ReaderOfOne,
    Seeded,
    Slices,
    take_all,
    walk,
)
from replicax._src.data._run import Run, draw


@final
class Shuffle(Seeded, OneInput, keeps_elements=True, reorders=True):
    """A random order, as far as a buffer of `buffer_size` elements allows it.

    TensorFlow's algorithm: fill the buffer; then, again and again, hand out one of it and put the
    next element in its place. Over a buffer that holds everything, that is a permutation.
    """

    buffer_size: int  # UNKNOWN for everything
    seed: int | None
    reshuffle_each_iteration: bool
    drawn: int = dataclasses.field(default_factory=draw)

    @override
    def open(self, run: Run) -> Reader:
        random = self.random(run, not self.reshuffle_each_iteration)
        size = self.buffer_size
        if self.input.cardinality >= 0:
            size = min(size, self.input.cardinality) if size > 0 else self.input.cardinality
        # A part of the buffer at a time: rearranging it costs as much as it is large.
        more = max(size // 4, 256)
        if any(each.pulls_user_code for each in walk(self.input)):
            # Elements that are made one by one: do not wait for many of them.
            more = max(size // 64, min(64, size // 4), 1)
        return ShuffleReader(self.input.open(run), size, more, random)

    @override
    def details(self) -> str:
        size = "everything" if self.buffer_size == UNKNOWN else f"buffer {self.buffer_size}"
        seed = f", seed {self.seed}" if self.seed is not None else ""
        return size + seed + ("" if self.reshuffle_each_iteration else ", always the same")


@final
class ShuffleReader(ReaderOfOne):
    """One walk in random order."""

    def __init__(self, reader: Reader, size: int, more: int, random: np.random.Generator):
        super().__init__(reader)
        self._size = size
        self._more = more  # how many elements to exchange at a time
        self._random = random
        self._pool: Block | None = None
        self._ready = Slices(EMPTY)  # shuffled elements that were not asked for yet
        self._ended = False

    @override
    def take(self, count: int) -> Block:
        block = self._ready.take(count)
        if len(block) == 0 and not self._ended:
            self._shuffle_more()
            block = self._ready.take(count)
        return block

    @override
    def skip(self, count: int) -> int:
        skipped = self._ready.skip(count)
        while skipped < count and not self._ended:
            self._shuffle_more()
            skipped += self._ready.skip(count - skipped)
        return skipped

    def _shuffle_more(self) -> None:
        pool = self._pool
        if pool is None:
            pool = _read(self._reader, self._size).detached()
        size = len(pool)
        more = EMPTY
        if size == self._size:
            more = take_all(self._reader, self._more).detached()
        if len(more) == 0:
            self._ended = True
            self._ready, self._pool = Slices(pool.select(self._random.permutation(size))), EMPTY
            return
        slots = self._random.integers(size, size=len(more)).tolist()
        held = list(range(size))  # positions in pool + more
        chosen: list[int] = []
        for new, slot in enumerate(slots, start=size):
            chosen.append(held[slot])
            held[slot] = new
        both = concatenate([pool, more])
        self._ready = Slices(both.select(np.array(chosen)))
        self._pool = both.select(np.array(held))


def _read(reader: Reader, size: int) -> Block:
    if size >= 0:
        return take_all(reader, size)
    blocks = [reader.take(65536)]
    while len(blocks[-1]):
        blocks.append(reader.take(65536))
    return concatenate(blocks)


@final
class Repeat(OneInput):
    """The elements again and again: `count` times, or forever if it is negative."""

    count: int

    @override
    def open(self, run: Run) -> Reader:
        return RepeatReader(self, run)

    @override
    def _cardinality(self) -> int:
        size = self.input.cardinality
        if self.count == 0 or size == 0:
            return 0
        if self.count < 0:
            return INFINITE
        return size * self.count if size >= 0 else size

    @override
    def details(self) -> str:
        return "forever" if self.count < 0 else f"{self.count} times"


@final
class RepeatReader(Reader):
    """One walk over all repetitions."""

    def __init__(self, node: Repeat, run: Run):
        self._node = node
        self._run = run
        self._epoch = 0
        self._in_epoch = 0  # elements of this repetition that are taken
        self._failed = False
        self._reader: Reader | None = None

    @override
    def take(self, count: int) -> Block:
        while not self._failed and self._open():
            try:
                block = self._reader.take(count)  # type: ignore[union-attr]
            except Exception:
                self._failed = True  # the rest of the repetition is not to be left out silently
                raise
            if len(block):
                self._in_epoch += len(block)
                return block
            if not self._next_epoch():
                break
        return EMPTY

    def _open(self) -> bool:
        if self._reader is None and self._epoch != self._node.count:
            self._reader = self._node.input.open(self._run.in_epoch(self._epoch))
        return self._reader is not None

    def _next_epoch(self) -> bool:
        """Returns whether there may be more after the end of a repetition."""
        if self._in_epoch == 0:  # nothing to repeat
            self._epoch = self._node.count if self._node.count >= 0 else self._epoch
            return False
        self.close()
        self._epoch += 1
        self._in_epoch = 0
        return True

    @override
    def skip(self, count: int) -> int:
        size = self._node.input.cardinality
        left = count
        while left and self._open():
            if size > 0 and self._in_epoch + left >= size:
                left -= size - self._in_epoch  # the rest of this repetition, and whole ones
                whole = left // size
                if self._node.count >= 0:
                    whole = min(whole, self._node.count - self._epoch - 1)
                left -= whole * size
                self.close()
                self._epoch += 1 + whole
                self._in_epoch = 0
                continue
            skipped = self._reader.skip(left)  # type: ignore[union-attr]
            left -= skipped
            self._in_epoch += skipped
            if left and not self._next_epoch():
                break
        return count - left

    @override
    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


@final
class Take(OneInput):
    """The first `count` elements."""

    count: int

    @override
    def open(self, run: Run) -> Reader:
        return PartReader(self.input.open(run), 0, self.count)

    @override
    def _cardinality(self) -> int:
        size = self.input.cardinality
        if size == UNKNOWN:
            return UNKNOWN
        return self.count if size == INFINITE else min(size, self.count)

    @override
    def details(self) -> str:
        return str(self.count)


@final
class Skip(OneInput):
    """All but the first `count` elements."""

    count: int

    @override
    def open(self, run: Run) -> Reader:
        return PartReader(self.input.open(run), self.count, sys.maxsize)

    @override
    def _cardinality(self) -> int:
        size = self.input.cardinality
        return max(size - self.count, 0) if size >= 0 else size

    @override
    def details(self) -> str:
        return str(self.count)


@final
class PartReader(ReaderOfOne):
    """A walk over at most `count` elements, from number `start` on."""

    def __init__(self, reader: Reader, start: int, count: int):
        super().__init__(reader)
        self._start = start
        self._left = count

    @override
    def take(self, count: int) -> Block:
        if self._start:
            self._begin()
        if self._left == 0:
            return EMPTY
        block = self._reader.take(min(count, self._left))
        self._left -= len(block)
        return block

    @override
    def skip(self, count: int) -> int:
        if self._start:
            self._begin()
        skipped = self._reader.skip(min(count, self._left))
        self._left -= skipped
        return skipped

    def _begin(self) -> None:
        start, self._start = self._start, 0
        self._reader.skip(start)


@final
class Shard(OneInput):
    """Every `num_shards`-th element, from `index` on. The hint is put in by auto-sharding."""

    num_shards: int
    index: int

    @override
    def open(self, run: Run) -> Reader:
        if self.num_shards < 0:
            if run.is_preview:
                return self.input.open(run)
            raise ValueError(
                "shard(SHARD_HINT, SHARD_HINT) has no meaning before the data set is distributed, "
                "with AutoShardPolicy.HINT in its options."
            )
        return ShardReader(self.input.open(run), self.num_shards, self.index)

    @override
    def _cardinality(self) -> int:
        size = self.input.cardinality
        if size < 0 or self.num_shards < 0:
            return size
        return len(range(self.index, size, self.num_shards))

    @override
    def details(self) -> str:
        if self.num_shards < 0:
            return "as auto-sharding says (SHARD_HINT)"
        return f"{self.index} of {self.num_shards}"


@final
class ShardReader(ReaderOfOne):
    """A walk over every n-th element."""

    def __init__(self, reader: Reader, num_shards: int, index: int):
        super().__init__(reader)
        self._shards = num_shards
        self._gap = index  # elements before the next one that is ours

    @override
    def take(self, count: int) -> Block:
        shards = self._shards
        while True:
            block = self._reader.take(self._gap + (count - 1) * shards + 1)
            if len(block) == 0:
                return EMPTY
            ours = range(self._gap, len(block), shards)
            if not ours:
                self._gap -= len(block)
                continue
            self._gap = ours[-1] + shards - len(block)
            return block.select(slice(ours.start, ours.stop, shards))

    @override
    def skip(self, count: int) -> int:
        if count == 0:
            return 0
        gone = self._reader.skip(self._gap + (count - 1) * self._shards + 1)
        ours = range(self._gap, gone, self._shards)
        self._gap = (ours[-1] + self._shards if ours else self._gap) - gone
        return len(ours)


@final
class EnumerateReader(ReaderOfOne):
    """A walk that counts."""

    _pair = Structure((0, 0))

    def __init__(self, reader: Reader, start: int):
        super().__init__(reader)
        self._next = start

    @override
    def take(self, count: int) -> Block:
        block = self._reader.take(count)
        numbers = range(self._next, self._next + len(block))
        self._next = numbers.stop
        return Zipped([Counted(np.dtype(np.int64), numbers), block], self._pair)

    @override
    def skip(self, count: int) -> int:
        skipped = self._reader.skip(count)
        self._next += skipped
        return skipped
