"""`rx.compat.v1.distribute.experimental`: the strategies that TensorFlow 1 kept there."""

from typing import Any

from replicax._src.compat import CentralStorageStrategy as CentralStorageStrategy
from replicax._src.compat import (
    MultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy,
)
from replicax._src.compat import TPUStrategy as TPUStrategy
from replicax.distribute import experimental as _experimental
from replicax.distribute.experimental import CollectiveHints as CollectiveHints
from replicax.distribute.experimental import (
    CommunicationImplementation as CommunicationImplementation,
)
from replicax.distribute.experimental import CommunicationOptions as CommunicationOptions


def __getattr__(name: str) -> Any:
    if name == "CollectiveCommunication":
        return _experimental.CollectiveCommunication  # which warns
    text = f"rx.compat.v1.distribute.experimental has no attribute {name!r}"
    if name == "ParameterServerStrategy":
        text += (
            ": that of TensorFlow 1 needs its sessions. Use rx.distribute.ParameterServerStrategy, "
            "with rx.distribute.coordinator.ClusterCoordinator"
        )
    raise AttributeError(text, name=name)
