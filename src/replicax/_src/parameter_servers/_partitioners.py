"""Partitioners: into how many parts a variable is cut, so that its parts go to several servers."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import final

import numpy as np

from replicax._src._typing import DTypeLike, override


class Partitioner(abc.ABC):
    """Says into how many parts each dimension of a variable is cut. Subclass it for another rule.

    Only the first dimension of a variable can be cut.

    >>> import replicax as rx
    >>> class TwoIfLarge(rx.distribute.experimental.partitioners.Partitioner):
    ...     def __call__(self, shape, dtype, axis=0):
    ...         return [2 if shape[0] > 100 else 1, *[1 for _ in shape[1:]]]
    >>> TwoIfLarge()((1000, 3), "float32")
    [2, 1]
    """

    @abc.abstractmethod
    def __call__(self, shape: Sequence[int], dtype: DTypeLike, axis: int = 0) -> list[int]:
        """Returns the number of parts along each dimension.

        Args:
          shape: of the variable.
          dtype: of the variable.
          axis: the dimension to cut.
        """


@final
class FixedShardsPartitioner(Partitioner):
    """Cuts every variable into the same number of parts.

    >>> import replicax as rx
    >>> rx.distribute.experimental.partitioners.FixedShardsPartitioner(2)((10, 3), "float32")
    [2, 1]

    Args:
      num_shards: how many.
    """

    def __init__(self, num_shards: int):
        _require_positive("num_shards", num_shards)
        self._num_shards = num_shards

    @override
    def __call__(self, shape: Sequence[int], dtype: DTypeLike, axis: int = 0) -> list[int]:
        return _along(shape, axis, min(self._num_shards, shape[axis]))


@final
class MinSizePartitioner(Partitioner):
    """Cuts into as many parts as possible that have at least so many bytes.

    >>> import replicax as rx
    >>> partitioners = rx.distribute.experimental.partitioners
    >>> partitioners.MinSizePartitioner(min_shard_bytes=4, max_shards=10)((6, 1), "float32")
    [6, 1]

    Args:
      min_shard_bytes: the smallest size of a part.
      max_shards: into how many parts a variable is cut at most.
      bytes_per_string: kept for ported code; there are no variables of texts.
    """

    def __init__(
        self, min_shard_bytes: int = 256 << 10, max_shards: int = 1, bytes_per_string: int = 16
    ):
        _require_positive("min_shard_bytes", min_shard_bytes)
        _require_positive("max_shards", max_shards)
        _require_positive("bytes_per_string", bytes_per_string)
        self._min_shard_bytes = min_shard_bytes
        self._max_shards = max_shards

    @override
    def __call__(self, shape: Sequence[int], dtype: DTypeLike, axis: int = 0) -> list[int]:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        fitting = max(1, math.ceil(size / self._min_shard_bytes))
        return _along(shape, axis, max(1, min(self._max_shards, shape[axis], fitting)))


@final
class MaxSizePartitioner(Partitioner):
    """Cuts into as few parts as possible that have at most so many bytes.

    >>> import replicax as rx
    >>> partitioners = rx.distribute.experimental.partitioners
    >>> partitioners.MaxSizePartitioner(max_shard_bytes=4, max_shards=2)((6, 1), "float32")
    [2, 1]

    Args:
      max_shard_bytes: the largest size of a part.
      max_shards: into how many parts a variable is cut at most, even if they are larger then; None
        for any number.
      bytes_per_string: kept for ported code; there are no variables of texts.
    """

    def __init__(
        self, max_shard_bytes: int, max_shards: int | None = None, bytes_per_string: int = 16
    ):
        _require_positive("max_shard_bytes", max_shard_bytes)
        if max_shards is not None:
            _require_positive("max_shards", max_shards)
        _require_positive("bytes_per_string", bytes_per_string)
        self._max_shard_bytes = max_shard_bytes
        self._max_shards = max_shards

    @override
    def __call__(self, shape: Sequence[int], dtype: DTypeLike, axis: int = 0) -> list[int]:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        row = size / max(1, shape[axis])  # bytes of one item along the dimension
        rows = max(1, math.floor(self._max_shard_bytes / row)) if row else shape[axis]
        parts = math.ceil(shape[axis] / max(1, rows))
        if self._max_shards is not None:
            parts = min(parts, self._max_shards)
        return _along(shape, axis, max(1, parts))


def _along(shape: Sequence[int], axis: int, parts: int) -> list[int]:
    return [parts if dim == axis else 1 for dim in range(len(shape))]


def _require_positive(name: str, value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):  # pyright: ignore
        raise TypeError(f"`{name}` must be an integer; got {value!r}.")
    if value < 1:
        raise ValueError(f"`{name}` must be positive; got {value}.")
