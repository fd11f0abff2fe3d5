"""`rx.distribute.coordinator`: functions on the workers of a `ParameterServerStrategy`."""

from replicax._src._public import name_publicly as _name_publicly
from replicax._src.parameter_servers import ClusterCoordinator as ClusterCoordinator
from replicax._src.parameter_servers import PerWorkerValues as PerWorkerValue
from replicax._src.parameter_servers import PerWorkerValues as PerWorkerValues
from replicax._src.parameter_servers import RemoteValue as RemoteValue
from replicax._src.parameter_servers import StalenessReport as StalenessReport
from replicax._src.parameter_servers import (
    experimental_get_current_worker_index as experimental_get_current_worker_index,
)

__all__ = [
    "ClusterCoordinator",
    "PerWorkerValue",
    "PerWorkerValues",
    "RemoteValue",
    "StalenessReport",
    "experimental_get_current_worker_index",
]

_name_publicly(__name__)
