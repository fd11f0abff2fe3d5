"""Combining the values of replicas: reductions, gathers, and the classes that carry them out."""

from replicax._src.collectives._across_workers import gather_across as gather_across
from replicax._src.collectives._across_workers import numbers_everywhere as numbers_everywhere
from replicax._src.collectives._across_workers import of_first_replica as of_first_replica
from replicax._src.collectives._across_workers import of_first_worker as of_first_worker
from replicax._src.collectives._all_reduce import array_of as array_of
from replicax._src.collectives._all_reduce import as_components as as_components
from replicax._src.collectives._all_reduce import require_summable as require_summable
from replicax._src.collectives._cross_device_ops import CrossDeviceOps as CrossDeviceOps
from replicax._src.collectives._cross_device_ops import (
    HierarchicalCopyAllReduce as HierarchicalCopyAllReduce,
)
from replicax._src.collectives._cross_device_ops import NcclAllReduce as NcclAllReduce
from replicax._src.collectives._cross_device_ops import ReductionToOneDevice as ReductionToOneDevice
from replicax._src.collectives._cross_device_ops import scattered as scattered
from replicax._src.collectives._destinations import default_device as default_device
from replicax._src.collectives._destinations import destination_devices as destination_devices
from replicax._src.collectives._destinations import mirror as mirror
from replicax._src.collectives._differentiable import (
    all_gather_with_gradient as all_gather_with_gradient,
)
from replicax._src.collectives._differentiable import (
    all_reduce_with_gradient as all_reduce_with_gradient,
)
from replicax._src.collectives._fusion import DEFAULT_BYTES_PER_PACK as DEFAULT_BYTES_PER_PACK
from replicax._src.collectives._options import CollectiveHints as CollectiveHints
from replicax._src.collectives._options import (
    CommunicationImplementation as CommunicationImplementation,
)
from replicax._src.collectives._options import CommunicationOptions as CommunicationOptions
from replicax._src.collectives._options import as_options as as_options
from replicax._src.collectives._parts import own_part as own_part
from replicax._src.collectives._parts import part_shape as part_shape
from replicax._src.collectives._parts import whole_of_parts as whole_of_parts
from replicax._src.collectives._reduce_op import ReduceOp as ReduceOp
from replicax._src.collectives._reduce_op import ReduceOpLike as ReduceOpLike
from replicax._src.collectives._reduce_op import as_reduce_op as as_reduce_op
from replicax._src.collectives._replicas import ReplicasTogether as ReplicasTogether
from replicax._src.collectives._replicas import SeparateReplicas as SeparateReplicas
from replicax._src.collectives._replicas import UnevenReplicasTogether as UnevenReplicasTogether
from replicax._src.collectives._weighted_gradients import (
    gradients_weighted_by as gradients_weighted_by,
)
from replicax._src.collectives._weighted_gradients import weighted as weighted
