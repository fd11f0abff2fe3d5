"""Values of replicas, computed with one after the other or all at once: see `context/_world.py`."""

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
    all_reduce,
    all_reduce_in_trace,
    as_components,
    concatenate,
    concatenate_traced,
)
from replicax._src.collectives._reduce_op import ReduceOp
from replicax._src.context import EACH, Replicas
from replicax._src.devices import ReplicaMesh, over_replicas
from replicax._src.values import (
    DistributedValues,
    Mirrored,
    PerReplica,
    ReplicaBuffers,
    TracedBuffers,
    buffers_of,
    component,
    local_count,
    regroup,
    regroup_traced,
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
        buffers = buffers_of(value)
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
        return all_reduce(op, values, bytes_per_pack)

    @override
    def gather(self, value: DistributedValues, axis: int, device: Device) -> jax.Array:
        return concatenate(value.values, axis, device, "gather")

    @override
    def update_copies(
        self, devices: Sequence[Device], updating: Updating, update: Callable[[Any], Any]
    ) -> Any:
        results = []
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
    """The trace speaks for those replicas whose arguments have certain shapes."""

    @override
    def number_of_items(
        self, value: DistributedValues, axes: Sequence[int], over_workers: Callable[[int], int]
    ) -> Any:
        items = _items(value._component(EACH).shape, axes)
        return weakened(over_replicas(jax.lax.psum, jnp.asarray(items)))

    @override
    def over_all(self, number: int, add_up: Callable[[jax.Array], jax.Array]) -> Any:
        return add_up(jnp.asarray(number))


def _items(shape: Sequence[int], axes: Sequence[int]) -> int:
    return math.prod(shape[axis] for axis in axes)
