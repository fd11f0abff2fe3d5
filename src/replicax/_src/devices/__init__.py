"""Device names, virtual devices, placement, and the replica mesh."""

from replicax._src.devices._constant import constant as constant
from replicax._src.devices._device_assignment import DeviceAssignment as DeviceAssignment
from replicax._src.devices._device_assignment import DeviceOrderMode as DeviceOrderMode
from replicax._src.devices._device_assignment import device_assignment as device_assignment
from replicax._src.devices._launches import append_result as append_result
from replicax._src.devices._launches import token as token
from replicax._src.devices._layout import PLAIN as PLAIN
from replicax._src.devices._layout import Layout as Layout
from replicax._src.devices._layout import checked_parts as checked_parts
from replicax._src.devices._layout import whole_numbers as whole_numbers
from replicax._src.devices._mesh import REPLICA_AXIS as REPLICA_AXIS
from replicax._src.devices._mesh import ReplicaMesh as ReplicaMesh
from replicax._src.devices._mesh_of import replica_mesh as replica_mesh
from replicax._src.devices._names import canonical_name as canonical_name
from replicax._src.devices._names import canonical_names as canonical_names
from replicax._src.devices._names import devices_of_kind as devices_of_kind
from replicax._src.devices._names import name_this_process as name_this_process
from replicax._src.devices._names import replaced_by as replaced_by
from replicax._src.devices._names import resolve as resolve
from replicax._src.devices._names import resolve_all as resolve_all
from replicax._src.devices._names import short_name as short_name
from replicax._src.devices._over_replicas import over_replicas as over_replicas
from replicax._src.devices._packing import BETWEEN_WORKERS as BETWEEN_WORKERS
from replicax._src.devices._packing import IN_ONE_PROCESS as IN_ONE_PROCESS
from replicax._src.devices._packing import Packing as Packing
from replicax._src.devices._placement import device as device
from replicax._src.devices._placement import device_of as device_of
from replicax._src.devices._placement import put as put
from replicax._src.devices._planned import HARDWARE as HARDWARE
from replicax._src.devices._planned import Hardware as Hardware
from replicax._src.devices._planned import PlannedDevices as PlannedDevices
from replicax._src.devices._planned import are_plans_made as are_plans_made
from replicax._src.devices._planned import plan_of as plan_of
from replicax._src.devices._planned import planned_devices as planned_devices
from replicax._src.devices._planned import refuse_planned as refuse_planned
from replicax._src.devices._registry import LogicalDevice as LogicalDevice
from replicax._src.devices._registry import LogicalDeviceConfiguration as LogicalDeviceConfiguration
from replicax._src.devices._registry import PhysicalDevice as PhysicalDevice
from replicax._src.devices._registry import list_logical_devices as list_logical_devices
from replicax._src.devices._registry import list_physical_devices as list_physical_devices
from replicax._src.devices._registry import planned_cpu_devices as planned_cpu_devices
from replicax._src.devices._registry import (
    set_logical_device_configuration as set_logical_device_configuration,
)
from replicax._src.devices._replicas import Coworkers as Coworkers
from replicax._src.devices._replicas import Groups as Groups
from replicax._src.devices._replicas import ReplicaDevices as ReplicaDevices
from replicax._src.devices._replicas import groups_of as groups_of
from replicax._src.devices._replicas import have_others as have_others
from replicax._src.devices._replicas import in_groups as in_groups
from replicax._src.devices._replicas import need_mesh as need_mesh
from replicax._src.devices._replicas import replicas_on as replicas_on
from replicax._src.devices._topology import Topology as Topology
from replicax._src.devices._topology import best_local_devices as best_local_devices
from replicax._src.devices._topology import devices_of_all_processes as devices_of_all_processes
from replicax._src.devices._topology import topology_of as topology_of
