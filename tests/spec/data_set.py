"""In the place of distributed data sets: an iterable of per-replica values that knows their spec.

The pages' examples iterate over such a data set and ask it for its `element_spec`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import replicax as rx


class DataSet:
    """Batches of consecutive numbers, each split over the replicas as evenly as can be."""

    def __init__(self, strategy: Any, sizes: Sequence[int]):
        self._strategy = strategy
        self._ends = np.cumsum(sizes)
        self._sizes = sizes
        self.element_spec = rx.TensorSpec([None], np.float32)

    def __iter__(self) -> Iterator:
        return Iterator(self)

    def batch(self, index: int) -> Any:
        end = int(self._ends[index])
        rows = np.arange(end - self._sizes[index], end, dtype=np.float32)
        shares = np.array_split(rows, self._strategy.num_replicas_in_sync)
        return self._strategy.experimental_distribute_values_from_function(
            lambda context: shares[context.replica_id_in_sync_group]
        )

    def __len__(self) -> int:
        return len(self._sizes)


class Iterator:
    """What `iter` of a data set gives."""

    def __init__(self, data_set: DataSet):
        self._data_set = data_set
        self._index = 0
        self.element_spec = data_set.element_spec

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> Any:
        if self._index == len(self._data_set):
            raise StopIteration
        self._index += 1
        return self._data_set.batch(self._index - 1)

    get_next = __next__
