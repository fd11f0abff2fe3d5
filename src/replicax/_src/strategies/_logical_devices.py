"""The logical devices of a replica: a tensor split over them, on all of them, or on one.

Values do not change. In a compiled program these are marks for the compiler, which divides the work
and inserts the communication. Eagerly the tensor is moved at once, and operations on it follow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding

from replicax._src._arrays import as_array
from replicax._src._errors import DeviceError, add_note
from replicax._src._jax_internals import uncommitted
from replicax._src._typing import Device, Tracer
from replicax._src.context import first_of, get_replica_context, replica_id_of, world
from replicax._src.devices import (
    ReplicaMesh,
    checked_parts,
    device_of,
    in_groups,
    plan_of,
    replica_mesh,
    resolve_all,
    supposed,
)
from replicax._src.values import DistributedValues, array_here


def split(devices: tuple[Device, ...], tensor: object, partition_dimensions: Sequence[int]) -> Any:
    what = "experimental_split_to_logical_devices"
    mesh = replica_mesh(devices)

    def split_one(array: jax.Array, replica: int | None) -> Any:
        parts = checked_parts(
            array.shape, partition_dimensions, mesh.logical_devices, what, "partition_dimensions"
        )
        return _laid_out(mesh, array, parts, replica)

    return _each(mesh, tensor, split_one, what)


def replicate(devices: tuple[Device, ...], tensor: object) -> Any:
    what = "experimental_replicate_to_logical_devices"
    mesh = replica_mesh(devices)
    return _each(mesh, tensor, lambda array, replica: _laid_out(mesh, array, (), replica), what)


def assign(devices: tuple[Device, ...], tensor: object, logical_device_id: int) -> Any:
    what = "experimental_assign_to_logical_device"
    mesh = replica_mesh(devices)
    is_number = isinstance(logical_device_id, int | np.integer)
    if not is_number or isinstance(logical_device_id, bool):
        raise TypeError(f"{what}: `logical_device_id` is an integer; got {logical_device_id!r}.")
    if not 0 <= logical_device_id < mesh.logical_devices:
        raise ValueError(
            f"{what}: there is no logical device {logical_device_id}; a replica has "
            f"{mesh.logical_devices}, numbered from 0 to {mesh.logical_devices - 1}."
        )

    def assign_one(array: jax.Array, replica: int | None) -> Any:
        if mesh.logical_devices == 1:
            return array
        if world().replicas.are_together:
            # One program runs on all logical devices; the result is then kept on this one alone.
            marked = _laid_out(mesh, array, (), None)
            world().keep_on(marked, int(logical_device_id))
            return marked
        return _moved(mesh.logical_device(replica or 0, int(logical_device_id)), array)

    return _each(mesh, tensor, assign_one, what)


def _laid_out(
    mesh: ReplicaMesh, array: jax.Array, parts: tuple[int, ...], replica: int | None
) -> Any:
    if mesh.logical_devices == 1:
        return array
    if 0 in array.shape:  # there is nothing to split, and JAX cannot
        parts = ()
    if world().replicas.are_together:
        return mesh.split_inside(array, parts, None)
    if replica is None and mesh.size > 1:  # of no replica: the same for all
        return jax.device_put(array, NamedSharding(mesh.mesh, mesh.spec(parts)))
    if not isinstance(array, Tracer):
        return mesh.split_inside(uncommitted(_on_one(array)), parts, replica or 0)
    try:
        return mesh.split_inside(array, parts, replica or 0)
    except ValueError:  # eagerly differentiated, and assigned to one device before
        return _moved(mesh.sharding_of_replica(parts, replica or 0), array)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _moved(place: Device | NamedSharding, array: jax.Array) -> jax.Array:
    """Returns `array` on other devices. Its gradient may be added to others, wherever these are.

    That of `jax.device_put` alone would be bound to the device where the array came from.
    """
    return jax.device_put(array, place)


def _moved_forward(place: Device | NamedSharding, array: jax.Array) -> tuple[jax.Array, None]:
    return _moved(place, array), None


def _moved_backward(place: Device | NamedSharding, _: None, gradient: jax.Array) -> tuple[Any]:
    return (gradient if isinstance(gradient, Tracer) else uncommitted(_on_one(gradient)),)


_moved.defvjp(_moved_forward, _moved_backward)


def _on_one(array: jax.Array) -> jax.Array:
    """Returns a single-device array; JAX does not move others."""
    if array.sharding.num_devices == 1:
        return array
    return jax.device_put(array, device_of(array))


def _each(
    mesh: ReplicaMesh, tensor: object, fn: Callable[[jax.Array, int | None], jax.Array], what: str
) -> Any:
    """Returns `fn(array, replica)` of a tensor, or of each component of a per-replica value."""
    tensor = array_here(tensor)
    if isinstance(tensor, DistributedValues):
        return world().replicas.map_numbered(
            lambda part, number: fn(as_array(part), number), tensor
        )
    try:
        array = as_array(tensor)
    except (TypeError, ValueError):
        raise TypeError(
            f"{what} takes one tensor; got {type(tensor).__name__}. Call it on each tensor of a "
            "structure."
        ) from None
    context = get_replica_context()
    return fn(array, None if context is None else first_of(replica_id_of(context)))


def explain(error: BaseException) -> None:
    """Adds what to do about tensors that lie on different logical devices."""
    if isinstance(error, ValueError) and "incompatible devices for jitted" in str(error):
        add_note(
            error,
            "(tensors of different devices were combined. A tensor that is assigned to one logical "
            "device, or was put on a device with jax.device_put, can be combined with one that is "
            "split over several after strategy.experimental_replicate_to_logical_devices(tensor))",
        )


def grouped(
    devices: Sequence[str | Device] | None, logical_devices_per_replica: int
) -> tuple[Device, ...]:
    """Returns the devices of replicas with so many logical devices each, neighbours in the list."""
    count = logical_devices_per_replica
    if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 1:
        raise ValueError(
            f"`logical_devices_per_replica` is a number of devices, at least 1; got {count!r}."
        )
    found = resolve_all(devices)
    if plan_of(found[0]) is not None:
        count = supposed().logical_devices or count
    if len(found) % count:
        raise DeviceError(
            f"{len(found)} devices cannot be grouped into replicas of {count} logical devices "
            "each. Use a number of devices that is a multiple."
        )
    return in_groups(found, int(count))
