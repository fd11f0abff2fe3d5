"""All-reduce, gather and checks on concrete per-replica values, each as one compiled program.

A program is compiled once for the shapes it is called with and kept by JAX's own cache.
"""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
# What users pass is checked.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src._arrays import IntegersTooLargeError, as_array, for_mean
from replicax._src._errors import PerReplicaValueError
from replicax._src._typing import Device
from replicax._src.collectives._destinations import component_devices
from replicax._src.collectives._fusion import all_reduce_traced
from replicax._src.collectives._reduce_op import ReduceOp
from replicax._src.context import EACH, world
from replicax._src.devices import ReplicaMesh, over_replicas, put
from replicax._src.values import (
    DistributedValues,
    Mirrored,
    PerReplica,
    ReplicaBuffers,
    TracedBuffers,
    component,
    local_count,
    storage_of,
    value_of_buffers,
)


@functools.lru_cache(maxsize=256)
def all_reduce_program(mesh: ReplicaMesh, op: ReduceOp, bytes_per_pack: int) -> Any:
    """Returns the compiled reduction of a list of arrays over `mesh`."""

    def all_reduce(arrays: list[jax.Array]) -> Any:
        return all_reduce_traced(arrays, op, mesh, bytes_per_pack)

    all_reduce.__name__ = f"all_reduce_{op.name.lower()}"
    return mesh.spmd(all_reduce)


@functools.partial(jax.jit, static_argnums=1)
def _reduce_on_one_device(parts: Sequence[jax.Array], op: ReduceOp) -> jax.Array:
    if op is ReduceOp.SUM:
        return functools.reduce(jnp.add, parts)
    return functools.reduce(jnp.add, [for_mean(part) for part in parts]) / len(parts)


def as_components(value: DistributedValues, what: str) -> DistributedValues:
    """Returns `value` with every component an array, all of one shape and dtype.

    Raises:
      ValueError: shapes or dtypes differ; the text lists them by replica.
    """
    buffers = storage_of(value)
    if buffers is not None:
        require_summable(buffers.assembled, what)
        return value
    parts = [array_of(part, what) for part in value.values]
    first = parts[0]
    if any(part.shape != first.shape or part.dtype != first.dtype for part in parts[1:]):
        listing = ", ".join(f"replica {i}: {p.dtype}{list(p.shape)}" for i, p in enumerate(parts))
        raise ValueError(
            f"{what} needs the same shape and dtype on every replica; got {listing}. If the "
            "replicas have different numbers of rows, as in a last partial batch, reduce over "
            "them as well: strategy.reduce(op, value, axis=0)."
        )
    require_summable(first, what)
    return world().replicas.with_parts(value, parts)


def require_summable(array: jax.Array, what: str) -> None:
    """Raises `TypeError` for random keys and booleans."""
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        raise TypeError(
            f"{what} cannot add random keys. To join them, use strategy.gather(keys, axis=0)."
        )
    if array.dtype == jnp.bool_:
        raise TypeError(
            f"{what} cannot add booleans. Convert them first, for example with x.astype(jnp.int32)."
        )


def array_of(part: object, what: str) -> jax.Array:
    """Returns a concrete array from one component; `TypeError` for what is no array."""
    world().refuse_traced(
        part,
        lambda: TypeError(
            f"{what} was given a value that JAX is tracing (inside jax.jit, jax.grad, ...). "
            "Communicate outside of the traced function; for a loss use "
            "rx.distribute.get_replica_context().all_reduce under rx.value_and_grad, which has a "
            "gradient."
        ),
    )
    try:
        return as_array(part)
    except (PerReplicaValueError, IntegersTooLargeError):
        raise
    except (TypeError, ValueError):
        raise TypeError(
            f"{what} works on arrays and numbers; a component is {part!r} of type "
            f"{type(part).__name__}. To look at such values use "
            "strategy.experimental_local_results(value)."
        ) from None


def all_reduce_in_trace(
    mesh: ReplicaMesh, op: ReduceOp, values: Sequence[DistributedValues], bytes_per_pack: int
) -> list[Any]:
    """Reduces many values at once, in a trace that speaks for the replicas of `mesh`."""
    results: list[Any] = [None] * len(values)
    # What is the same everywhere already was reduced to fewer devices before.
    whole = [i for i, value in enumerate(values) if local_count(value) == len(mesh.devices)]
    arrays = [component(values[i], EACH) for i in whole]
    reduced = all_reduce_traced(arrays, op, mesh, bytes_per_pack)
    for index, array in zip(whole, reduced, strict=True):
        buffers = TracedBuffers(mesh, array, mirrored=True)
        results[index] = value_of_buffers(Mirrored, buffers)
    for index, value in enumerate(values):
        if results[index] is None:
            results[index] = combine(op, value.values)
    return results


def assembled_over(mesh: ReplicaMesh, value: DistributedValues) -> jax.Array:
    """Returns the components of a value, which are on the devices of `mesh`, as one array."""
    return (storage_of(value) or ReplicaBuffers(mesh, components=list(value.values))).assembled


def combine(op: ReduceOp, parts: Sequence[jax.Array]) -> jax.Array:
    """Returns the reduction of arrays on one device, that of the first."""
    if len(parts) == 1:
        return for_mean(parts[0]) if op is ReduceOp.MEAN else parts[0]
    home = component_devices(PerReplica(parts))[0]
    return _reduce_on_one_device(tuple(put(part, home) for part in parts), op)


def concatenate(parts: Sequence[Any], axis: int, device: Device, what: str) -> jax.Array:
    """Returns the components joined along `axis`, in replica order, on one device.

    Raises:
      ValueError: scalars, another number of dimensions, sizes that differ off the axis, or an
        axis out of range; the text lists the shapes by replica.
    """
    return _joined([array_of(part, what) for part in parts], axis, device, what)


def concatenate_traced(local: object, axis: int, replicas: int, what: str) -> jax.Array:
    """Returns `concatenate` of what each replica has, in a program that is being traced."""
    local = array_of(local, what)
    axis = checked_axis([local] * replicas, axis, what)
    if local.size == 0:
        return jnp.concatenate([local] * replicas, axis=axis)
    return over_replicas(jax.lax.all_gather, local, axis=axis, tiled=True)


def _joined(arrays: list[jax.Array], axis: int, device: Device, what: str) -> jax.Array:
    axis = checked_axis(arrays, axis, what)
    if len(arrays) == 1:
        return put(arrays[0], device)
    with jax.default_device(device):
        return jnp.concatenate([put(array, device) for array in arrays], axis=axis)


def checked_axis(arrays: Sequence[jax.Array | jax.ShapeDtypeStruct], axis: int, what: str) -> int:
    if not isinstance(axis, int | np.integer) or isinstance(axis, bool):
        raise TypeError(f"{what}: `axis` must be an integer; got {axis!r}.")
    listing = ", ".join(f"replica {i}: {a.dtype}{list(a.shape)}" for i, a in enumerate(arrays))
    rank = arrays[0].ndim
    if rank == 0 or any(array.ndim != rank for array in arrays):
        raise ValueError(
            f"{what} joins arrays with one or more dimensions, as many on every replica; got "
            f"{listing}. Give scalars a dimension with x[None], or use a reduction."
        )
    if not -rank <= axis < rank:
        raise ValueError(
            f"{what}: axis {axis} is out of range for {rank} dimension(s): {listing}. It must be "
            f"from {-rank} to {rank - 1}."
        )
    axis %= rank
    rest = {array.shape[:axis] + array.shape[axis + 1 :] for array in arrays}
    if len(rest) > 1 or len({array.dtype for array in arrays}) > 1:
        raise ValueError(
            f"{what} needs the same dtype and the same sizes except along axis {axis}; got "
            f"{listing}."
        )
    return axis
