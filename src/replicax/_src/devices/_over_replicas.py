"""JAX's collectives over the replicas of a program that is being traced."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import AxisType

from replicax._src.devices._mesh import REPLICA_AXIS


def over_replicas(
    collective: Callable[..., jax.Array], array: jax.Array, **how: object
) -> jax.Array:
    """`collective(array, REPLICA_AXIS, **how)`, for `jax.lax.psum`, `all_gather` and their like.

    XLA adds up bfloat16 in float32 on the CPU. Where it divides the work over logical devices as
    well, its rewriting ends the process ("Invalid binary instruction opcode copy"), so we do it.
    Gathers too, because they are added up when they are differentiated.
    """
    if array.dtype == jnp.bfloat16 and _xla_fails_on_bfloat16():
        return collective(array.astype(jnp.float32), REPLICA_AXIS, **how).astype(jnp.bfloat16)
    return collective(array, REPLICA_AXIS, **how)


def _xla_fails_on_bfloat16() -> bool:
    mesh = jax.sharding.get_abstract_mesh()
    device = mesh.abstract_device
    return device is not None and device.device_kind == "cpu" and AxisType.Auto in mesh.axis_types
