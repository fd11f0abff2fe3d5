"""`rx.config`: which devices there are, and virtual ones; programs that are kept."""

from replicax._src.cluster import experimental_connect_to_cluster as experimental_connect_to_cluster
from replicax._src.cluster import experimental_connect_to_host as experimental_connect_to_host
from replicax._src.devices import LogicalDevice as LogicalDevice
from replicax._src.devices import LogicalDeviceConfiguration as LogicalDeviceConfiguration
from replicax._src.devices import PhysicalDevice as PhysicalDevice
from replicax._src.devices import PlannedDevices as PlannedDevices
from replicax._src.devices import keep_compiled_programs as keep_compiled_programs
from replicax._src.devices import list_logical_devices as list_logical_devices
from replicax._src.devices import list_physical_devices as list_physical_devices
from replicax._src.devices import planned_devices as planned_devices
from replicax._src.devices import (
    set_logical_device_configuration as set_logical_device_configuration,
)
