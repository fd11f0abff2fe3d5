"""`rx.train`: checkpoints, averages of variables, clusters and the messages of records."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from replicax._src._public import load_on_demand as _load_on_demand
from replicax._src.cluster import ClusterDef as ClusterDef
from replicax._src.cluster import ClusterSpec as ClusterSpec
from replicax._src.cluster import JobDef as JobDef
from replicax._src.integrations import callback_on_first_worker as callback_on_first_worker
from replicax._src.records import BytesList as BytesList
from replicax._src.records import Example as Example
from replicax._src.records import Feature as Feature
from replicax._src.records import FeatureList as FeatureList
from replicax._src.records import FeatureLists as FeatureLists
from replicax._src.records import Features as Features
from replicax._src.records import FloatList as FloatList
from replicax._src.records import Int64List as Int64List
from replicax._src.records import SequenceExample as SequenceExample
from replicax._src.training import ExponentialMovingAverage as ExponentialMovingAverage
from replicax._src.training import adam as adam

if _TYPE_CHECKING:
    from replicax._src.checkpoints import Checkpoint as Checkpoint
    from replicax._src.checkpoints import CheckpointManager as CheckpointManager
    from replicax._src.checkpoints import SidecarEvaluator as SidecarEvaluator
    from replicax._src.checkpoints import checkpoints_iterator as checkpoints_iterator
    from replicax._src.checkpoints import get_checkpoint_state as get_checkpoint_state
    from replicax._src.checkpoints import latest_checkpoint as latest_checkpoint
    from replicax._src.checkpoints import list_checkpoints as list_checkpoints
    from replicax._src.checkpoints import list_variables as list_variables
    from replicax._src.checkpoints import load_checkpoint as load_checkpoint
    from replicax._src.checkpoints import load_variable as load_variable
else:
    __all__, __getattr__, __dir__ = _load_on_demand(
        __name__,
        {
            "replicax._src.checkpoints": "Checkpoint CheckpointManager SidecarEvaluator "
            "checkpoints_iterator get_checkpoint_state latest_checkpoint list_checkpoints "
            "list_variables load_checkpoint load_variable",
        },
    )
