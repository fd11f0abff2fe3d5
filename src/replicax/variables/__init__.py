"""Variables: mutable arrays that follow the strategy in whose scope they are made."""

from replicax.variables._creator import variable_creator_scope as variable_creator_scope
from replicax.variables._distributed import AggregatingVariable as AggregatingVariable
from replicax.variables._distributed import ComponentVariable as ComponentVariable
from replicax.variables._distributed import DistributedVariable as DistributedVariable
from replicax.variables._distributed import MirroredVariable as MirroredVariable
from replicax.variables._distributed import SyncOnReadVariable as SyncOnReadVariable
from replicax.variables._interception import Interceptor as Interceptor
from replicax.variables._interception import active_interceptors as active_interceptors
from replicax.variables._interception import intercepting as intercepting
from replicax.variables._interception import trace_stamp as trace_stamp
from replicax.variables._late_values import late_value_sources as late_value_sources
from replicax.variables._late_values import outside_of_everything as outside_of_everything
from replicax.variables._policy import VariableAggregation as VariableAggregation
from replicax.variables._policy import VariableSynchronization as VariableSynchronization
from replicax.variables._program_state import ProgramState as ProgramState
from replicax.variables._program_state import VariableGone as VariableGone
from replicax.variables._variable import UPDATING as UPDATING
from replicax.variables._variable import Variable as Variable
