"""`rx.distribute`: strategies, contexts and values, under TensorFlow's names."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from replicax._not_here import names_of_others as _names_of_others
from replicax.collectives import CrossDeviceOps as CrossDeviceOps
from replicax.collectives import HierarchicalCopyAllReduce as HierarchicalCopyAllReduce
from replicax.collectives import NcclAllReduce as NcclAllReduce
from replicax.collectives import ReduceOp as ReduceOp
from replicax.collectives import ReductionToOneDevice as ReductionToOneDevice
from replicax.context import ReplicaContext as ReplicaContext
from replicax.context import experimental_set_strategy as experimental_set_strategy
from replicax.context import get_replica_context as get_replica_context
from replicax.context import get_strategy as get_strategy
from replicax.context import has_strategy as has_strategy
from replicax.context import in_cross_replica_context as in_cross_replica_context
from replicax.devices import Layout as Layout
from replicax.distribute import cluster_resolver as cluster_resolver
from replicax.distribute import experimental as experimental
from replicax.input import DistributedDataset as DistributedDataset
from replicax.input import DistributedIterator as DistributedIterator
from replicax.input import InputContext as InputContext
from replicax.input import InputOptions as InputOptions
from replicax.input import InputReplicationMode as InputReplicationMode
from replicax.strategies import CentralStorageStrategy as CentralStorageStrategy
from replicax.strategies import MirroredStrategy as MirroredStrategy
from replicax.strategies import MultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy
from replicax.strategies import OneDeviceStrategy as OneDeviceStrategy
from replicax.strategies import RunOptions as RunOptions
from replicax.strategies import StateLayout as StateLayout
from replicax.strategies import Strategy as Strategy
from replicax.strategies import StrategyExtended as StrategyExtended
from replicax.strategies import TPUStrategy as TPUStrategy
from replicax.strategies import ValueContext as ValueContext
from replicax.values import DistributedValues as DistributedValues
from replicax.values import Mirrored as Mirrored
from replicax.values import PerReplica as PerReplica

if not _TYPE_CHECKING:
    __getattr__ = _names_of_others(__name__)
