"""`rx.distribute.experimental.coordinator`: names of `rx.distribute.coordinator`, as TensorFlow."""

from replicax._src.parameter_servers import ClusterCoordinator as ClusterCoordinator
from replicax._src.parameter_servers import PerWorkerValues as PerWorkerValues
from replicax._src.parameter_servers import RemoteValue as RemoteValue

__all__ = ["ClusterCoordinator", "PerWorkerValues", "RemoteValue"]
