"""`rx.distribute.experimental`: names that TensorFlow keeps there."""

from typing import Any

from replicax._src._old_names import old_attribute as _old_attribute
from replicax._src.checkpoints import PreemptionCheckpointHandler as PreemptionCheckpointHandler
from replicax._src.checkpoints import TerminationConfig as TerminationConfig
from replicax._src.collectives import CollectiveHints as CollectiveHints
from replicax._src.collectives import CommunicationImplementation as CommunicationImplementation
from replicax._src.collectives import CommunicationOptions as CommunicationOptions
from replicax._src.parameter_servers import ParameterServerStrategy as ParameterServerStrategy
from replicax._src.strategies import CentralStorageStrategy as CentralStorageStrategy
from replicax._src.strategies import (
    ExperimentalMultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy,
)
from replicax._src.strategies import ExperimentalTPUStrategy as TPUStrategy
from replicax._src.strategies import ValueContext as ValueContext
from replicax.distribute.experimental import coordinator as coordinator
from replicax.distribute.experimental import partitioners as partitioners

__all__ = [
    "CentralStorageStrategy",
    "CollectiveHints",
    "CommunicationImplementation",
    "CommunicationOptions",
    "MultiWorkerMirroredStrategy",
    "ParameterServerStrategy",
    "PreemptionCheckpointHandler",
    "TPUStrategy",
    "TerminationConfig",
    "ValueContext",
    "coordinator",
    "partitioners",
]


def __getattr__(name: str) -> Any:
    older = {"CollectiveCommunication": CommunicationImplementation}
    return _old_attribute("rx.distribute.experimental", name, older)
