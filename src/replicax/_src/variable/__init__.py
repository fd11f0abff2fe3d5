"""Variables: mutable arrays that follow the strategy in whose scope they are made."""

from replicax._src.variable._creator import variable_creator_scope as variable_creator_scope
from replicax._src.variable._distributed import AggregatingVariable as AggregatingVariable
from replicax._src.variable._distributed import ComponentVariable as ComponentVariable
from replicax._src.variable._distributed import DistributedVariable as DistributedVariable
from replicax._src.variable._distributed import MirroredVariable as MirroredVariable
from replicax._src.variable._distributed import SyncOnReadVariable as SyncOnReadVariable
from replicax._src.variable._interception import Interceptor as Interceptor
from replicax._src.variable._interception import active_interceptors as active_interceptors
from replicax._src.variable._interception import intercepting as intercepting
from replicax._src.variable._interception import trace_stamp as trace_stamp
from replicax._src.variable._late_values import expect as expect_late_value  # noqa: F401
from replicax._src.variable._late_values import is_looking as is_looking
from replicax._src.variable._late_values import late_value_sources as late_value_sources
from replicax._src.variable._late_values import look as look_for_late_value  # noqa: F401
from replicax._src.variable._late_values import outside_of_everything as outside_of_everything
from replicax._src.variable._late_values import stop_looking as stop_looking
from replicax._src.variable._policy import VariableAggregation as VariableAggregation
from replicax._src.variable._policy import VariableSynchronization as VariableSynchronization
from replicax._src.variable._program_state import ProgramState as ProgramState
from replicax._src.variable._program_state import VariableGone as VariableGone
from replicax._src.variable._trees import arrays as arrays
from replicax._src.variable._trees import assign as assign
from replicax._src.variable._trees import is_array as is_array
from replicax._src.variable._trees import is_no_value as is_no_value
from replicax._src.variable._trees import is_variable_leaf as is_variable_leaf
from replicax._src.variable._trees import variable_behind as variable_behind
from replicax._src.variable._trees import variables as variables
from replicax._src.variable._variable import UPDATING as UPDATING
from replicax._src.variable._variable import Variable as Variable
