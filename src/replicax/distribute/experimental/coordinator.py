"""`rx.distribute.experimental.coordinator`: names of `rx.distribute.coordinator`, as TensorFlow."""

from replicax.distribute.coordinator import ClusterCoordinator as ClusterCoordinator
from replicax.distribute.coordinator import PerWorkerValues as PerWorkerValues
from replicax.distribute.coordinator import RemoteValue as RemoteValue

__all__ = ["ClusterCoordinator", "PerWorkerValues", "RemoteValue"]
