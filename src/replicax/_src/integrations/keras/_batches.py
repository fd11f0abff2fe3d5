"""Batches on their way to the replicas.

A batch is cut into shares, as equal as its number of rows allows: some replicas have one row less,
or none. What a replica computes then counts by its rows (`_shares.Share`).
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, final

import jax
import numpy as np
from jax.typing import ArrayLike
from keras.src import tree
from keras.src.trainers.data_adapters.data_adapter import DataAdapter
from keras.src.trainers.data_adapters.data_adapter_utils import class_weight_to_sample_weights

import replicax as rx
from replicax._src._typing import DTypeLike, PyTree, override
from replicax._src._warnings import users_line
from replicax._src.data import Structure
from replicax._src.data.distributed import Placement, Shares, mark_uneven
from replicax._src.integrations.keras._workers import SameBatches, said_by_all
from replicax._src.strategies import Strategy, input_layout_of


@final
class OnReplicas:
    """A leaf of a batch: what the replicas get of one array.

    Attributes:
      value: that, on their devices.
      shape: of the array, for Keras, which builds models for it.
      dtype: likewise.
      rows: how many the batch has, if replicas have different numbers of them.
    """

    def __init__(
        self, value: PyTree, shape: tuple[int, ...], dtype: DTypeLike, rows: int | None = None
    ):
        self.value = value
        self.shape = shape
        self.dtype = dtype
        self.rows = rows

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        """For Keras, which builds a model by calling it on the first batch of `predict`."""
        return np.zeros(self.shape, dtype or self.dtype)


@final
class Sharing:
    """Shares the batches of one strategy out."""

    def __init__(self, strategy: Strategy):
        self._strategy = strategy
        self.layout = input_layout_of(strategy)
        self._agree: Any = None  # with the other workers, on the shapes of their shares
        self._same = SameBatches(self.layout)
        self._placement = Placement(
            self.layout, fetch=True, integers_may_narrow=True, line=users_line()
        )

    def all_of(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Shares out one batch after the other; on accelerators the next one is on its way."""
        ahead = 0 if self.layout.devices[0].platform == "cpu" else 1
        waiting: collections.deque[Any] = collections.deque()
        try:
            for batch in batches:
                waiting.append(self.share_out(batch))
                if len(waiting) > ahead:
                    yield waiting.popleft()
            yield from waiting
        finally:
            if self._agree is not None:  # who waits for this worker is to know
                self._agree.close()

    def share_out(self, batch: PyTree) -> Any:
        """Returns the batch with `OnReplicas` in the place of its arrays."""
        leaves = [leaf for leaf in tree.flatten(batch) if leaf is not None]
        if not leaves:
            raise ValueError("The batch is empty: there is no array in it.")
        if all(isinstance(leaf, OnReplicas) for leaf in leaves):
            return batch
        if any(isinstance(leaf, rx.distribute.DistributedValues) for leaf in leaves):
            return self._of_distributed(batch, leaves)
        if self.layout.replicas == 1 and all(isinstance(leaf, jax.Array) for leaf in leaves):
            return _with_leaves(batch, [OnReplicas(x, x.shape, x.dtype) for x in leaves])
        arrays = [_on_host(leaf) for leaf in leaves]
        self._same.check(arrays)
        sizes = self._sizes(arrays)
        uneven = len(set(sizes)) > 1
        cut = [_cut(array, sizes) for array in arrays]
        first = self.layout.worker * self.layout.local_replicas
        here = slice(first, first + self.layout.local_replicas)
        columns: list[Sequence[Any]] = [parts[here] for parts in cut]
        placed = self._placement.place(Shares(_flat(len(arrays)), columns))
        if uneven:  # all workers know the shapes of all replicas
            mark_uneven(placed, [[[list(part.shape) for part in parts] for parts in cut]])
        rows = sum(sizes) if uneven else None
        found = [
            OnReplicas(value, array.shape, array.dtype, rows)
            for value, array in zip(placed, arrays, strict=True)
        ]
        return _with_leaves(batch, found)

    def _sizes(self, arrays: list[np.ndarray]) -> list[int]:
        """Returns how many rows each replica gets; the first ones have one more than the others."""
        count = self.layout.replicas
        rows = [array.shape[0] for array in arrays if array.shape]
        if len(set(rows)) > 1:  # what belongs together cannot be told: all of it goes to the first
            return [rows[0], *[0] * (count - 1)]
        least, more = divmod(rows[0] if rows else 0, count)
        return [least + (replica < more) for replica in range(count)]

    def _of_distributed(self, batch: PyTree, leaves: list[Any]) -> Any:
        """Returns an element of a distributed data set: if not evenly, it is shared out again."""
        parts = [self._strategy.experimental_local_results(leaf) for leaf in leaves]
        shapes = [[list(part.shape) for part in each] for each in parts]
        uneven = any(shape != each[0] for each in shapes for shape in each)
        if self.layout.workers > 1:
            if self._agree is None:
                self._agree = self.layout.meet()
            said = said_by_all(self._agree, shapes, "its next batch")
            uneven = any(others != shapes for others in said) or uneven
        if uneven:
            gathered = [joined(self._strategy, leaf) for leaf in leaves]
            return self.share_out(_with_leaves(batch, gathered))
        found = [
            OnReplicas(leaf, each[0].shape, each[0].dtype)
            for leaf, each in zip(leaves, parts, strict=True)
        ]
        return _with_leaves(batch, found)


def joined(strategy: Strategy, value: PyTree) -> np.ndarray:
    """Returns the rows of the replicas of all workers, in their order."""
    if input_layout_of(strategy).workers > 1:
        return np.asarray(strategy.gather(value, axis=0))
    parts = [np.asarray(part) for part in strategy.experimental_local_results(value)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


class BatchesAdapter(DataAdapter):
    """Lets Keras read batches of which it knows nothing before; subclasses have an iterator."""

    @override
    def get_jax_iterator(self) -> Iterator[Any]:
        return self.get_numpy_iterator()

    @property
    @override
    def num_batches(self) -> int | None:
        return None

    @property
    @override
    def batch_size(self) -> int | None:
        return None

    @property
    @override
    def has_partial_batch(self) -> bool | None:
        return None

    @property
    @override
    def partial_batch_size(self) -> int | None:
        return None


@final
class DatasetAdapter(BatchesAdapter):
    """Lets Keras read a data set of ours, distributed or not."""

    def __init__(self, dataset: rx.data.Dataset | rx.distribute.DistributedDataset):
        self._dataset = dataset

    @override
    def get_numpy_iterator(self) -> Iterator[Any]:
        """Of a distributed one not NumPy's arrays, but per-replica values: `Sharing` knows them."""
        return iter(self._dataset)

    @property
    @override
    def num_batches(self) -> int | None:
        try:
            return len(self._dataset)
        except TypeError:  # not known before it was read
            return None


def has_ours(arguments: Iterable[object]) -> bool:
    """Returns whether a data set of ours is among the arguments of `fit` and the like."""
    kinds = rx.data.Dataset | rx.distribute.DistributedDataset
    return any(isinstance(each, kinds) for each in arguments)


def readable(given: dict[str, Any], strategy: Strategy | None) -> dict[str, Any]:
    """Returns the arguments of `fit` and the like as Keras can read them: our data adapted.

    `strategy`: that of the model, if it has one.
    """
    found = {
        name: _adapted(value, strategy) if name in ("x", "validation_data") else value
        for name, value in given.items()
    }
    if found.get("x") is given.get("x"):
        return found
    for name in ("y", "sample_weight"):
        if given.get(name) is not None:
            raise ValueError(
                f"`x` is a data set, so `{name}` should not be passed: its elements are to be "
                "(inputs, targets) or (inputs, targets, sample_weights)."
            )
    weights = found.pop("class_weight", None)
    if weights is not None:
        if not isinstance(given["x"], rx.data.Dataset):
            raise ValueError(
                "`class_weight` is not known to a data set that is distributed already. Pass the "
                "rx.data.Dataset itself, or let its elements be (inputs, targets, sample_weights)."
            )
        found["x"] = _adapted(_with_class_weights(given["x"], weights), strategy)
    return found


def _adapted(data: object, strategy: Strategy | None) -> Any:
    if isinstance(data, rx.data.Dataset):
        distribute = strategy and strategy.experimental_distribute_dataset
        return DatasetAdapter(distribute(data) if distribute else data)
    if not isinstance(data, rx.distribute.DistributedDataset):
        return data
    if strategy is None:
        raise ValueError(
            "The data set is distributed over the replicas of a strategy, but the model was made "
            "outside of its scope, on one device. Pass the rx.data.Dataset itself, or make the "
            "model inside `with strategy.scope():`."
        )
    return DatasetAdapter(data)


def _with_class_weights(data: rx.data.Dataset, weights: dict[int, float]) -> Any:
    def weighted(*parts: PyTree) -> Any:
        if len(parts) != 2 or tree.is_nested(parts[1]):
            raise ValueError(
                "`class_weight` needs elements (inputs, targets) with one array of targets. "
                f"Received: {tree.map_structure(np.shape, parts)}."
            )
        return *parts, class_weight_to_sample_weights(parts[1], weights)

    return data.map(weighted)


@functools.cache
def _flat(leaves: int) -> Structure:
    """Returns the structure of a tuple of so many."""
    return Structure((0,) * leaves)


def _on_host(leaf: ArrayLike) -> np.ndarray:
    array = np.asarray(leaf)
    wanted = jax.dtypes.canonicalize_dtype(array.dtype)
    return array if array.dtype == wanted else array.astype(wanted)


def _cut(array: np.ndarray, sizes: list[int]) -> list[np.ndarray]:
    """Returns the parts of all replicas."""
    if not array.shape:
        return [array] * len(sizes)
    if sizes[0] and array.shape[0] != sum(sizes):
        ends = [array.shape[0]] * len(sizes)
    else:
        ends = list(itertools.accumulate(sizes))
    return [array[start:end] for start, end in itertools.pairwise([0, *ends])]


def _with_leaves(batch: PyTree, leaves: list[Any]) -> Any:
    left = iter(leaves)
    return tree.map_structure(lambda leaf: None if leaf is None else next(left), batch)
