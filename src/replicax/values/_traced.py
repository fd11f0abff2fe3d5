"""The components of a value while the program that computes it is being traced.

One trace speaks for all replicas: what it holds is *each* replica's own component. That of one
particular replica is known to the others only through a collective.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from replicax.context import EACH
from replicax.devices import REPLICA_AXIS, ReplicaMesh


class TracedBuffers:
    """What `ReplicaBuffers` is outside of a trace."""

    __slots__ = ("local", "mesh", "mirrored")

    def __init__(self, mesh: ReplicaMesh, local: Any, mirrored: bool = False):
        """
        Args:
          mesh: the devices of the components.
          local: each replica's component.
          mirrored: whether it is the same on all replicas.
        """
        self.mesh = mesh
        self.local = local
        self.mirrored = mirrored

    def component(self, replica_id: Any) -> Any:
        if replica_id is EACH or self.mirrored:
            return self.local
        return self.components[replica_id]

    @property
    def components(self) -> tuple[Any, ...]:
        if self.mirrored or 0 in self.shape:
            return (self.local,) * self.mesh.size
        gathered = jax.lax.all_gather(self.local, REPLICA_AXIS)
        return tuple(gathered[index] for index in range(self.mesh.size))

    @property
    def shape(self) -> tuple[int, ...]:
        return jnp.shape(self.local)

    @property
    def assembled(self) -> Any:
        return self.local

    def with_component(self, replica_id: Any, array: Any) -> TracedBuffers:
        if replica_id is EACH or self.mirrored:
            return TracedBuffers(self.mesh, array, self.mirrored)
        mine = jax.lax.axis_index(REPLICA_AXIS) == replica_id
        return TracedBuffers(self.mesh, jnp.where(mine, array, self.local))
