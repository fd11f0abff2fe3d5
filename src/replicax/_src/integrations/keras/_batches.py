"""Batches on their way to the replicas.

A batch is cut into equal shares. One that the replicas do not divide (the last of an epoch, as a
rule) goes whole to each of them: every replica then computes the same, for one step, with nothing
padded or left out, and what is counted is counted on the first alone.
"""

from __future__ import annotations

import collections
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
from replicax._src._warnings import users_line, warn
from replicax._src.data import Structure
from replicax._src.data.distributed import Placement, Shares
from replicax._src.integrations.keras._workers import SameBatches, said_by_all
from replicax._src.strategies import Strategy, input_layout_of


@final
class OnReplicas:
    """A leaf of a batch: what the replicas get of one array."""

    def __init__(self, value: PyTree, shape: tuple[int, ...], dtype: DTypeLike, whole: bool):
        self.value = value
        self.shape = shape
        self.dtype = dtype
        self.whole = whole

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
        self._rows_of_whole: int | None = None  # of the batch before, if it went whole to each
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
            return _with_leaves(batch, [OnReplicas(x, x.shape, x.dtype, False) for x in leaves])
        arrays = [_on_host(leaf) for leaf in leaves]
        rows = arrays[0].shape[0] if arrays[0].shape else 0
        whole = any(a.shape[:1] != (rows,) for a in arrays) or rows % self.layout.replicas != 0
        self._same.check(arrays)
        self._warn_of_whole_batches(rows if whole else None)
        columns: list[Sequence[Any]] = [self._cut(array, whole) for array in arrays]
        placed = iter(self._placement.place(Shares(Structure((0,) * len(arrays)), columns)))
        found = [
            OnReplicas(value, array.shape, array.dtype, whole)
            for value, array in zip(placed, arrays, strict=True)
        ]
        return _with_leaves(batch, found)

    def _cut(self, array: np.ndarray, whole: bool) -> list[np.ndarray]:
        """Returns the parts of this worker's replicas."""
        count = self.layout.local_replicas
        first = self.layout.worker * count
        if whole:
            return [array] * count
        size = array.shape[0] // self.layout.replicas
        return [array[i * size : (i + 1) * size] for i in range(first, first + count)]

    def _warn_of_whole_batches(self, rows: int | None) -> None:
        """`rows`: those of this batch if it goes whole to each."""
        if rows is not None and self._rows_of_whole is not None:  # so it was not the last one
            warn(
                f"{self.layout.replicas} replicas cannot share {self._rows_of_whole} rows out "
                "evenly, so that each of them computes the whole batch: they are no faster than "
                f"one. Choose a batch size that is a multiple of {self.layout.replicas}."
            )
        self._rows_of_whole = rows

    def _of_distributed(self, batch: PyTree, leaves: list[Any]) -> Any:
        """Returns an element of a distributed data set: it is shared out already, if evenly."""
        parts = [self._strategy.experimental_local_results(leaf) for leaf in leaves]
        shapes = [[list(part.shape) for part in each] for each in parts]
        uneven = any(shape != each[0] for each in shapes for shape in each)
        if self.layout.workers > 1:
            if self._agree is None:
                self._agree = self.layout.meet()
            said = said_by_all(self._agree, shapes, "its next batch")
            uneven = any(others != shapes for others in said) or uneven
        if uneven:
            gathered = [self._strategy.gather(leaf, axis=0) for leaf in leaves]
            return self.share_out(_with_leaves(batch, gathered))
        found = [
            OnReplicas(leaf, each[0].shape, each[0].dtype, whole=False)
            for leaf, each in zip(leaves, parts, strict=True)
        ]
        return _with_leaves(batch, found)


@final
class DistributedDatasetAdapter(DataAdapter):
    """Lets Keras read a distributed data set."""

    def __init__(self, dataset: rx.distribute.DistributedDataset):
        self._dataset = dataset

    @override
    def get_numpy_iterator(self) -> Iterator[Any]:
        """Not NumPy's arrays, but per-replica values: `Sharing` knows them."""
        return iter(self._dataset)

    @property
    @override
    def num_batches(self) -> int | None:
        try:
            return len(self._dataset)
        except TypeError:  # not known before it was read
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


def readable(given: dict[str, Any], strategy: Strategy) -> dict[str, Any]:
    """Returns the arguments of `fit` and the like as Keras can read them: our data adapted."""
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


def _adapted(data: object, strategy: Strategy) -> Any:
    if isinstance(data, rx.data.Dataset):
        data = strategy.experimental_distribute_dataset(data)
    return (
        DistributedDatasetAdapter(data)
        if isinstance(data, rx.distribute.DistributedDataset)
        else data
    )


def _with_class_weights(data: rx.data.Dataset, weights: dict[int, float]) -> Any:
    def weighted(*parts: PyTree) -> Any:
        if len(parts) != 2 or tree.is_nested(parts[1]):
            raise ValueError(
                "`class_weight` needs elements (inputs, targets) with one array of targets. "
                f"Received: {tree.map_structure(np.shape, parts)}."
            )
        return *parts, class_weight_to_sample_weights(parts[1], weights)

    return data.map(weighted)


def _on_host(leaf: ArrayLike) -> np.ndarray:
    array = np.asarray(leaf)
    wanted = jax.dtypes.canonicalize_dtype(array.dtype)
    return array if array.dtype == wanted else array.astype(wanted)


def _with_leaves(batch: PyTree, leaves: list[Any]) -> Any:
    left = iter(leaves)
    return tree.map_structure(lambda leaf: None if leaf is None else next(left), batch)
