"""`rx.distribute`: strategies, contexts and values, under TensorFlow's names."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from replicax._src._public import load_on_demand as _load_on_demand
from replicax._src.collectives import CrossDeviceOps as CrossDeviceOps
from replicax._src.collectives import HierarchicalCopyAllReduce as HierarchicalCopyAllReduce
from replicax._src.collectives import NcclAllReduce as NcclAllReduce
from replicax._src.collectives import ReduceOp as ReduceOp
from replicax._src.collectives import ReductionToOneDevice as ReductionToOneDevice
from replicax._src.context import ReplicaContext as ReplicaContext
from replicax._src.context import experimental_set_strategy as experimental_set_strategy
from replicax._src.context import get_replica_context as get_replica_context
from replicax._src.context import get_strategy as get_strategy
from replicax._src.context import has_strategy as has_strategy
from replicax._src.context import in_cross_replica_context as in_cross_replica_context
from replicax._src.data.distributed import DistributedDataset as DistributedDataset
from replicax._src.data.distributed import DistributedIterator as DistributedIterator
from replicax._src.data.distributed import InputContext as InputContext
from replicax._src.data.distributed import InputOptions as InputOptions
from replicax._src.data.distributed import InputReplicationMode as InputReplicationMode
from replicax._src.devices import Layout as Layout
from replicax._src.strategies import CentralStorageStrategy as CentralStorageStrategy
from replicax._src.strategies import MirroredStrategy as MirroredStrategy
from replicax._src.strategies import MultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy
from replicax._src.strategies import OneDeviceStrategy as OneDeviceStrategy
from replicax._src.strategies import RunOptions as RunOptions
from replicax._src.strategies import StateLayout as StateLayout
from replicax._src.strategies import Strategy as Strategy
from replicax._src.strategies import StrategyExtended as StrategyExtended
from replicax._src.strategies import TPUStrategy as TPUStrategy
from replicax._src.strategies import ValueContext as ValueContext
from replicax._src.values import DistributedValues as DistributedValues
from replicax._src.values import Mirrored as Mirrored
from replicax._src.values import PerReplica as PerReplica
from replicax.distribute import cluster_resolver as cluster_resolver
from replicax.distribute import experimental as experimental

if _TYPE_CHECKING:
    from replicax._src.parameter_servers import ParameterServerStrategy as ParameterServerStrategy
    from replicax.distribute import coordinator as coordinator
else:
    __all__, __getattr__, __dir__ = _load_on_demand(
        __name__,
        {
            "replicax.distribute": "coordinator",
            "replicax._src.parameter_servers": "ParameterServerStrategy",
        },
    )
