"""Variables: mutable arrays that follow the strategy in whose scope they are made."""

from replicax._src.variable._creator import variable_creator_scope as variable_creator_scope
from replicax._src.variable._distributed import AggregatingVariable as AggregatingVariable
from replicax._src.variable._distributed import ComponentVariable as ComponentVariable
from replicax._src.variable._distributed import DistributedVariable as DistributedVariable
from replicax._src.variable._distributed import MirroredVariable as MirroredVariable
from replicax._src.variable._distributed import SyncOnReadVariable as SyncOnReadVariable
from replicax._src.variable._late_values import late_value_sources as late_value_sources
from replicax._src.variable._late_values import outside_of_everything as outside_of_everything
from replicax._src.variable._policy import VariableAggregation as VariableAggregation
from replicax._src.variable._policy import VariableSynchronization as VariableSynchronization
from replicax._src.variable._program_state import ProgramState as ProgramState
from replicax._src.variable._program_state import VariableGone as VariableGone
from replicax._src.variable._trees import arrays as arrays
from replicax._src.variable._trees import assign as assign
from replicax._src.variable._trees import is_no_value as is_no_value
from replicax._src.variable._trees import is_variable_leaf as is_variable_leaf
from replicax._src.variable._trees import variable_behind as variable_behind
from replicax._src.variable._trees import variables as variables
from replicax._src.variable._variable import UPDATING as UPDATING
from replicax._src.variable._variable import Variable as Variable
