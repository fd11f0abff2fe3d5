"""`rx.distribute.experimental`: names that TensorFlow keeps there."""

from replicax.checkpoints import PreemptionCheckpointHandler as PreemptionCheckpointHandler
from replicax.checkpoints import TerminationConfig as TerminationConfig
from replicax.collectives import CollectiveHints as CollectiveHints
from replicax.collectives import CommunicationImplementation as CollectiveCommunication
from replicax.collectives import CommunicationImplementation as CommunicationImplementation
from replicax.collectives import CommunicationOptions as CommunicationOptions
from replicax.strategies import CentralStorageStrategy as CentralStorageStrategy
from replicax.strategies import (
    ExperimentalMultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy,
)
from replicax.strategies import ExperimentalTPUStrategy as TPUStrategy
from replicax.strategies import ValueContext as ValueContext

__all__ = [
    "CentralStorageStrategy",
    "CollectiveCommunication",
    "CollectiveHints",
    "CommunicationImplementation",
    "CommunicationOptions",
    "MultiWorkerMirroredStrategy",
    "PreemptionCheckpointHandler",
    "TPUStrategy",
    "TerminationConfig",
    "ValueContext",
]
