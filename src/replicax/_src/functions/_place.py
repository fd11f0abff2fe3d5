"""Where a compiled program runs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from typing import Any

from replicax._src._planned_arrays import is_planned, shapes_only
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

    def computing(self) -> contextlib.AbstractContextManager[Any]:
        """Around operations that are carried out there: planned devices have shapes alone."""
        device = self.devices[0]
        return shapes_only(device) if is_planned(device) else contextlib.nullcontext()
