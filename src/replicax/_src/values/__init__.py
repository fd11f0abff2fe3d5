"""Values that have one component per replica."""

from replicax._src.values._access import buffers_of as buffers_of
from replicax._src.values._access import component_looks as component_looks
from replicax._src.values._access import first_component as first_component
from replicax._src.values._access import is_being_computed as is_being_computed
from replicax._src.values._access import set_uneven as set_uneven
from replicax._src.values._access import value_of_buffers as value_of_buffers
from replicax._src.values._array_like import ArrayLike as ArrayLike
from replicax._src.values._buffers import OneBuffer as OneBuffer
from replicax._src.values._buffers import ReplicaBuffers as ReplicaBuffers
from replicax._src.values._buffers import drop_gathered as drop_gathered
from replicax._src.values._distributed import DistributedValues as DistributedValues
from replicax._src.values._mirrored import Mirrored as Mirrored
from replicax._src.values._one_of_many import OneOfMany as OneOfMany
from replicax._src.values._one_of_many import per_replica_type as per_replica_type
from replicax._src.values._per_replica import PerReplica as PerReplica
from replicax._src.values._regroup import StructureError as StructureError
from replicax._src.values._regroup import as_one_of_many as as_one_of_many
from replicax._src.values._regroup import check_replica_count as check_replica_count
from replicax._src.values._regroup import is_leaf as is_leaf
from replicax._src.values._regroup import regroup as regroup
from replicax._src.values._regroup import regroup_traced as regroup_traced
from replicax._src.values._regroup import released as released
from replicax._src.values._regroup import select_replica as select_replica
from replicax._src.values._storage import Storage as Storage
from replicax._src.values._traced import TracedBuffers as TracedBuffers
