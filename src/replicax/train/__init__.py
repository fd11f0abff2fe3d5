"""`rx.train`: checkpoints, clusters and the messages of records, under TensorFlow's names."""

from replicax.checkpoints import Checkpoint as Checkpoint
from replicax.checkpoints import CheckpointManager as CheckpointManager
from replicax.checkpoints import checkpoints_iterator as checkpoints_iterator
from replicax.checkpoints import get_checkpoint_state as get_checkpoint_state
from replicax.checkpoints import latest_checkpoint as latest_checkpoint
from replicax.checkpoints import list_checkpoints as list_checkpoints
from replicax.checkpoints import list_variables as list_variables
from replicax.checkpoints import load_checkpoint as load_checkpoint
from replicax.checkpoints import load_variable as load_variable
from replicax.cluster import ClusterDef as ClusterDef
from replicax.cluster import ClusterSpec as ClusterSpec
from replicax.cluster import JobDef as JobDef
from replicax.records import BytesList as BytesList
from replicax.records import Example as Example
from replicax.records import Feature as Feature
from replicax.records import Features as Features
from replicax.records import FloatList as FloatList
from replicax.records import Int64List as Int64List
