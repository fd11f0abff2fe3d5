"""Elements into batches and back: batch, padded_batch, unbatch, rebatch, window."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Sequence
from typing import Any, final

import numpy as np

from replicax._src._arrays import STRING
from replicax._src._tensor_spec import Shape, TensorSpec
from replicax._src._typing import override
from replicax._src.data._blocks import EMPTY, Block, Broken, Columns, Held
from replicax._src.data._composed_blocks import Batched, concatenate
from replicax._src.data._elements import (
    Element,
    Structure,
    leaves_with_names,
    map_leaves,
    refuse_sparse,
)
from replicax._src.data._node import (
    INFINITE,
    UNKNOWN,
    DatasetSpec,
    Generated,
    Node,
    OneInput,
    Peekable,
    Pulled,
    Reader,
    ReaderOfOne,
    batched_spec,
    take_all,
)
from replicax._src.data._ordering import Repeat
from replicax._src.data._run import Run
from replicax._src.data._sources import BlockNode, OneElement, TensorSlices


class OfSize(OneInput, stacks_elements=True):
    """An operation that makes one element of `batch_size` of them."""

    batch_size: int
    drop_remainder: bool

    @override
    def _cardinality(self) -> int:
        return batches_of(self.input.cardinality, self.batch_size, self.drop_remainder)


@final
class Batch(OfSize):
    """`batch_size` elements as one."""

    @override
    def open(self, run: Run) -> Reader:
        return BatchReader(self.input.open(run), self.batch_size, self.drop_remainder)

    @override
    def _spec(self) -> Any:
        return batched_spec(self.input.spec, self.batch_size if self.drop_remainder else None)

    @override
    def details(self) -> str:
        return f"{self.batch_size}, drop_remainder" if self.drop_remainder else f"{self.batch_size}"


def batches_of(elements: int, size: int, drop_remainder: bool) -> int:
    if elements < 0:
        return elements
    return elements // size if drop_remainder else -(-elements // size)


@final
class BatchReader(ReaderOfOne):
    """A walk in batches."""

    def __init__(self, reader: Reader, size: int, drop_remainder: bool):
        super().__init__(reader)
        self._size = size
        self._drop_remainder = drop_remainder
        self._partial: Block = EMPTY

    @override
    def take(self, count: int) -> Block:
        if len(self._partial):
            last, self._partial = self._partial, EMPTY
            return Batched(last, len(last))
        block = take_all(self._reader, count * self._size)
        extra = len(block) % self._size
        if extra == 0:
            return Batched(block, self._size)
        whole = len(block) - extra
        if not self._drop_remainder:
            self._partial = block.select(slice(whole, len(block)))
        if whole:
            return Batched(block.select(slice(0, whole)), self._size)
        return self.take(count)

    @override
    def skip(self, count: int) -> int:
        gone = self._reader.skip(count * self._size)
        extra = gone % self._size
        if len(self._partial) and gone < count * self._size:
            self._partial = EMPTY
            return 1
        return gone // self._size + (1 if extra and not self._drop_remainder else 0)


@final
class PaddedBatch(OfSize, Generated):
    """`batch_size` elements as one, each filled up to the longest of them."""

    padded_shapes: Any  # a structure of tuples (None: the longest), or None for all
    padding_values: Any  # a structure of numbers, or None for zeros

    @override
    def _blocks(self, reader: Reader, run: Run) -> Generator[Block]:
        while len(block := take_all(reader, self.batch_size)):
            if self.drop_remainder and len(block) < self.batch_size:
                return
            yield or_broken(lambda some: Held([self._padded(some.rows())]), block)

    def _padded(self, elements: Sequence[Any]) -> Any:
        structure = Structure(elements[0])
        columns = structure.columns(elements)
        names = [name for name, _ in leaves_with_names(elements[0])]
        shapes = _spread(self.padded_shapes, len(columns))
        values = _spread(self.padding_values, len(columns))
        return structure.build(
            [
                padded_column(column, shape, value, name)
                for column, shape, value, name in zip(columns, shapes, values, names)
            ]
        )

    @override
    def _spec(self) -> Any:
        shapes = iter(_spread(self.padded_shapes, len(leaves_with_names(self.input.spec))))
        size = self.batch_size if self.drop_remainder else None

        def padded(leaf: TensorSpec) -> Any:
            wanted = next(shapes)
            if wanted is None:
                wanted = None if leaf.shape is None else leaf.shape
            return TensorSpec.on_host(None if wanted is None else (size, *wanted), leaf.dtype)

        return map_leaves(padded, self.input.spec)

    @override
    def details(self) -> str:
        return str(self.batch_size)


def _spread(given: list[Any] | None, count: int) -> list[Any]:
    return [None] * count if given is None else given


def padded_column(
    leaves: Sequence[Any],
    wanted: Shape | None,
    value: object,
    name: str,
    operation: str = "padded_batch()",
) -> np.ndarray:
    """Returns the same leaf of several elements as one array, each filled up to one shape.

    Args:
      leaves: arrays with one number of dimensions.
      wanted: the shape to fill up to; None, also in it, stands for the longest.
      value: to fill with; None for zeros, or empty text.
      name: of the leaf, for errors, as `operation` is.
    """
    arrays = [np.asarray(leaf) if not isinstance(leaf, bytes) else _text(leaf) for leaf in leaves]
    rank = arrays[0].ndim
    if any(array.ndim != rank for array in arrays):
        raise ValueError(
            f"{operation} needs elements with one number of dimensions; element{name} has "
            f"shapes {sorted({array.shape for array in arrays})}."
        )
    longest = [max(sizes) for sizes in zip(*[array.shape for array in arrays])]
    shape = (
        longest
        if wanted is None
        else [most if want is None else want for want, most in zip(wanted, longest)]
    )
    if wanted is not None and (len(wanted) != rank or any(a < b for a, b in zip(shape, longest))):
        raise ValueError(
            f"{operation} was told to fill element{name} up to {tuple(wanted)}, but one of "
            f"the elements has the shape {tuple(longest)}, which does not fit."
        )
    dtype = arrays[0].dtype
    fill: Any = (b"" if dtype == STRING else 0) if value is None else value
    batch = np.full((len(arrays), *shape), fill, dtype)
    for index, array in enumerate(arrays):
        # Without `...`, a text would be put there in the array that it is in.
        batch[(index, ..., *[slice(size) for size in array.shape])] = array
    return batch


def _text(leaf: bytes) -> np.ndarray:
    array = np.empty((), object)
    array[()] = leaf
    return array


def row_block(block: Block, what: str = "unbatch()") -> Block:
    """Returns the rows of the batches in `block`."""
    if isinstance(block, Batched):
        return block.inner
    return concatenate([rows_of(element, what) for element in block.rows()])


def rows_of(element: Element, what: str) -> Block:
    """Returns the rows of one batch."""
    refuse_sparse(element, what)
    leaves = leaves_with_names(element)
    for name, leaf in leaves:
        if not isinstance(leaf, np.ndarray) or leaf.ndim == 0:
            raise ValueError(
                f"{what} takes a data set of batches, but element{name} is a single value without "
                f"rows: {leaf!r}. Call .batch(...) first."
            )
    sizes = {len(leaf) for _, leaf in leaves}
    if len(sizes) > 1:
        found = ", ".join(f"element{name} has {len(leaf)}" for name, leaf in leaves)
        raise ValueError(
            f"{what} takes a data set of batches, whose arrays have as many rows each; but {found}."
        )
    return Columns([leaf for _, leaf in leaves], Structure(element))


@final
class Unbatch(Generated):
    """The rows of the batches."""

    @override
    def _blocks(self, reader: Reader, run: Run) -> Generator[Block]:
        return unbatched(reader)

    @override
    def _cardinality(self) -> int:
        return rows_in(self.input)

    @override
    def _spec(self) -> Any:
        def row(leaf: TensorSpec) -> Any:
            if leaf.shape is not None and not leaf.shape:
                raise ValueError(
                    f"unbatch() takes a data set of batches, but the elements are {leaf!r}, which "
                    "have no rows. Call .batch(...) first."
                )
            return TensorSpec.on_host(None if leaf.shape is None else leaf.shape[1:], leaf.dtype)

        return map_leaves(row, self.input.spec)


def unbatched(reader: Reader, what: str = "unbatch()") -> Generator[Block]:
    """Yields the rows of the batches that a reader has."""
    while len(block := reader.take(1)):
        yield or_broken(lambda batches: row_block(batches, what), block)


def or_broken(make: Callable[[Block], Block], block: Block) -> Block:
    """Returns what `make` makes of a block; the error in its place, for who wants it."""
    try:
        return make(block)
    except Exception as error:
        return Broken(error)


def rows_in(node: Node) -> int:
    """Returns how many rows a data set of batches has, where that is known."""
    if isinstance(node, OfSize):
        rows = node.input.cardinality
        return rows - rows % node.batch_size if node.drop_remainder and rows > 0 else rows
    if isinstance(node, Repeat) and node.count > 0:
        rows = rows_in(node.input)
        return rows * node.count if rows > 0 else rows
    if node.cardinality in (0, INFINITE):
        return node.cardinality
    if isinstance(node, TensorSlices | OneElement):  # which may be batches already
        _, first = leaves_with_names(node.spec)[0]
        return node.cardinality * first.shape[0] if first.shape else UNKNOWN
    return rows_in(node.inputs[0]) if node.keeps_elements else UNKNOWN


@final
class Rebatch(Generated, stacks_elements=True):
    """Batches of other sizes: those of `sizes`, in turn."""

    sizes: tuple[int, ...]
    drop_remainder: bool

    @override
    def _blocks(self, reader: Reader, run: Run) -> Generator[Block]:
        rows = Peekable(Pulled(unbatched(reader)))
        for size in itertools.cycle(self.sizes):
            if size == 0 and (one := rows.peek()) is not None:
                yield Held([map_leaves(lambda leaf: leaf[:0], one.stacked())])
                continue
            block = take_all(rows, size)
            if len(block) == 0 or (self.drop_remainder and len(block) < size):
                return
            yield Batched(block, len(block))

    @override
    def _cardinality(self) -> int:
        rows = rows_in(self.input)
        if len(self.sizes) > 1:
            return rows if rows == INFINITE else UNKNOWN
        return batches_of(rows, min(self.sizes), self.drop_remainder)

    @override
    def _spec(self) -> Any:
        size = min(self.sizes) if len(set(self.sizes)) == 1 else None
        whole = {leaf.shape[0] for _, leaf in leaves_with_names(self.input.spec) if leaf.shape}
        divides = size is not None and None not in whole and all(n % size == 0 for n in whole)
        static = size is not None and (self.drop_remainder or divides)
        return batched_spec(Unbatch(self.input).spec, size if static else None)

    @override
    def details(self) -> str:
        return ", ".join(map(str, self.sizes))


@final
class Window(Generated):
    """Data sets of `size` consecutive elements each, one for each leaf of an element."""

    size: int
    shift: int
    stride: int
    drop_remainder: bool
    make_data_set: Callable[[Any], Any]  # Dataset, which is made of nodes and so comes later

    @override
    def _blocks(self, reader: Reader, run: Run) -> Generator[Block]:
        extent = (self.size - 1) * self.stride + 1
        held: Block = EMPTY
        while True:
            # Computed once, though windows overlap.
            more = take_all(reader, max(extent - len(held), 0))
            try:
                held = concatenate([held, Held(more.rows())])
            except Exception as error:
                yield Broken(error)
                continue
            if len(held) == 0 or (self.drop_remainder and len(held) < extent):
                return
            stop = min(extent, len(held))
            yield Held([self._window(held.select(slice(0, stop, self.stride)))])
            if self.shift >= len(held):
                missing = self.shift - len(held)
                held = EMPTY
                if missing and reader.skip(missing) < missing:
                    return
            else:
                held = held.select(slice(self.shift, len(held)))

    def _window(self, block: Block) -> Any:
        spec = self.input.spec
        structure = Structure(spec)
        if structure.text == ".":
            return self.make_data_set(BlockNode(block, spec))
        columns = structure.columns(block.rows())
        specs = structure.leaves(spec)
        return structure.build(
            [self.make_data_set(BlockNode(Held(c), s)) for c, s in zip(columns, specs)]
        )

    @override
    def _cardinality(self) -> int:
        size = self.input.cardinality
        if size < 0:
            return size
        extent = (self.size - 1) * self.stride + 1 if self.drop_remainder else 1
        return 0 if size < extent else (size - extent) // self.shift + 1

    @override
    def _spec(self) -> Any:
        return map_leaves(DatasetSpec, self.input.spec)

    @override
    def details(self) -> str:
        return f"size {self.size}, shift {self.shift}, stride {self.stride}"
