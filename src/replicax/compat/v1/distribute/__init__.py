"""`rx.compat.v1.distribute`: strategies with the methods of TensorFlow 1, and the rest as it is."""

from replicax._src.compat import MirroredStrategy as MirroredStrategy
from replicax._src.compat import OneDeviceStrategy as OneDeviceStrategy
from replicax._src.compat import Strategy as Strategy
from replicax._src.compat import get_loss_reduction as get_loss_reduction
from replicax.compat.v1.distribute import cluster_resolver as cluster_resolver
from replicax.compat.v1.distribute import experimental as experimental
from replicax.distribute import CrossDeviceOps as CrossDeviceOps
from replicax.distribute import HierarchicalCopyAllReduce as HierarchicalCopyAllReduce
from replicax.distribute import InputContext as InputContext
from replicax.distribute import InputReplicationMode as InputReplicationMode
from replicax.distribute import NcclAllReduce as NcclAllReduce
from replicax.distribute import ReduceOp as ReduceOp
from replicax.distribute import ReductionToOneDevice as ReductionToOneDevice
from replicax.distribute import ReplicaContext as ReplicaContext
from replicax.distribute import RunOptions as RunOptions
from replicax.distribute import StrategyExtended as StrategyExtended
from replicax.distribute import experimental_set_strategy as experimental_set_strategy
from replicax.distribute import get_replica_context as get_replica_context
from replicax.distribute import get_strategy as get_strategy
from replicax.distribute import has_strategy as has_strategy
from replicax.distribute import in_cross_replica_context as in_cross_replica_context
