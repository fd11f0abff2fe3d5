"""Checkpoints: what a program has to remember, on the disk and back."""

from replicax._src.checkpoints._access import between_saves as between_saves
from replicax._src.checkpoints._access import is_as_on_disk as is_as_on_disk
from replicax._src.checkpoints._access import keeping_leftovers as keeping_leftovers
from replicax._src.checkpoints._access import last_on_disk as last_on_disk
from replicax._src.checkpoints._access import link_whole as link_whole
from replicax._src.checkpoints._access import require_whole as require_whole
from replicax._src.checkpoints._access import sweep as sweep
from replicax._src.checkpoints._checkpoint import Checkpoint as Checkpoint
from replicax._src.checkpoints._converting import FORMATS as FORMATS
from replicax._src.checkpoints._converting import PART_BYTES as PART_BYTES
from replicax._src.checkpoints._converting import Conversion as Conversion
from replicax._src.checkpoints._converting import convert as convert
from replicax._src.checkpoints._converting import read_rules as read_rules
from replicax._src.checkpoints._graph import named_variables_in as named_variables_in
from replicax._src.checkpoints._graph import variables_in as variables_in
from replicax._src.checkpoints._latest import checkpoints_iterator as checkpoints_iterator
from replicax._src.checkpoints._latest import latest_checkpoint as latest_checkpoint
from replicax._src.checkpoints._latest import list_checkpoints as list_checkpoints
from replicax._src.checkpoints._lock import PathLock as PathLock
from replicax._src.checkpoints._manager import CheckpointManager as CheckpointManager
from replicax._src.checkpoints._manager import manager_watchers as manager_watchers
from replicax._src.checkpoints._preemption import (
    PreemptionCheckpointHandler as PreemptionCheckpointHandler,
)
from replicax._src.checkpoints._preemption import TerminationConfig as TerminationConfig
from replicax._src.checkpoints._reading import CheckpointReader as CheckpointReader
from replicax._src.checkpoints._reading import CheckpointState as CheckpointState
from replicax._src.checkpoints._reading import get_checkpoint_state as get_checkpoint_state
from replicax._src.checkpoints._reading import list_variables as list_variables
from replicax._src.checkpoints._reading import load_checkpoint as load_checkpoint
from replicax._src.checkpoints._reading import load_variable as load_variable
from replicax._src.checkpoints._sidecar import SidecarEvaluator as SidecarEvaluator
from replicax._src.checkpoints._status import CheckpointLoadStatus as CheckpointLoadStatus
