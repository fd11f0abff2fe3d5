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
