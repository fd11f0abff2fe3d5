"""Variables: mutable arrays that follow the strategy in whose scope they are made."""

from replicax._src.variable._access import catch_up as catch_up
from replicax._src.variable._access import change as change
from replicax._src.variable._access import container_of as container_of
from replicax._src.variable._access import copies_differ as copies_differ
from replicax._src.variable._access import copy_here as copy_here
from replicax._src.variable._access import devices_of as devices_of
from replicax._src.variable._access import laid_out_like as laid_out_like
from replicax._src.variable._access import mesh_of as mesh_of
from replicax._src.variable._access import moved_to as moved_to
from replicax._src.variable._access import number_of_copies as number_of_copies
from replicax._src.variable._access import own_storage as own_storage
from replicax._src.variable._access import read_storage as read_storage
from replicax._src.variable._access import root_of as root_of
from replicax._src.variable._access import set_storage as set_storage
from replicax._src.variable._access import set_whole as set_whole
from replicax._src.variable._access import settled_storage as settled_storage
from replicax._src.variable._access import start_from as start_from
from replicax._src.variable._access import storage_here as storage_here
from replicax._src.variable._access import variables_of as variables_of
from replicax._src.variable._access import whole_of as whole_of
from replicax._src.variable._creator import variable_creator_scope as variable_creator_scope
from replicax._src.variable._distributed import AggregatingVariable as AggregatingVariable
from replicax._src.variable._distributed import ComponentVariable as ComponentVariable
from replicax._src.variable._distributed import DistributedVariable as DistributedVariable
from replicax._src.variable._distributed import MirroredVariable as MirroredVariable
from replicax._src.variable._distributed import SyncOnReadVariable as SyncOnReadVariable
from replicax._src.variable._late_values import are_sources_asked as are_sources_asked
from replicax._src.variable._late_values import expect as expect_late_value  # noqa: F401
from replicax._src.variable._late_values import late_value_sources as late_value_sources
from replicax._src.variable._late_values import outside_of_everything as outside_of_everything
from replicax._src.variable._late_values import stop_looking as stop_looking
from replicax._src.variable._late_values import take_over as take_over_late_value  # noqa: F401
from replicax._src.variable._policy import Change as Change
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
