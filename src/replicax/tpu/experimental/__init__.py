"""`rx.tpu.experimental`: names that TensorFlow keeps there."""

from replicax._src.cluster.resolvers import TPUSystemMetadata as TPUSystemMetadata
from replicax._src.devices import DeviceAssignment as DeviceAssignment
from replicax._src.devices import DeviceOrderMode as DeviceOrderMode
from replicax._src.devices import Topology as Topology
from replicax._src.strategies import initialize_tpu_system as initialize_tpu_system
from replicax._src.strategies import shutdown_tpu_system as shutdown_tpu_system
