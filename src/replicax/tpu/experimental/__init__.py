"""`rx.tpu.experimental`: names that TensorFlow keeps there."""

from replicax.cluster.resolvers import TPUSystemMetadata as TPUSystemMetadata
from replicax.devices import DeviceAssignment as DeviceAssignment
from replicax.devices import DeviceOrderMode as DeviceOrderMode
from replicax.devices import Topology as Topology
from replicax.strategies import initialize_tpu_system as initialize_tpu_system
from replicax.strategies import shutdown_tpu_system as shutdown_tpu_system
