"""Which mesh goes with which devices."""

from __future__ import annotations

import functools

from replicax._src._typing import Device
from replicax._src.devices._mesh import ReplicaMesh
from replicax._src.devices._mesh_over_workers import MeshOverWorkers
from replicax._src.devices._planned import plan_of
from replicax._src.devices._planned_mesh import PlannedMesh
from replicax._src.devices._replicas import ReplicaDevices


@functools.lru_cache(maxsize=256)
def replica_mesh(devices: tuple[Device, ...]) -> ReplicaMesh:
    """Returns the mesh over these devices, always the same object: programs are cached by it."""
    plan = plan_of(devices[0])
    if plan is not None:
        return PlannedMesh(devices, plan)
    if isinstance(devices, ReplicaDevices) and devices.coworkers is not None:
        return MeshOverWorkers(devices, devices.coworkers)
    return ReplicaMesh(devices)
