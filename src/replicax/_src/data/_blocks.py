"""Blocks: some consecutive elements of a data set that are not computed yet.

Shuffling, taking, sharding, batching and splitting over replicas only rearrange blocks, which is to
say indices. What an element is made of (gathering rows, parsing records, the functions of `map`)
happens when somebody asks for `rows()` or `stacked()`, and so only for elements that are used
here: a worker that reads a part of the data does the work for that part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar, final

import numpy as np

from replicax._src._arrays import STRING
from replicax._src._typing import override
from replicax._src.data._elements import (
    Allocate,
    Element,
    Leaf,
    ShapesDiffer,
    Structure,
    object_array,
    read_only,
    refuse_sparse,
    stack,
)
from replicax._src.records import RecordArray, Records

Indices = slice | np.ndarray
Source = TypeVar("Source")


class Block:
    """Some elements in a row."""

    __slots__ = ()

    def __len__(self) -> int:
        raise NotImplementedError

    def select(self, indices: Indices) -> Block:
        """Returns the elements at these positions."""
        raise NotImplementedError

    def rows(self) -> list[Any]:
        """Returns the elements, one by one. Not to be written to."""
        raise NotImplementedError

    def detached(self) -> Block:
        """Returns the same elements, to be held for long: they keep nothing else in memory."""
        return self

    def joined(self, blocks: Sequence[Self]) -> Block | None:
        """Returns one block of several of this class, not computed; None if they do not fit."""
        return None

    def stacked(self, allocate: Allocate | None = None) -> Any:
        """Returns all elements as one: every leaf gets a first dimension, the length of the block.

        Args:
          allocate: if given, all numbers are in new arrays that it made.
        """
        rows = self.rows()
        if type(rows[0]) is bytes and len(set(map(type, rows))) == 1:
            return object_array(rows)
        refuse_sparse(rows[0], "batch()")
        structure = Structure(rows[0])
        return structure.build([stack(column, allocate) for column in structure.columns(rows)])


@dataclass(slots=True, eq=False)
class Numbered(Block, Generic[Source]):
    """Elements of a source that has them by number."""

    source: Source
    indices: range | np.ndarray

    @override
    def __len__(self) -> int:
        return len(self.indices)

    @override
    def select(self, indices: Indices) -> Self:
        held = self.indices
        if isinstance(indices, slice):
            chosen = held[indices]
        elif isinstance(held, np.ndarray):
            chosen = held[indices]
        elif held.start == 0 and held.step == 1:  # as of a whole table that is shuffled
            chosen = indices
        else:
            chosen = held.start + held.step * indices
        return type(self)(self.source, chosen)

    @override
    def joined(self, blocks: Sequence[Self]) -> Self | None:
        if any(block.source != self.source for block in blocks):
            return None
        parts = [np.asarray(block.indices, np.int64) for block in blocks]
        return type(self)(self.source, np.concatenate(parts))


class Table:
    """Arrays with one row for each element."""

    __slots__ = ("columns", "structure")

    def __init__(self, columns: Sequence[np.ndarray], structure: Structure):
        # Rows are views of the user's array: a function of `map` that writes to one must
        # fail.
        self.columns = [read_only(column) for column in columns]
        self.structure = structure


@final
class Rows(Numbered[Table]):
    """Rows of arrays in memory."""

    __slots__ = ()

    @override
    def rows(self) -> list[Any]:
        columns, build = self.source.columns, self.source.structure.build
        return [build([column[index] for column in columns]) for index in self.indices]

    @override
    def stacked(self, allocate: Allocate | None = None) -> Any:
        indices = self.indices
        return self.source.structure.build(
            [_gather(column, indices, allocate or np.empty) for column in self.source.columns]
        )


def as_slice(indices: range) -> slice:
    stop: int | None = indices.stop
    if indices.step < 0 and indices.stop < 0:
        stop = None
    return slice(indices.start, stop, indices.step)


def _gather(column: np.ndarray, indices: range | np.ndarray, allocate: Allocate) -> np.ndarray:
    """Returns a new array of these rows."""
    new = allocate((len(indices), *column.shape[1:]), column.dtype)
    if isinstance(indices, range):
        new[:] = column[as_slice(indices)] if indices else column[:0]
    elif len(column):
        # The indices are right; with mode="raise", NumPy would write into a buffer first.
        column.take(indices, 0, new, "clip")
    return new


@final
class Counted(Numbered[np.dtype]):
    """The indices themselves, as numbers of a dtype."""

    __slots__ = ()

    @override
    def rows(self) -> list[Any]:
        return list(self.stacked())

    @override
    def stacked(self, allocate: Allocate | None = None) -> np.ndarray:
        new = (allocate or np.empty)((len(self.indices),), self.source)
        numbers = self.indices
        if isinstance(numbers, range):
            numbers = np.arange(numbers.start, numbers.stop, numbers.step)
        new[:] = numbers
        return new


@dataclass(slots=True, eq=False)
class Held(Block):
    """Elements that are there already."""

    elements: Sequence[Any]

    @override
    def __len__(self) -> int:
        return len(self.elements)

    @override
    def select(self, indices: Indices) -> Self:
        if isinstance(indices, slice):
            return type(self)(self.elements[indices])
        return type(self)([self.elements[index] for index in indices.tolist()])

    @override
    def joined(self, blocks: Sequence[Self]) -> Self:
        return type(self)([element for block in blocks for element in block.elements])

    @override
    def rows(self) -> list[Any]:
        return list(self.elements)


@final
@dataclass(slots=True, eq=False)
class RecordRows(Block):
    """Records of a file, which stay in the bytes that were read."""

    records: Records

    @override
    def __len__(self) -> int:
        return len(self.records)

    @override
    def select(self, indices: Indices) -> RecordRows:
        return RecordRows(self.records.select(indices))

    @override
    def joined(self, blocks: Sequence[RecordRows]) -> RecordRows:
        return RecordRows(Records.concatenate([block.records for block in blocks]))

    @override
    def rows(self) -> list[bytes]:
        return self.records.to_list()

    @override
    def detached(self) -> Block:
        return Held(self.rows())  # or the bytes of all other records would stay too

    @override
    def stacked(self, allocate: Allocate | None = None) -> np.ndarray:
        return RecordArray.of(self.records)


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
class Columns(Block):
    """Rows of arrays that were computed for this block alone: what a batch is made of."""

    columns: Sequence[np.ndarray]
    structure: Structure

    @override
    def __len__(self) -> int:
        return len(self.columns[0])

    @override
    def select(self, indices: Indices) -> Columns:
        return Columns([column[indices] for column in self.columns], self.structure)

    @override
    def joined(self, blocks: Sequence[Columns]) -> Columns | None:
        if any(block.structure != self.structure for block in blocks):
            return None
        columns = list(zip(*[block.columns for block in blocks]))
        if any(len({(part.shape[1:], part.dtype) for part in column}) > 1 for column in columns):
            return None
        return Columns([np.concatenate(column) for column in columns], self.structure)

    @override
    def rows(self) -> list[Any]:
        return [self.structure.build(row) for row in zip(*self.columns)]

    @override
    def stacked(self, allocate: Allocate | None = None) -> Any:
        element = self.structure.build(self.columns)
        return element if allocate is None else copied(element, allocate)


def copied(element: Element, allocate: Allocate) -> Any:
    """Returns the same element in new arrays; text is not copied."""
    structure = Structure(element)

    def copy(leaf: Leaf) -> Any:
        if not isinstance(leaf, np.ndarray) or leaf.dtype == STRING:
            return leaf
        new = allocate(leaf.shape, leaf.dtype)
        new[...] = leaf
        return new

    return structure.build([copy(leaf) for leaf in structure.leaves(element)])


@final
@dataclass(slots=True, eq=False)
class Broken(Block):
    """In the place of an element that could not be made: reading it raises the error."""

    error: Exception

    @override
    def __len__(self) -> int:
        return 1

    @override
    def select(self, indices: Indices) -> Block:
        return self if len(np.arange(1)[indices]) else EMPTY

    @override
    def rows(self) -> list[Any]:
        raise self.error


EMPTY = Held(())


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
