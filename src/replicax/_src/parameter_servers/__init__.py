"""Parameter servers: variables on servers, functions on workers, at each one's own pace.

All of them are actors of Ray, which is imported when a strategy is made.
"""

from replicax._src.parameter_servers._access import ForeignOptimizer as ForeignOptimizer
from replicax._src.parameter_servers._access import ForeignRule as ForeignRule
from replicax._src.parameter_servers._access import KnownOptimizer as KnownOptimizer
from replicax._src.parameter_servers._access import OptimizerSpec as OptimizerSpec
from replicax._src.parameter_servers._access import Program as Program
from replicax._src.parameter_servers._access import ServerVariable as ServerVariable
from replicax._src.parameter_servers._access import ShardedVariable as ShardedVariable
from replicax._src.parameter_servers._access import WorkerStrategy as WorkerStrategy
from replicax._src.parameter_servers._access import made_outside as made_outside
from replicax._src.parameter_servers._access import reducers as reducers
from replicax._src.parameter_servers._access import server_numbers as server_numbers
from replicax._src.parameter_servers._access import tell_servers as tell_servers
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
