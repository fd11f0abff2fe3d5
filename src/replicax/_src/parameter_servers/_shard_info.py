"""First values that are made part by part, so that no process needs room for all of a variable."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp


@final
class ShardInfo(NamedTuple):
    """Which part of a variable is made.

    Attributes:
      shape: of the part.
      offset: where it begins, in each dimension.
    """

    shape: tuple[int, ...]
    offset: tuple[int, ...]


@final
class MadeInParts(NamedTuple):
    """What a variable starts from, if it can be made part by part.

    Attributes:
      whole: shape and dtype of the variable.
      make: makes a part.
    """

    whole: jax.ShapeDtypeStruct
    make: Callable[[ShardInfo], Any]

    def all(self) -> jax.Array:
        """Makes it as one part."""
        return self._made(ShardInfo(self.whole.shape, tuple(0 for _ in self.whole.shape)))

    def part(self, start: int, stop: int) -> jax.Array:
        """Makes the rows from one number to another."""
        rest = self.whole.shape[1:]
        return self._made(ShardInfo((stop - start, *rest), (start, *(0 for _ in rest))))

    def _made(self, info: ShardInfo) -> jax.Array:
        value = jnp.asarray(self.make(info), self.whole.dtype)
        if value.shape != info.shape:
            raise ValueError(
                f"`initial_value` was asked for the part of shape {info.shape} that begins at "
                f"{info.offset}, and returned an array of shape {value.shape}."
            )
        return value


def made_in_parts(arguments: Mapping[str, Any]) -> MadeInParts | None:
    """Returns how a variable with these arguments is made part by part; None for as a whole.

    As in TensorFlow, `shape` and `dtype` must be there, and `initial_value` be a function that has
    an argument `shard_info`, or the two arguments `partition_shape` and `partition_offset`.
    """
    make: Any = arguments.get("initial_value")
    shape, dtype = arguments.get("shape"), arguments.get("dtype")
    if not callable(make) or shape is None or dtype is None or None in (shape := _dims(shape)):
        return None
    try:
        names = inspect.signature(make).parameters
    except (TypeError, ValueError):  # of something in C
        return None
    if "shard_info" in names:
        by_info: Callable[[ShardInfo], Any] = lambda info: make(shard_info=info)  # noqa: E731
    elif {"partition_shape", "partition_offset"} <= set(names):
        by_info = lambda info: make(partition_shape=info[0], partition_offset=info[1])  # noqa: E731
    else:
        return None
    return MadeInParts(jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)), by_info)


def _dims(shape: Any) -> tuple[Any, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)
