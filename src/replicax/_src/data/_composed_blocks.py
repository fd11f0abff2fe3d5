"""Blocks that are made of other blocks: side by side, mapped, batched, in a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from replicax._src._typing import override
from replicax._src.data._blocks import EMPTY, Block, Held, Indices, copied
from replicax._src.data._elements import Allocate, ShapesDiffer, Structure
from replicax._src.records import RecordArray


@final
@dataclass(slots=True, eq=False)
class Zipped(Block):
    """Elements of several data sets, side by side."""

    parts: Sequence[Block]
    structure: Structure

    @override
    def __len__(self) -> int:
        return len(self.parts[0])

    @override
    def select(self, indices: Indices) -> Zipped:
        return Zipped([part.select(indices) for part in self.parts], self.structure)

    @override
    def joined(self, blocks: Sequence[Zipped]) -> Zipped | None:
        if any(block.structure is not self.structure for block in blocks):
            return None
        parts = zip(*[block.parts for block in blocks])
        return Zipped([concatenate(part) for part in parts], self.structure)

    @override
    def rows(self) -> list[Any]:
        return [self.structure.build(row) for row in zip(*[part.rows() for part in self.parts])]

    @override
    def detached(self) -> Zipped:
        return Zipped([part.detached() for part in self.parts], self.structure)

    @override
    def stacked(self, allocate: Allocate | None = None) -> Any:
        return self.structure.build([part.stacked(allocate) for part in self.parts])


class ElementFunction:
    """What `map` applies, one by one or to whole blocks. See `_mapping.py`."""

    whole_blocks = False

    def rows(self, block: Block) -> list[Any]:
        raise NotImplementedError

    def stacked(self, block: Block) -> Any:
        raise NotImplementedError


@final
@dataclass(slots=True, eq=False)
class Mapped(Block):
    """A function of the elements of another block."""

    function: ElementFunction
    inner: Block

    @override
    def __len__(self) -> int:
        return len(self.inner)

    @override
    def select(self, indices: Indices) -> Mapped:
        return Mapped(self.function, self.inner.select(indices))

    @override
    def joined(self, blocks: Sequence[Mapped]) -> Mapped | None:
        if any(block.function is not self.function for block in blocks):
            return None
        return Mapped(self.function, concatenate([block.inner for block in blocks]))

    @override
    def rows(self) -> list[Any]:
        return self.function.rows(self.inner) if len(self.inner) else []

    @override
    def detached(self) -> Mapped:
        return Mapped(self.function, self.inner.detached())

    @override
    def stacked(self, allocate: Allocate | None = None) -> Any:
        if not self.function.whole_blocks:
            return Block.stacked(self, allocate)
        element = self.function.stacked(self.inner)
        return element if allocate is None else copied(element, allocate)


@final
@dataclass(slots=True, eq=False)
class Batched(Block):
    """Batches of `size` consecutive elements of another block."""

    inner: Block
    size: int

    @override
    def __len__(self) -> int:
        return len(self.inner) // self.size

    @override
    def select(self, indices: Indices) -> Batched:
        size = self.size
        if isinstance(indices, slice):
            chosen = range(len(self))[indices]
            if chosen.step == 1:
                inner = self.inner.select(slice(chosen.start * size, chosen.stop * size))
                return Batched(inner, size)
            indices = np.asarray(chosen, np.int64)
        starts = indices[:, None] * size
        return Batched(self.inner.select((starts + np.arange(size)).ravel()), size)

    @override
    def joined(self, blocks: Sequence[Batched]) -> Batched | None:
        if any(block.size != self.size for block in blocks):
            return None
        return Batched(concatenate([block.inner for block in blocks]), self.size)

    @override
    def detached(self) -> Batched:
        return Batched(self.inner.detached(), self.size)

    @override
    def rows(self) -> list[Any]:
        if len(self) == 1:
            return [_stacked_batch(self.inner)]
        size = self.size
        return [
            _stacked_batch(self.inner.select(slice(start, start + size)))
            for start in range(0, len(self.inner), size)
        ]


def _stacked_batch(block: Block) -> Any:
    """Returns `block.stacked()` for `batch`."""
    try:
        return block.stacked()
    except ShapesDiffer as error:
        raise ValueError(
            f"batch() puts elements into one array, but their shapes or dtypes differ: "
            f"{error.descriptions}. Make them alike in map(), or use padded_batch(), which fills "
            "up to the longest."
        ) from None


@final
@dataclass(slots=True, eq=False)
class Joined(Block):
    """Elements of blocks of different kinds: the last batch, which is smaller, among the others.

    Attributes:
      parts: the blocks.
      which: for each element, the block that it is in.
      indices: and its place there.
    """

    parts: Sequence[Block]
    which: np.ndarray
    indices: np.ndarray

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> Joined:
        parts: list[Block] = []
        which: list[np.ndarray] = []
        indices: list[np.ndarray] = []
        for block in blocks:
            if isinstance(block, Joined):
                which.append(block.which + len(parts))
                indices.append(block.indices)
                parts += block.parts
            else:
                which.append(np.full(len(block), len(parts)))
                indices.append(np.arange(len(block)))
                parts.append(block)
        return cls(parts, np.concatenate(which), np.concatenate(indices))

    @override
    def __len__(self) -> int:
        return len(self.which)

    @override
    def select(self, indices: Indices) -> Block:
        which, places = self.which[indices], self.indices[indices]
        used = np.unique(which)
        if len(used) == 1:
            return self.parts[used[0]].select(places)
        # Blocks of which nothing is left must not be kept.
        return Joined([self.parts[i] for i in used], np.searchsorted(used, which), places)

    @override
    def detached(self) -> Joined:
        return Joined([part.detached() for part in self.parts], self.which, self.indices)

    @override
    def rows(self) -> list[Any]:
        rows: list[Any] = [None] * len(self)
        for number, part in enumerate(self.parts):
            (mine,) = np.nonzero(self.which == number)
            for place, row in zip(mine.tolist(), part.select(self.indices[mine]).rows()):
                rows[place] = row
        return rows

    @override
    def stacked(self, allocate: Allocate | None = None) -> Any:
        placed = [np.nonzero(self.which == number)[0] for number in range(len(self.parts))]
        chosen = [part.select(self.indices[mine]) for part, mine in zip(self.parts, placed)]
        if any(type(part) is Held or len(part) < 8 for part in chosen):
            return Block.stacked(self, allocate)  # row by row is as fast
        elements = [part.stacked() for part in chosen]
        structure = Structure(elements[0])
        return structure.build(
            [
                _scattered(column, placed, len(self), allocate or np.empty)
                for column in structure.columns(elements)
            ]
        )


def _scattered(
    parts: Sequence[np.ndarray], placed: Sequence[np.ndarray], count: int, allocate: Allocate
) -> np.ndarray:
    """Returns one array of the rows of several, which go to these places."""
    first = parts[0]
    if any(part.shape[1:] != first.shape[1:] or part.dtype != first.dtype for part in parts):
        raise ShapesDiffer([part[0] for part in parts])
    new = allocate((count, *first.shape[1:]), first.dtype)
    for part, places in zip(parts, placed):
        new[places] = np.array(part, object) if isinstance(part, RecordArray) else part
    return new


_MOST_PARTS = 32  # in one block, before they are computed after all


def concatenate(blocks: Sequence[Block]) -> Block:
    """Returns one block of the elements of several; where of one kind, still not computed."""
    blocks = [block for block in blocks if len(block)]
    if len(blocks) < 2:
        return blocks[0] if blocks else EMPTY
    first = blocks[0]
    if all(type(block) is type(first) for block in blocks):
        joined = first.joined(blocks)
        if joined is not None:
            return joined
    parts = sum(len(block.parts) if isinstance(block, Joined) else 1 for block in blocks)
    if parts <= _MOST_PARTS:
        return Joined.of(blocks)
    return Held([element for block in blocks for element in block.rows()])
