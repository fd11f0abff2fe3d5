"""Values of replicas, computed with one after the other or all at once: see `context/_world.py`."""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src._jax_internals import weakened
from replicax._src._typing import Device, Tracer, override
from replicax._src.collectives._all_reduce import (
    all_reduce_in_trace,
    all_reduce_program,
    as_components,
    assembled_over,
    combine,
    concatenate,
    concatenate_traced,
)
from replicax._src.collectives._destinations import component_devices
from replicax._src.collectives._reduce_op import ReduceOp
from replicax._src.context import EACH, Replicas
from replicax._src.devices import ReplicaMesh, over_replicas, replica_mesh, replicas_on
from replicax._src.values import (
    DistributedValues,
    Mirrored,
    PerReplica,
    ReplicaBuffers,
    TracedBuffers,
    component,
    local_count,
    regroup,
    regroup_traced,
    storage_of,
    value_of_buffers,
)

Updating = Callable[[Any, Device], AbstractContextManager[None]]


@final
class SeparateReplicas(Replicas):
    """Each component is an array of its own: eagerly, and in a program for one device."""

    are_together = False
    any_replica = 0

    @override
    def map_components(self, fn: Callable[[Any], Any], value: DistributedValues) -> PerReplica:
        return PerReplica([fn(part) for part in value.values])

    @override
    def map_numbered(
        self, fn: Callable[[Any, int | None], Any], value: DistributedValues
    ) -> DistributedValues:
        return type(value)([fn(part, index) for index, part in enumerate(value.values)])

    @override
    def over_mesh(self, value: PerReplica, mesh: ReplicaMesh, what: str) -> PerReplica:
        buffers = storage_of(value)
        if buffers is not None and buffers.mesh is mesh:
            return value
        parts = as_components(value, what).values
        return value_of_buffers(PerReplica, ReplicaBuffers(mesh, components=list(parts)))

    @override
    def with_parts(self, value: DistributedValues, parts: Sequence[Any]) -> DistributedValues:
        return PerReplica(parts)

    @override
    def all_reduce(
        self, op: ReduceOp, values: Sequence[DistributedValues], bytes_per_pack: int
    ) -> list[Any]:
        # Components that share devices (or were plain numbers) are combined on one device.
        results: list[Any] = [None] * len(values)
        by_devices: dict[tuple[Device, ...], list[int]] = {}
        for index, value in enumerate(values):
            if component(value, 0).size == 0:
                # Nothing to send; and on the CPU, JAX 0.11 ends the process when a program with a
                # collective takes an array without items.
                results[index] = combine(op, value.values)
            else:
                by_devices.setdefault(component_devices(value), []).append(index)
        for devices, indices in by_devices.items():
            if replicas_on(devices) > 1 and len(set(devices)) == len(devices):
                mesh = replica_mesh(devices)
                arrays = [assembled_over(mesh, values[index]) for index in indices]
                reduced = all_reduce_program(mesh, op, bytes_per_pack)(arrays)
                for index, array in zip(indices, reduced, strict=True):
                    buffers = ReplicaBuffers(mesh, assembled=array)
                    results[index] = value_of_buffers(Mirrored, buffers)
            else:
                for index in indices:
                    results[index] = combine(op, values[index].values)
        return results

    @override
    def gather(self, value: DistributedValues, axis: int, device: Device) -> jax.Array:
        return concatenate(value.values, axis, device, "gather")

    @override
    def update_copies(
        self, devices: Sequence[Device], updating: Updating, update: Callable[[Any], Any]
    ) -> Any:
        results: list[Any] = []
        for index, device in enumerate(devices):
            with updating(index, device):
                results.append(update(index))
        return regroup(results, Mirrored)

    @override
    def number_of_items(
        self, value: DistributedValues, axes: Sequence[int], over_workers: Callable[[int], int]
    ) -> int:
        return over_workers(sum(_items(np.shape(part), axes) for part in value.values))

    @override
    def over_all(self, number: int, add_up: Callable[[jax.Array], jax.Array]) -> Any:
        total = add_up(jnp.asarray(number))
        # A number of Python's spares a loss that is differentiated some operations.
        return total if isinstance(total, Tracer) else int(total)


class ReplicasTogether(Replicas):
    """One trace speaks for all replicas: a value is what each of them has of it."""

    are_together = True
    any_replica = EACH

    def __init__(self, mesh: ReplicaMesh):
        self._mesh = mesh

    @override
    def map_components(self, fn: Callable[[Any], Any], value: DistributedValues) -> PerReplica:
        local = fn(component(value, EACH))
        return value_of_buffers(PerReplica, TracedBuffers(self._mesh, local))

    @override
    def map_numbered(
        self, fn: Callable[[Any, int | None], Any], value: DistributedValues
    ) -> DistributedValues:
        return self.map_components(lambda part: fn(part, None), value)

    @override
    def over_mesh(self, value: PerReplica, mesh: ReplicaMesh, what: str) -> PerReplica:
        return value  # in a program it is what each replica has, of all workers

    @override
    def with_parts(self, value: DistributedValues, parts: Sequence[Any]) -> DistributedValues:
        return value  # it is what the program captures

    @override
    def all_reduce(
        self, op: ReduceOp, values: Sequence[DistributedValues], bytes_per_pack: int
    ) -> list[Any]:
        return all_reduce_in_trace(self._mesh, op, values, bytes_per_pack)

    @override
    def gather(self, value: DistributedValues, axis: int, device: Device) -> jax.Array:
        if local_count(value) != len(self._mesh.devices):  # reduced to fewer devices before
            return concatenate(value.values, axis, device, "gather")
        return concatenate_traced(component(value, EACH), axis, self._mesh.size, "gather")

    @override
    def update_copies(
        self, devices: Sequence[Device], updating: Updating, update: Callable[[Any], Any]
    ) -> Any:
        with updating(EACH, devices[0]):
            return regroup_traced(update(EACH), self._mesh, Mirrored)

    @override
    def number_of_items(
        self, value: DistributedValues, axes: Sequence[int], over_workers: Callable[[int], int]
    ) -> int:
        return _items(component(value, EACH).shape, axes) * self._mesh.size  # one shape for all

    @override
    def over_all(self, number: int, add_up: Callable[[jax.Array], jax.Array]) -> Any:
        return number * self._mesh.size


@final
class UnevenReplicasTogether(ReplicasTogether):
    """The trace speaks for those replicas whose arguments have certain shapes.

    Attributes:
      have_gathered: whether a value was gathered, as if the others' had the shape of this one.
    """

    def __init__(self, mesh: ReplicaMesh):
        super().__init__(mesh)
        self.have_gathered = False

    @override
    def gather(self, value: DistributedValues, axis: int, device: Device) -> jax.Array:
        self.have_gathered = True
        return super().gather(value, axis, device)

    @override
    def number_of_items(
        self, value: DistributedValues, axes: Sequence[int], over_workers: Callable[[int], int]
    ) -> Any:
        items = _items(component(value, EACH).shape, axes)
        return weakened(over_replicas(jax.lax.psum, jnp.asarray(items)))

    @override
    def over_all(self, number: int, add_up: Callable[[jax.Array], jax.Array]) -> Any:
        return add_up(jnp.asarray(number))


def _items(shape: Sequence[int], axes: Sequence[int]) -> int:
    return math.prod(shape[axis] for axis in axes)
