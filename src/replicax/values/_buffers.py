"""One array per replica, kept as single-device arrays, as one assembled array, or as both.

Eager code asks for components, compiled programs take the assembled form; each is made from the
other when someone asks, without copying data, and then kept. Immutable, so that threads can share
it: an update makes a new one.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax

from replicax._jax_internals import local_shards, uncommitted
from replicax.devices import ReplicaMesh, put


class ReplicaBuffers:
    """The components of one value or variable, one on each device of a replica mesh."""

    __slots__ = ("_assembled", "_components", "mesh")

    def __init__(
        self,
        mesh: ReplicaMesh,
        components: Sequence[jax.Array] | None = None,
        assembled: jax.Array | None = None,
    ):
        self.mesh = mesh
        self._components: list[jax.Array | None] = (
            [None] * mesh.size if components is None else list(components)
        )
        self._assembled = assembled

    def component(self, replica_id: int) -> jax.Array:
        found = self._components[replica_id]
        if found is None:
            assert self._assembled is not None
            found = uncommitted(local_shards(self._assembled)[replica_id])
            self._components[replica_id] = found
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a component."""
        return (self._assembled if self._assembled is not None else self.component(0)).shape

    @property
    def components(self) -> tuple[jax.Array, ...]:
        return tuple(self.component(index) for index in range(self.mesh.size))

    @property
    def assembled(self) -> jax.Array:
        """One array over the mesh; the components must have one shape and dtype."""
        if self._assembled is None:
            # A user's function may have left a component on another device; bring it home.
            self._assembled = self.mesh.assemble(
                [put(part, device) for part, device in zip(self.components, self.mesh.devices)]
            )
        return self._assembled

    def with_component(self, replica_id: int, array: jax.Array) -> ReplicaBuffers:
        parts = list(self.components)
        parts[replica_id] = put(array, self.mesh.devices[replica_id])
        return ReplicaBuffers(self.mesh, components=parts)

    @staticmethod
    def broadcast(mesh: ReplicaMesh, array: object) -> ReplicaBuffers:
        """The same array on every device, in one transfer."""
        return ReplicaBuffers(mesh, assembled=jax.device_put(array, mesh.replicated))
