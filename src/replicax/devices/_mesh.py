"""The replica mesh: the one owner of the mesh, its axis name, and the layouts on it.

Arrays that belong to replicas are laid out as *replicated* over this mesh: every device holds a
buffer of the component's own shape. For mirrored state the buffers are equal. For per-replica
values they differ, which JAX does not check and `shard_map` over the axis reads as it should: each
device sees its own buffer. That makes one array of n components, and n components of one array,
without a copy or a reshape. Arrays of the second sort never leave replicax.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from replicax._typing import Device

REPLICA_AXIS = "replica"
_collective = threading.Lock()


class ReplicaMesh:
    """The devices of the replicas, one each, as a one-dimensional mesh."""

    def __init__(self, devices: Sequence[Device]):
        self.devices = tuple(devices)
        self.mesh = Mesh(np.array(self.devices, dtype=object), (REPLICA_AXIS,))
        self.replicated = NamedSharding(self.mesh, PartitionSpec())
        self._on_cpu = self.devices[0].platform == "cpu"

    @property
    def size(self) -> int:
        return len(self.devices)

    def assemble(self, components: Sequence[jax.Array]) -> jax.Array:
        """One array from a component on each device; all of one shape and dtype."""
        return jax.make_array_from_single_device_arrays(
            components[0].shape, self.replicated, list(components)
        )

    def spmd(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """`fn` compiled as one program in which each device sees its own buffers."""
        program = jax.jit(self.mapped(fn))

        def call(*args: Any) -> Any:
            return self.call(program, args, *args)

        call.__wrapped__ = program  # type: ignore[attr-defined]
        return call

    def mapped(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """`fn` as a part of a program: each device sees its own buffers.

        Not checked for replication (`check_vma=False`): with the check on, JAX would insert
        reductions by itself where it believes a value to be replicated.
        """
        spec = PartitionSpec()
        return jax.shard_map(fn, mesh=self.mesh, in_specs=spec, out_specs=spec, check_vma=False)

    def call(self, program: Callable[..., Any], inputs: Any, *args: Any) -> Any:
        """`program(*args)`, for a program with collectives; others may still compute `inputs`.

        Such programs must reach every device in one order, whichever threads call them. On the CPU
        they also share one pool of threads with what computes their inputs, and would wait for
        those with no thread left to make them.
        """
        with _collective:
            if self._on_cpu and inputs:
                jax.block_until_ready(inputs)
            if jax.sharding.get_abstract_mesh().empty:
                return program(*args)
            with jax.set_mesh(self.mesh):  # the user's own mesh is not ours
                return program(*args)


@functools.lru_cache(maxsize=256)
def replica_mesh(devices: tuple[Device, ...]) -> ReplicaMesh:
    """The mesh over these devices; the same object each time, so that programs can be cached."""
    return ReplicaMesh(devices)
