"""`rx.debug`: looking for what should not be."""

from replicax._src._public import name_publicly as _name_publicly
from replicax._src.divergence import ReplicaCheck as ReplicaCheck
from replicax._src.divergence import check_replicas as check_replicas
from replicax._src.divergence import check_replicas_every as check_replicas_every
from replicax._src.integrations.recorder_callback import recorder_callback as recorder_callback
from replicax._src.recording import Capsule as Capsule
from replicax._src.recording import Recorder as Recorder
from replicax._src.recording import Replayed as Replayed
from replicax._src.recording import Traps as Traps
from replicax._src.recording import load as load

_name_publicly(__name__)
