"""`rx.constant`: an array from numbers, with TensorFlow's arguments."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from replicax._src._arrays import as_array
from replicax._src._typing import DTypeLike


def constant(
    value: object,
    dtype: DTypeLike | None = None,
    shape: int | Sequence[int] | None = None,
    name: str | None = "Const",
) -> jax.Array:
    """Returns an array of `value`, converted to `dtype` and spread to `shape` if they are given.

    >>> import replicax as rx
    >>> rx.constant(3.0, shape=(2,))
    Array([3., 3.], dtype=float32)
    """
    array = as_array(value, dtype)
    if shape is None:
        return array
    wanted = (shape,) if isinstance(shape, int) else tuple(shape)
    size = 1
    for each in wanted:
        size *= each
    if array.size == size:
        return array.reshape(wanted)
    if array.size == 1:
        return jnp.broadcast_to(array.reshape(()), wanted)
    raise ValueError(
        f"rx.constant cannot make shape {wanted} ({size} items) from {array.size} items. Pass one "
        "number, or as many as the shape has."
    )
