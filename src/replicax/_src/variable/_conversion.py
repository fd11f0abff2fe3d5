"""What variables are given: arrays of their shape and dtype, or an error that says why not."""

# Functions of JAX have types that say little.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# Of this room: tests/test_architecture.py draws the line between rooms.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from replicax._src._arrays import IntegersTooLargeError, as_array, host_integers
from replicax._src._typing import DTypeLike
from replicax._src.context import (
    get_replica_context,
    has_strategy,
    replica_devices_of,
    replica_id_of,
)
from replicax._src.values import Mirrored, PerReplica, array_here, component, local_count
from replicax._src.variable._policy import Change

if TYPE_CHECKING:
    from replicax._src.variable._variable import Variable


def coerced(variable: Variable, how: Change, value: object) -> Any:
    """Returns `value` with a variable's shape and dtype; `Mirrored` values stay so."""
    if isinstance(value, PerReplica):
        context = get_replica_context() if has_strategy() else None
        here = len(replica_devices_of(context.strategy)) if context is not None else 0
        if context is None or local_count(value) != here:
            raise ValueError(
                f"{how} of variable {variable.name!r} was given a PerReplica value outside of "
                "strategy.run. Combine it first: strategy.reduce('SUM', value, axis=None), or "
                "assign inside strategy.run, where the variable's aggregation does it."
            )
        value = component(value, replica_id_of(context))
    array = converted(value, how, variable.name, variable.dtype)
    if array.shape != variable.shape:
        raise ValueError(
            f"{how} of variable {variable.name!r}, which has shape {variable.shape}, was given a "
            f"value of shape {array.shape}. Shapes must be equal; use jnp.broadcast_to to "
            "spread a smaller value."
        )
    is_same = isinstance(value, Mirrored) and value._array().dtype == variable.dtype
    return value if is_same else array


def converted(value: object, how: object, name: str, dtype: Any) -> jax.Array:
    """Returns `value` as an array of the dtype of the variable of this name."""
    try:
        value = array_here(value)
        # At once: 64 bits may fit a float, but not int32.
        is_exact = jnp.issubdtype(dtype, jnp.number) and host_integers(value) is not None
        array = as_array(value, dtype if is_exact else None)
    except IntegersTooLargeError as error:
        raise ValueError(f"{how} of variable {name!r}: {error}") from None
    except (TypeError, ValueError):
        raise TypeError(
            f"{how} of variable {name!r} takes an array or number; got {value!r} "
            f"of type {type(value).__name__}."
        ) from None
    if array.dtype == dtype:
        return array
    if not _can_cast(array.dtype, dtype):
        raise ValueError(
            f"{how} of variable {name!r}, which has dtype {dtype}, was given "
            f"{array.dtype}. Convert it yourself where loss is meant: "
            f"x.astype('{dtype}')."
        )
    return array.astype(dtype)


def _can_cast(source: DTypeLike, target: DTypeLike) -> bool:
    """Within a kind, or to a wider kind: integers to floats, but not floats to integers."""
    order = [jnp.bool_, jnp.integer, jnp.floating, jnp.complexfloating]

    def rank(dtype: DTypeLike) -> int:
        return next((i for i, kind in enumerate(order) if jnp.issubdtype(dtype, kind)), len(order))

    return rank(source) <= rank(target) and (rank(source) > 0 or rank(target) == 0)
