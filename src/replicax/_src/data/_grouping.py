"""Batches of elements that belong together: group_by_window, buckets of lengths, ragged_batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Sequence
from typing import Any, final

import numpy as np

from replicax._src._tensor_spec import TensorSpec
from replicax._src._typing import PyTree, override
from replicax._src.data._arguments import as_count, flat_padding
from replicax._src.data._batching import Batch, OfSize, PaddedBatch, or_broken, padded_column
from replicax._src.data._blocks import Block, Broken, Held
from replicax._src.data._elements import (
    DatasetBase,
    Element,
    Leaf,
    Structure,
    leaves_with_names,
    map_leaves,
    own,
    refuse_sparse,
    stack,
)
from replicax._src.data._mapping import call, name_of
from replicax._src.data._node import (
    INFINITE,
    UNKNOWN,
    DatasetSpec,
    Generated,
    Node,
    Reader,
    chunk_of,
    take_all,
)
from replicax._src.data._run import Run
from replicax._src.data._sources import BlockNode
from replicax._src.records import PaddedRows


@final
class GroupWindows(
    Generated, label="GroupByWindowDataset", runs_user_code=True, pulls_user_code=True
):
    """A key and a data set of elements with this key, for every window that is full.

    What is left of the groups at the end comes in the order of the keys.
    """

    key_func: Callable[..., Any]
    size_func: Callable[[np.int64], Any]
    make_data_set: Callable[[Node], DatasetBase]
    operation: str

    @override
    def _blocks(self, reader: Reader, run: Run) -> Generator[Block]:
        groups: dict[int, list[Any]] = {}
        sizes: dict[int, int] = {}
        chunk = chunk_of(self.input)
        while len(block := reader.take(chunk)):
            try:
                rows = block.rows()
            except Exception as error:  # there is one row where functions run: see `chunk_of`
                yield Broken(error)
                continue
            for row in rows:
                try:
                    key = one_integer(call(self.key_func, row, self.operation), self)
                    if key not in groups:
                        sizes[key] = self._size(key)
                except Exception as error:
                    yield Broken(error)
                    continue
                group = groups.setdefault(key, [])
                group.append(own(row))
                if len(group) == sizes[key]:
                    yield self._window(key, groups.pop(key))
        for key in sorted(groups):
            yield self._window(key, groups.pop(key))

    def _size(self, key: int) -> int:
        return as_count(self.size_func(np.int64(key)), f"the window size of {self.operation}", 1)

    def _window(self, key: int, rows: list[Any]) -> Block:
        window = self.make_data_set(BlockNode(Held(rows), self.input.spec))
        return Held([(np.int64(key), window)])

    @override
    def _cardinality(self) -> int:
        return INFINITE if self.input.cardinality == INFINITE else UNKNOWN

    @override
    def _spec(self) -> Any:
        return TensorSpec.on_host((), np.int64), DatasetSpec(self.input.spec)

    @override
    def details(self) -> str:
        return name_of(self.key_func)


def one_integer(value: object, node: GroupWindows) -> int:
    """Returns the key that a user's function gave.

    Raises:
      ValueError: it is no integer.
    """
    found = np.asarray(value)
    if found.dtype.kind not in "iu" or found.size != 1 or found.ndim:
        raise ValueError(
            f"{name_of(node.key_func)}, the key_func of {node.operation}, must return one integer "
            f"for an element; got {value!r}."
        )
    return int(found)


# ------------------------------------------------------------------ buckets of lengths


@final
@dataclasses.dataclass(frozen=True)
class Buckets:
    """Which elements `bucket_by_sequence_length` puts together, and how they become a batch.

    Attributes:
      length_of: the user's function, of an element.
      boundaries: where buckets begin; the first begins at 0.
      sizes: of the batches of each bucket.
      padding: `padded_shapes` and `padding_values`, for each leaf of an element; None: no padding.
      to_boundary: whether dimensions that vary get the longest size that the bucket allows.
      drop_remainder: whether to drop batches that are smaller.
    """

    length_of: Callable[..., Any]
    boundaries: tuple[int, ...]
    sizes: tuple[int, ...]
    padding: tuple[list[Any] | None, list[Any] | None] | None
    to_boundary: bool
    drop_remainder: bool

    @classmethod
    def of(
        cls,
        node: Node,
        length_of: Callable[..., Any],
        boundaries: Sequence[int],
        sizes: Sequence[int],
        padding: tuple[PyTree, PyTree] | None,
        to_boundary: bool,
        drop_remainder: bool,
    ) -> Buckets:
        """Returns the buckets of a call, checked."""
        where = "bucket_by_sequence_length"
        limits = tuple(as_count(each, f"{where}(bucket_boundaries=...)", 1) for each in boundaries)
        counts = tuple(as_count(each, f"{where}(bucket_batch_sizes=...)", 1) for each in sizes)
        if len(counts) != len(limits) + 1:
            raise ValueError(
                f"{where}() takes a batch size for each bucket, which is one more than there are "
                f"boundaries; got {len(limits)} boundaries and {len(counts)} sizes."
            )
        if any(low >= high for low, high in zip(limits, limits[1:])):
            raise ValueError(f"{where}() takes boundaries that increase; got {list(limits)}.")
        flat = None if padding is None else flat_padding(*padding, node)
        if flat is not None and to_boundary and flat[0] is None:
            shapes = [getattr(leaf, "shape", None) for _, leaf in leaves_with_names(node.spec)]
            flat = shapes, flat[1]
        return cls(length_of, limits, counts, flat, to_boundary, drop_remainder)

    def key(self, *element: Element) -> int:
        """Returns the number of an element's bucket."""
        value = np.asarray(self.length_of(*element))
        if value.dtype.kind not in "iu" or value.size != 1:
            raise ValueError(
                f"{name_of(self.length_of)}, the element_length_func of "
                f"bucket_by_sequence_length(), must return one integer; got {value!r}."
            )
        return int(np.searchsorted(self.boundaries, value.item(), "right"))

    def size(self, bucket: np.int64) -> int:
        """Returns how many elements of a bucket are a batch."""
        return self.sizes[bucket]

    def batch(self, bucket: np.int64, window: DatasetBase) -> Node:
        """Returns the data set of the one batch that a window is."""
        node, size = window._data_set_node, self.sizes[bucket]
        if self.padding is None:
            return Batch(node, size, self.drop_remainder)
        shapes, values = self.padding
        if self.to_boundary:
            if bucket >= len(self.boundaries):
                raise ValueError(
                    "bucket_by_sequence_length(pad_to_bucket_boundary=True) takes elements that "
                    f"are shorter than the last boundary, {self.boundaries[-1:]}; got a longer "
                    "one. Filter it out, or add a boundary."
                )
            shapes = [self._filled(shape, int(bucket)) for shape in shapes or ()]
        return PaddedBatch(node, size, self.drop_remainder, shapes, values)

    def spec(self, node: Node) -> Any:
        """Returns the spec of all batches of the elements of a node."""
        same = len(set(self.sizes)) == 1
        size, drop = self.sizes[0], self.drop_remainder and same
        if self.padding is None:
            return Batch(node, size, drop).spec
        return PaddedBatch(node, size, drop, *self.padding).spec

    def _filled(self, shape: Sequence[int | None] | None, bucket: int) -> tuple[int, ...] | None:
        if shape is None:
            return None
        longest = self.boundaries[bucket] - 1
        return tuple(longest if size is None else size for size in shape)


# ------------------------------------------------------------------ ragged batches


@final
class RaggedBatch(OfSize, Generated):
    """`batch_size` elements as one; arrays become rows, filled up, and the lengths of those."""

    lengths: np.dtype

    @override
    def _blocks(self, reader: Reader, run: Run) -> Generator[Block]:
        while len(block := take_all(reader, self.batch_size)):
            if self.drop_remainder and len(block) < self.batch_size:
                return
            yield or_broken(lambda some: Held([self._ragged(some.rows())]), block)

    def _ragged(self, elements: Sequence[Any]) -> Any:
        refuse_sparse(elements[0], "ragged_batch()")
        structure = Structure(elements[0])
        names = [name for name, _ in leaves_with_names(elements[0])]
        columns = zip(structure.columns(elements), names)
        return structure.build([self._column(column, name) for column, name in columns])

    def _column(self, leaves: Sequence[Leaf], name: str) -> Any:
        if not any(isinstance(leaf, np.ndarray) and leaf.ndim for leaf in leaves):
            return stack(leaves)
        rows = padded_column(leaves, None, None, name, "ragged_batch()")
        arrays = [np.asarray(leaf) for leaf in leaves]
        inner = {array.shape[1:] for array in arrays}
        if len(inner) > 1:
            raise ValueError(
                f"ragged_batch() takes arrays that differ in their first dimension alone; "
                f"element{name} has rows of the shapes {sorted(inner)}. Use padded_batch(), or "
                "make them alike in map()."
            )
        return PaddedRows(rows, np.array([len(array) for array in arrays], self.lengths))

    @override
    def _spec(self) -> Any:
        size = self.batch_size if self.drop_remainder else None

        def padded(rows: Any) -> PaddedRows:
            lengths: Any = TensorSpec.on_host((size,), self.lengths)
            return PaddedRows(rows, lengths)

        def ragged(leaf: TensorSpec) -> Any:
            if leaf.shape is None:
                return padded(TensorSpec.on_host(None, leaf.dtype))
            if not leaf.shape:
                return TensorSpec.on_host((size,), leaf.dtype)
            rows = TensorSpec.on_host((size, None, *leaf.shape[1:]), leaf.dtype)
            return padded(rows)

        return map_leaves(ragged, self.input.spec)

    @override
    def details(self) -> str:
        return str(self.batch_size)
