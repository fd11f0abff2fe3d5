"""Where a compiled program runs."""

from __future__ import annotations

import dataclasses
import functools

from replicax._src._typing import Device
from replicax._src.devices import ReplicaMesh, need_mesh, replica_mesh


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a program runs.

    Attributes:
      devices: of the replicas.
      replica: the replica that it is for, if eager replicas call it.
      is_open: whether nothing but a default speaks for these devices.
      by_value: whether it takes the values of variables, wherever those are: it is exported.
    """

    devices: tuple[Device, ...]
    replica: int | None = None
    is_open: bool = False
    by_value: bool = False

    @functools.cached_property
    def mesh(self) -> ReplicaMesh | None:
        """The mesh of a program for several devices."""
        return replica_mesh(self.devices) if need_mesh(self.devices) else None
