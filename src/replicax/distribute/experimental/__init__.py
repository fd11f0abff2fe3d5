"""`rx.distribute.experimental`: names that TensorFlow keeps there."""

from typing import Any

from replicax._old_names import old_attribute as _old_attribute
from replicax.checkpoints import PreemptionCheckpointHandler as PreemptionCheckpointHandler
from replicax.checkpoints import TerminationConfig as TerminationConfig
from replicax.collectives import CollectiveHints as CollectiveHints
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
    "CollectiveHints",
    "CommunicationImplementation",
    "CommunicationOptions",
    "MultiWorkerMirroredStrategy",
    "PreemptionCheckpointHandler",
    "TPUStrategy",
    "TerminationConfig",
    "ValueContext",
]


def __getattr__(name: str) -> Any:
    older = {"CollectiveCommunication": CommunicationImplementation}
    return _old_attribute("rx.distribute.experimental", name, older)
