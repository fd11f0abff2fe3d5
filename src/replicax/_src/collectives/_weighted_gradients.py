"""Gradients through collectives where the losses of replicas count differently.

By default the losses of replicas add up, and so do their gradients. Where each replica has the mean
of its own rows instead, its gradients are multiplied by its weight once they are complete. What
other replicas send back through a collective has then to count by their weights, not by that of the
replica that receives it.
"""

# Functions of JAX have types that say little.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp

from replicax._src._thread_value import ThreadValue

_weight = ThreadValue[jax.Array | None](None)


def gradients_weighted_by(weight: jax.Array) -> AbstractContextManager[Any]:
    """Within the block the gradients of this replica are multiplied by `weight` at their end."""
    return _weight.set(weight)


def weighted(
    collective: Callable[[Sequence[jax.Array]], list[jax.Array]], leaves: Sequence[jax.Array]
) -> list[jax.Array]:
    """Returns `collective(leaves)`; through it, gradients count by the replica they come from."""
    weight = _weight.value
    if weight is None:
        return collective(leaves)
    # A replica of weight 0 sends nothing back, and receives nothing.
    inverse = jnp.where(weight == 0, 0, 1 / jnp.where(weight == 0, 1, weight))
    results = collective([_with_scaled_gradient(leaf, inverse) for leaf in leaves])
    return [_with_scaled_gradient(result, weight) for result in results]


def _with_scaled_gradient(value: jax.Array, factor: jax.Array) -> jax.Array:
    if not jnp.issubdtype(value.dtype, jnp.inexact):
        return value

    # The factor is no argument: a value that is not differentiated does not depend on it.
    @jax.custom_jvp
    def same(value: jax.Array) -> jax.Array:
        return value

    @same.defjvp
    def _(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
        [value], [tangent] = primals, tangents
        return same(value), tangent * factor.astype(tangent.dtype)

    return same(value)
