"""Parameter servers: variables on servers, functions on workers, at each one's own pace.

All of them are actors of Ray, which is imported when a strategy is made.
"""

from replicax._src.parameter_servers._coordinator import ClusterCoordinator as ClusterCoordinator
from replicax._src.parameter_servers._coordinator import (
    experimental_get_current_worker_index as experimental_get_current_worker_index,
)
from replicax._src.parameter_servers._embedding import embedding_lookup as embedding_lookup
from replicax._src.parameter_servers._partitioners import (
    FixedShardsPartitioner as FixedShardsPartitioner,
)
from replicax._src.parameter_servers._partitioners import MaxSizePartitioner as MaxSizePartitioner
from replicax._src.parameter_servers._partitioners import MinSizePartitioner as MinSizePartitioner
from replicax._src.parameter_servers._partitioners import Partitioner as Partitioner
from replicax._src.parameter_servers._remote_value import PerWorkerValues as PerWorkerValues
from replicax._src.parameter_servers._remote_value import RemoteValue as RemoteValue
from replicax._src.parameter_servers._staleness import StalenessReport as StalenessReport
from replicax._src.parameter_servers._strategy import (
    ParameterServerStrategy as ParameterServerStrategy,
)
