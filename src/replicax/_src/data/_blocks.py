"""Blocks: some consecutive elements of a data set that are not computed yet.

Shuffling, taking, sharding, batching and splitting over replicas only rearrange blocks, which is to
say indices. What an element is made of (gathering rows, parsing records, the functions of `map`)
happens when somebody asks for `rows()` or `stacked()`, and so only for elements that are used
here: a worker that reads a part of the data does the work for that part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, final

import numpy as np

from replicax._src._arrays import STRING
from replicax._src._typing import override
from replicax._src.data._elements import (
    Allocate,
    Element,
    Leaf,
    ShapesDiffer,
    Structure,
    read_only,
    refuse_sparse,
    stack,
)
from replicax._src.records import RecordArray, Records

Indices = Any  # a slice, a range, or an array of integers


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

    def stacked(self, allocate: Allocate | None = None) -> Any:
        """Returns all elements as one: every leaf gets a first dimension, the length of the block.

        Args:
          allocate: if given, all numbers are in new arrays that it made.
        """
        rows = self.rows()
        refuse_sparse(rows[0], "batch()")
        structure = Structure(rows[0])
        return structure.build([stack(column, allocate) for column in structure.columns(rows)])


@final
class Rows(Block):
    """Rows of arrays in memory, by number."""

    __slots__ = ("indices", "table")

    def __init__(self, table: Table, indices: range | np.ndarray):
        self.table = table
        self.indices = indices

    @override
    def __len__(self) -> int:
        return len(self.indices)

    @override
    def select(self, indices: Indices) -> Rows:
        return Rows(self.table, pick(self.indices, indices))

    @override
    def rows(self) -> list[Any]:
        columns, build = self.table.columns, self.table.structure.build
        return [build([column[index] for column in columns]) for index in self.indices]

    @override
    def stacked(self, allocate: Allocate | None = None) -> Any:
        indices = self.indices
        return self.table.structure.build(
            [gather(column, indices, allocate or np.empty) for column in self.table.columns]
        )


class Table:
    """Arrays with one row for each element."""

    __slots__ = ("columns", "structure")

    def __init__(self, columns: Sequence[np.ndarray], structure: Structure):
        # Rows are views of the user's array: a function of `map` that writes to one must
        # fail.
        self.columns = [read_only(column) for column in columns]
        self.structure = structure


def pick(held: range | np.ndarray, indices: Indices) -> range | np.ndarray:
    """Returns `held[indices]`, where either may be a range."""
    if isinstance(indices, slice) or isinstance(held, np.ndarray):
        if isinstance(indices, range):
            indices = np.arange(indices.start, indices.stop, indices.step)
        return held[indices]
    if isinstance(indices, range):
        return range(held[0], held[0], held.step)[:0] if not indices else held[as_slice(indices)]
    return held.start + held.step * np.asarray(indices)


def as_slice(indices: range) -> slice:
    stop: int | None = indices.stop
    if indices.step < 0 and indices.stop < 0:
        stop = None
    return slice(indices.start, stop, indices.step)


def gather(column: np.ndarray, indices: range | np.ndarray, allocate: Allocate) -> np.ndarray:
    """Returns a new array of these rows."""
    new = allocate((len(indices), *column.shape[1:]), column.dtype)
    if isinstance(indices, range):
        new[:] = column[as_slice(indices)] if indices else column[:0]
    elif len(column):
        # The indices are right; with mode="raise", NumPy would write into a buffer first.
        column.take(indices, 0, new, "clip")
    return new


@final
class Counted(Block):
    """Consecutive integers."""

    __slots__ = ("dtype", "numbers")

    def __init__(self, numbers: range | np.ndarray, dtype: np.dtype):
        self.numbers = numbers
        self.dtype = dtype

    @override
    def __len__(self) -> int:
        return len(self.numbers)

    @override
    def select(self, indices: Indices) -> Counted:
        return Counted(pick(self.numbers, indices), self.dtype)

    @override
    def rows(self) -> list[Any]:
        return list(self.stacked())

    @override
    def stacked(self, allocate: Allocate | None = None) -> np.ndarray:
        new = (allocate or np.empty)((len(self.numbers),), self.dtype)
        numbers = self.numbers
        if isinstance(numbers, range):
            numbers = np.arange(numbers.start, numbers.stop, numbers.step)
        new[:] = numbers
        return new


class Held(Block):
    """Elements that are there already."""

    __slots__ = ("elements",)

    def __init__(self, elements: Sequence[Any]):
        self.elements = elements

    @override
    def __len__(self) -> int:
        return len(self.elements)

    @override
    def select(self, indices: Indices) -> Self:
        if isinstance(indices, slice):
            return type(self)(self.elements[indices])
        if isinstance(indices, np.ndarray):
            indices = indices.tolist()
        return type(self)([self.elements[index] for index in indices])

    @override
    def rows(self) -> list[Any]:
        return list(self.elements)


@final
class RecordRows(Block):
    """Records of a file, which stay in the bytes that were read."""

    __slots__ = ("records",)

    def __init__(self, records: Records):
        self.records = records

    @override
    def __len__(self) -> int:
        return len(self.records)

    @override
    def select(self, indices: Indices) -> RecordRows:
        if isinstance(indices, range):
            indices = as_slice(indices) if indices else slice(0, 0)
        return RecordRows(self.records.select(indices))

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
class Zipped(Block):
    """Elements of several data sets, side by side."""

    __slots__ = ("parts", "structure")

    def __init__(self, parts: Sequence[Block], structure: Structure):
        self.parts = parts
        self.structure = structure

    @override
    def __len__(self) -> int:
        return len(self.parts[0])

    @override
    def select(self, indices: Indices) -> Zipped:
        return Zipped([part.select(indices) for part in self.parts], self.structure)

    @override
    def rows(self) -> list[Any]:
        return [self.structure.build(row) for row in zip(*[part.rows() for part in self.parts])]

    @override
    def detached(self) -> Zipped:
        return Zipped([part.detached() for part in self.parts], self.structure)

    @override
    def stacked(self, allocate: Allocate | None = None) -> Any:
        return self.structure.build([part.stacked(allocate) for part in self.parts])


@final
class Mapped(Block):
    """A function of the elements of another block."""

    __slots__ = ("function", "inner")

    def __init__(self, function: ElementFunction, inner: Block):
        self.function = function
        self.inner = inner

    @override
    def __len__(self) -> int:
        return len(self.inner)

    @override
    def select(self, indices: Indices) -> Mapped:
        return Mapped(self.function, self.inner.select(indices))

    @override
    def rows(self) -> list[Any]:
        return self.function.rows(self.inner) if len(self.inner) else []

    @override
    def detached(self) -> Mapped:
        return Mapped(self.function, self.inner.detached())

    @override
    def stacked(self, allocate: Allocate | None = None) -> Any:
        if not self.function.whole_blocks:
            return super().stacked(allocate)
        element = self.function.stacked(self.inner)
        return element if allocate is None else copied(element, allocate)


class ElementFunction:
    """What `map` applies, one by one or to whole blocks. See `_mapping.py`."""

    whole_blocks = False

    def rows(self, block: Block) -> list[Any]:
        raise NotImplementedError

    def stacked(self, block: Block) -> Any:
        raise NotImplementedError


@final
class Batched(Block):
    """Batches of `size` consecutive elements of another block."""

    __slots__ = ("inner", "size")

    def __init__(self, inner: Block, size: int):
        self.inner = inner
        self.size = size

    @override
    def __len__(self) -> int:
        return len(self.inner) // self.size

    @override
    def select(self, indices: Indices) -> Batched:
        size = self.size
        if isinstance(indices, slice):
            indices = range(len(self))[indices]
        if isinstance(indices, range) and indices.step == 1:
            return Batched(
                self.inner.select(slice(indices.start * size, indices.stop * size)), size
            )
        starts = np.asarray(indices, np.int64)[:, None] * size
        return Batched(self.inner.select((starts + np.arange(size)).ravel()), size)

    @override
    def detached(self) -> Batched:
        return Batched(self.inner.detached(), self.size)

    @override
    def rows(self) -> list[Any]:
        if len(self) == 1:
            return [stacked_batch(self.inner)]
        size = self.size
        return [
            stacked_batch(self.inner.select(slice(start, start + size)))
            for start in range(0, len(self.inner), size)
        ]


def stacked_batch(block: Block) -> Any:
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
class Columns(Block):
    """Rows of arrays that were computed for this block alone: what a batch is made of."""

    __slots__ = ("columns", "structure")

    def __init__(self, columns: Sequence[np.ndarray], structure: Structure):
        self.columns = columns
        self.structure = structure

    @override
    def __len__(self) -> int:
        return len(self.columns[0])

    @override
    def select(self, indices: Indices) -> Columns:
        if isinstance(indices, range):
            indices = as_slice(indices) if indices else slice(0, 0)
        return Columns([column[indices] for column in self.columns], self.structure)

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
class Broken(Block):
    """In the place of an element that could not be made: who wants it gets the error."""

    __slots__ = ("error",)

    def __init__(self, error: Exception):
        self.error = error

    @override
    def __len__(self) -> int:
        return 1

    @override
    def select(self, indices: Indices) -> Block:
        if isinstance(indices, slice):
            indices = range(1)[indices]
        return self if len(indices) else EMPTY

    @override
    def rows(self) -> list[Any]:
        raise self.error


EMPTY = Held(())
