"""`SparseTensor`: what parsing a `VarLenFeature` gives."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from replicax._src._arrays import STRING


class SparseTensor(NamedTuple):
    """Values and where they stand in an array that has nothing elsewhere, as `tf.SparseTensor`.

    Attributes:
      indices: int64 of shape (values, dimensions): the place of each value, in order.
      values: The values.
      dense_shape: int64: the shape of the array.
    """

    indices: np.ndarray
    values: np.ndarray
    dense_shape: np.ndarray


def to_dense(sparse: SparseTensor, default_value: object = None) -> np.ndarray:
    """Returns the array of a `SparseTensor`, with `default_value` (0 or b"") where it has none.

    >>> rows = SparseTensor(np.array([[0, 0], [1, 1]]), np.array([7, 8]), np.array([2, 2]))
    >>> to_dense(rows, default_value=-1).tolist()
    [[7, -1], [-1, 8]]
    """
    indices, values, shape = sparse
    if default_value is None:
        default_value = b"" if values.dtype == STRING else 0
    if isinstance(default_value, str):
        default_value = default_value.encode()
    dense = np.full(tuple(np.asarray(shape).tolist()), default_value, values.dtype)
    dense[tuple(np.asarray(indices).T)] = values
    return dense
