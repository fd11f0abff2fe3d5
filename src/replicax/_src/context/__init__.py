"""Contexts: default, cross-replica, replica, update; per thread."""

from replicax._src.context._forks import require_threads as require_threads
from replicax._src.context._queries import get_replica_context as get_replica_context
from replicax._src.context._queries import get_strategy as get_strategy
from replicax._src.context._queries import has_strategy as has_strategy
from replicax._src.context._queries import in_cross_replica_context as in_cross_replica_context
from replicax._src.context._queries import replica_id_for as replica_id_for
from replicax._src.context._queries import require_between_steps as require_between_steps
from replicax._src.context._queries import require_cross_replica as require_cross_replica
from replicax._src.context._queries import require_in_scope as require_in_scope
from replicax._src.context._queries import update_replica_id as update_replica_id
from replicax._src.context._replica import EachReplicaContext as EachReplicaContext
from replicax._src.context._replica import ReplicaContext as ReplicaContext
from replicax._src.context._scope import StrategyScope as StrategyScope
from replicax._src.context._scope import experimental_set_strategy as experimental_set_strategy
from replicax._src.context._stack import EACH as EACH
from replicax._src.context._stack import Frame as Frame
from replicax._src.context._stack import compiling_losses as compiling_losses
from replicax._src.context._stack import copy_for as copy_for
from replicax._src.context._stack import default_strategy as default_strategy
from replicax._src.context._stack import depth as depth
from replicax._src.context._stack import entered as entered
from replicax._src.context._stack import fill_default_slot as fill_default_slot
from replicax._src.context._stack import fill_world_slot as fill_world_slot
from replicax._src.context._stack import first_of as first_of
from replicax._src.context._stack import is_compiling as is_compiling
from replicax._src.context._stack import joining_hooks as joining_hooks
from replicax._src.context._stack import let_libraries_join as let_libraries_join
from replicax._src.context._stack import thread_state as thread_state
from replicax._src.context._stack import top as current_frame  # noqa: F401
from replicax._src.context._stack import world as world
from replicax._src.context._world import Picked as Picked
from replicax._src.context._world import Replicas as Replicas
from replicax._src.context._world import World as World
