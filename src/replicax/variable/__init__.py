"""Variables: mutable arrays that follow the strategy in whose scope they are made."""

from replicax.variable._creator import variable_creator_scope as variable_creator_scope
from replicax.variable._distributed import AggregatingVariable as AggregatingVariable
from replicax.variable._distributed import ComponentVariable as ComponentVariable
from replicax.variable._distributed import DistributedVariable as DistributedVariable
from replicax.variable._distributed import MirroredVariable as MirroredVariable
from replicax.variable._distributed import SyncOnReadVariable as SyncOnReadVariable
from replicax.variable._interception import Interceptor as Interceptor
from replicax.variable._interception import active_interceptors as active_interceptors
from replicax.variable._interception import intercepting as intercepting
from replicax.variable._interception import trace_stamp as trace_stamp
from replicax.variable._late_values import late_value_sources as late_value_sources
from replicax.variable._late_values import outside_of_everything as outside_of_everything
from replicax.variable._policy import VariableAggregation as VariableAggregation
from replicax.variable._policy import VariableSynchronization as VariableSynchronization
from replicax.variable._program_state import ProgramState as ProgramState
from replicax.variable._program_state import VariableGone as VariableGone
from replicax.variable._trees import arrays as arrays
from replicax.variable._trees import assign as assign
from replicax.variable._trees import is_no_value as is_no_value
from replicax.variable._trees import is_variable_leaf as is_variable_leaf
from replicax.variable._trees import variable_behind as variable_behind
from replicax.variable._trees import variables as variables
from replicax.variable._variable import UPDATING as UPDATING
from replicax.variable._variable import Variable as Variable
