"""Arrays of which each replica has a part, inside a traced program: taking apart, putting together.

State that is cut over the replicas (`Layout.replica_dim`) is put together where it is used, and
what is added up to change it is scattered at once: each replica gets the sum of its own part only.
"""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src.context import get_strategy, replica_devices_of
from replicax._src.devices import REPLICA_AXIS, ReplicaMesh, over_replicas


def part_shape(shape: tuple[int, ...], dim: int, mesh: ReplicaMesh | None) -> tuple[int, ...]:
    """Returns the shape of each replica's part."""
    assert mesh is not None
    return (*shape[:dim], shape[dim] // mesh.size, *shape[dim + 1 :])


def own_part(array: jax.Array, dim: int, mesh: ReplicaMesh | None) -> jax.Array:
    """Returns each replica's part of an array that all of them have."""
    assert mesh is not None
    size, rest = divmod(jnp.shape(array)[dim], mesh.size)
    assert rest == 0
    start = jax.lax.axis_index(REPLICA_AXIS) * size
    return jax.lax.dynamic_slice_in_dim(array, start, size, dim)


def whole_of_parts(part: jax.Array, dim: int) -> jax.Array:
    """Gathers the replicas' parts along `dim`: returns the whole array, on each replica."""
    for groups in reversed(_stages()):
        part = over_replicas(
            jax.lax.all_gather, part, axis=dim, axis_index_groups=groups, tiled=True
        )
    return part


def scattered_sum(array: jax.Array, dim: int) -> jax.Array:
    """Returns each replica's part of the sum of what they have."""
    for groups in _stages():
        array = over_replicas(
            jax.lax.psum_scatter, array, scatter_dimension=dim, axis_index_groups=groups, tiled=True
        )
    return array


_SQUARES = (64, 256)


def _stages() -> list[list[list[int]] | None]:
    """Returns which replicas exchange their parts with each other, stage after stage; None for all.

    XLA makes one reduce-scatter over all of 8x8 or 16x16 TPUs an all-reduce, which sends twice as
    much, and one all-gather, too. In two stages it leaves them as they are, and what is sent is as
    much as in one.
    """
    count = jax.lax.axis_size(REPLICA_AXIS)
    if count not in _SQUARES or replica_devices_of(get_strategy())[0].platform != "tpu":
        return [None]
    side = math.isqrt(count)
    rows = np.arange(count).reshape(side, side)
    return [rows.T.tolist(), rows.tolist()]
