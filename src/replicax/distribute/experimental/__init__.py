"""`rx.distribute.experimental`: names that TensorFlow keeps there."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from replicax._src._old_names import old_attribute as _old_attribute
from replicax._src._public import load_on_demand as _load_on_demand
from replicax._src.collectives import CollectiveHints as CollectiveHints
from replicax._src.collectives import CommunicationImplementation as CommunicationImplementation
from replicax._src.collectives import CommunicationOptions as CommunicationOptions
from replicax._src.strategies import CentralStorageStrategy as CentralStorageStrategy
from replicax._src.strategies import (
    ExperimentalMultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy,
)
from replicax._src.strategies import ExperimentalTPUStrategy as TPUStrategy
from replicax._src.strategies import ValueContext as ValueContext

if _TYPE_CHECKING:
    from replicax._src.checkpoints import PreemptionCheckpointHandler as PreemptionCheckpointHandler
    from replicax._src.checkpoints import TerminationConfig as TerminationConfig
    from replicax.distribute import ParameterServerStrategy as ParameterServerStrategy
    from replicax.distribute.experimental import coordinator as coordinator
    from replicax.distribute.experimental import partitioners as partitioners
else:

    def _old_names(name):
        older = {"CollectiveCommunication": CommunicationImplementation}
        return _old_attribute("rx.distribute.experimental", name, older)

    _, __getattr__, __dir__ = _load_on_demand(
        __name__,
        {
            "replicax.distribute.experimental": "coordinator partitioners",
            "replicax.distribute": "ParameterServerStrategy",
            "replicax._src.checkpoints": "PreemptionCheckpointHandler TerminationConfig",
        },
        missing=_old_names,
    )

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
