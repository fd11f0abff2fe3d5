"""`RarerOperations`: the operations of `tf.data` that fewer pipelines need, a part of `Dataset`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from replicax._src._local_path import absolute_path
from replicax._src._typing import DTypeLike, PyTree
from replicax._src.data import _saved
from replicax._src.data._arguments import as_count, as_function, as_seed, as_shares
from replicax._src.data._combining import Interleave
from replicax._src.data._elements import DatasetBase, Element, as_element, own
from replicax._src.data._grouping import Buckets, GroupWindows, RaggedBatch
from replicax._src.data._node import Node, NoElements
from replicax._src.data._running import (
    IgnoreErrors,
    Resample,
    Scan,
    TakeWhile,
    Unique,
    check_can_be_unique,
)
from replicax._src.data._saving import (
    ReaderFunction,
    Snapshot,
    is_compressed,
    shard_number,
)

if TYPE_CHECKING:
    from replicax._src.data._dataset import Dataset

Path = str | os.PathLike[str]


class RarerOperations(DatasetBase):
    """The base of `Dataset` with these operations."""

    def _with(self, node: Node) -> Dataset:
        """Returns a data set of a node."""
        raise NotImplementedError

    # ------------------------------------------------------------------ batches of a kind

    def group_by_window(
        self,
        key_func: Callable[..., Any],
        reduce_func: Callable[..., Any],
        window_size: int | None = None,
        window_size_func: Callable[..., Any] | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Collects elements of one key, and returns what `reduce_func` makes of each collection.

        >>> import replicax as rx
        >>> numbers = rx.data.Dataset.range(8)
        >>> grouped = numbers.group_by_window(lambda x: x % 2, lambda key, some: some.batch(3), 3)
        >>> [batch.tolist() for batch in grouped]
        [[0, 2, 4], [1, 3, 5], [6], [7]]

        Args:
          key_func: returns an integer for an element.
          reduce_func: gets a key and a data set of elements, and returns a data set.
          window_size: how many elements are collected; fewer at the end, in the order of the keys.
          window_size_func: the same, as a function of the key.
        """
        operation = "group_by_window()"
        if (window_size is None) == (window_size_func is None):
            given = "neither" if window_size is None else "window_size and window_size_func"
            raise ValueError(
                f"{operation} takes either window_size or window_size_func; got {given}."
            )
        keys = as_function(key_func, operation, "lambda x: x % 2")
        reduce = as_function(reduce_func, operation, "lambda key, window: window.batch(8)")
        if window_size_func is not None:
            sizes = as_function(window_size_func, operation, "lambda key: 8")
        else:
            count = as_count(window_size, operation, 1)
            sizes = lambda _: count  # noqa: E731
        return self._grouped(keys, sizes, reduce, operation)

    def _grouped(
        self,
        keys: Callable[..., Any],
        sizes: Callable[..., Any],
        reduce: Callable[..., Any],
        operation: str,
        spec_of_all: Callable[[], Any] | None = None,
    ) -> Dataset:
        windows = GroupWindows(self._data_set_node, keys, sizes, self._with, operation)
        return self._with(Interleave(windows, reduce, 1, 1, operation, spec_of_all))

    def bucket_by_sequence_length(
        self,
        element_length_func: Callable[..., Any],
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int],
        padded_shapes: PyTree = None,
        padding_values: PyTree = None,
        pad_to_bucket_boundary: bool = False,
        no_padding: bool = False,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Dataset:
        """Returns batches of elements of similar lengths, each filled up to the longest.

        >>> import replicax as rx
        >>> lists = [[1], [1, 2, 3], [4, 5], [6, 7, 8, 9]]
        >>> signature = rx.TensorSpec([None], "int32")
        >>> rows = rx.data.Dataset.from_generator(lambda: lists, output_signature=signature)
        >>> batches = rows.bucket_by_sequence_length(len, [3], [2, 2])
        >>> [batch.tolist() for batch in batches]
        [[[1, 0], [4, 5]], [[1, 2, 3, 0], [6, 7, 8, 9]]]

        Args:
          element_length_func: returns the length of an element.
          bucket_boundaries: where buckets end: the first has lengths below the first of them.
          bucket_batch_sizes: how many elements of each bucket are a batch; one more than there
            are boundaries.
          padded_shapes: as in `padded_batch`, as `padding_values` and `drop_remainder` are.
          pad_to_bucket_boundary: whether dimensions of unknown size are filled up to the longest
            that the bucket allows, so that its batches have one shape. Elements that are longer
            than the last boundary are refused.
          no_padding: whether elements are put together as they are.
        """
        length = as_function(element_length_func, "bucket_by_sequence_length()", "len")
        buckets = Buckets.of(
            self._data_set_node,
            length,
            bucket_boundaries,
            bucket_batch_sizes,
            None if no_padding else (padded_shapes, padding_values),
            bool(pad_to_bucket_boundary),
            bool(drop_remainder),
        )

        def batched(bucket: np.int64, window: DatasetBase) -> Dataset:
            return self._with(buckets.batch(bucket, window))

        return self._grouped(
            buckets.key,
            buckets.size,
            batched,
            "bucket_by_sequence_length()",
            lambda: buckets.spec(self._data_set_node),
        )

    def ragged_batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        row_splits_dtype: DTypeLike = np.int64,
        name: str | None = None,
    ) -> Dataset:
        """Works as `batch`, for arrays of different lengths: `rx.io.PaddedRows` with the lengths.

        >>> import replicax as rx
        >>> rows = rx.data.Dataset.range(1, 4).map(lambda x: np.arange(x))
        >>> rows, lengths = next(iter(rows.ragged_batch(3)))
        >>> rows.tolist(), lengths.tolist()
        ([[0, 0, 0], [0, 1, 0], [0, 1, 2]], [1, 2, 3])

        Args:
          batch_size: how many elements.
          drop_remainder: whether to drop a smaller last batch.
          row_splits_dtype: of the lengths: int32 or int64.
        """
        size = as_count(batch_size, "ragged_batch()", 1)
        lengths = np.dtype(row_splits_dtype)
        if lengths not in (np.int32, np.int64):
            raise TypeError(
                f"ragged_batch() takes row_splits_dtype int32 or int64; got {row_splits_dtype}."
            )
        return self._with(RaggedBatch(self._data_set_node, size, bool(drop_remainder), lengths))

    # ------------------------------------------------------------------ going along

    def scan(
        self, initial_state: Element, scan_func: Callable[..., Any], name: str | None = None
    ) -> Dataset:
        """Returns what a function makes of a state and each element; it gives the next state too.

        >>> import replicax as rx
        >>> sums = rx.data.Dataset.range(5).scan(np.int64(0), lambda sum, x: (sum + x, sum + x))
        >>> [int(x) for x in sums]
        [0, 1, 3, 6, 10]

        Args:
          initial_state: a structure of arrays.
          scan_func: gets a state and an element (a tuple is one argument) and returns a pair: the
            next state, which looks like the first, and an element.
        """
        function = as_function(scan_func, "scan()", "lambda state, x: (state + x, state)")
        state = own(as_element(initial_state))
        return self._with(Scan(self._data_set_node, state, function))

    def take_while(self, predicate: Callable[..., Any], name: str | None = None) -> Dataset:
        """Returns the elements before the first for which `predicate` returns False."""
        predicate = as_function(predicate, "take_while()", "lambda x: x < 5")
        return self._with(TakeWhile(self._data_set_node, predicate))

    def unique(self, name: str | None = None) -> Dataset:
        """Returns each element once, in the order of their first places; all seen are kept.

        Elements are one array of int32, int64 or text, as in TensorFlow.
        """
        with contextlib.suppress(NoElements):
            check_can_be_unique(self.element_spec)
        return self._with(Unique(self._data_set_node))

    def ignore_errors(self, log_warning: bool = False, name: str | None = None) -> Dataset:
        """Returns the elements without those whose functions raise errors.

        Args:
          log_warning: whether to warn of each.
        """
        return self._with(IgnoreErrors(self._data_set_node, bool(log_warning)))

    def rejection_resample(
        self,
        class_func: Callable[..., Any],
        target_dist: Sequence[float] | np.ndarray,
        initial_dist: Sequence[float] | np.ndarray | None = None,
        seed: int | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Returns pairs of a class and an element, so many dropped that classes come as wanted.

        Args:
          class_func: returns the class of an element, an integer from 0.
          target_dist: the share that each class is to have.
          initial_dist: the share that each has; without it, they are counted on the way.
          seed: makes the choice the same in every run of the program.
        """
        function = as_function(class_func, "rejection_resample()", "lambda x, label: label")
        target = as_shares(target_dist, "rejection_resample(target_dist=...)")
        initial = None
        if initial_dist is not None:
            where = "rejection_resample(initial_dist=...)"
            initial = as_shares(initial_dist, where, len(target))
        chosen = as_seed(seed, "rejection_resample")
        return self._with(Resample(self._data_set_node, function, target, initial, chosen))

    def get_single_element(self, name: str | None = None) -> Any:
        """Returns the only element.

        Raises:
          ValueError: there is none, or more than one.
        """
        iterator = iter(self._with(self._data_set_node))
        try:
            element = next(iterator, None)
            if element is None:
                raise ValueError("get_single_element(): the data set has no elements.")
            if next(iterator, None) is not None:
                raise ValueError(
                    "get_single_element(): the data set has more than one element. take(1) takes "
                    "the first."
                )
        finally:
            iterator.close()
        return element

    # ------------------------------------------------------------------ into folders

    def save(
        self,
        path: Path,
        compression: str | None = None,
        shard_func: Callable[..., Any] | None = None,
        checkpoint_args: object = None,
    ) -> None:
        """Writes all elements into a folder, from which `Dataset.load(path)` reads them.

        The folder is new, empty, or one that `save` made, which is replaced when all is written;
        nothing else is touched. The format is replicax's own: arrays as bytes, with checksums.

        Args:
          path: of the folder.
          compression: None, or "GZIP".
          shard_func: returns the number of the shard that an element goes to: for `load` with a
            `reader_func`.
          checkpoint_args: not supported: saving starts over.
        """
        if checkpoint_args is not None:
            raise ValueError(
                "save() takes no checkpoint_args: it writes all elements or none. Leave it out."
            )
        dataset = self._with(self._data_set_node)
        compress = is_compressed(compression, "save()")
        shards = shard_number(_bound(shard_func, "save()"))
        folder = absolute_path(path, "path")
        iterator = iter(dataset)
        try:
            _saved.write(folder, iterator, lambda: self.element_spec, shards, compress)
        finally:
            iterator.close()

    def snapshot(
        self,
        path: Path,
        compression: str | None = "AUTO",
        reader_func: ReaderFunction | None = None,
        shard_func: Callable[..., Any] | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Returns the same elements, written to a folder by the first iteration that ends.

        Later iterations, and later runs of the program, read them from there. A pipeline with
        other operations or arguments has a folder of its own below `path`; what the functions of
        `map` do does not show, so name another path, or delete the folder, when they change.

        Args:
          path: of the folder.
          compression: None, "AUTO" or "GZIP".
          reader_func: as in `load`, as `shard_func` is in `save`. With one of them, all elements
            are written before the first is handed on.
        """
        return self._with(
            Snapshot(
                self._data_set_node,
                absolute_path(path, "path"),
                is_compressed(compression, "snapshot()"),
                _bound(shard_func, "snapshot()"),
                reader_func,
                self._with,
            )
        )


def _bound(shard_func: Callable[..., Any] | None, where: str) -> Callable[..., Any] | None:
    return None if shard_func is None else as_function(shard_func, where, "lambda x: x % 4")
