"""Strategies: what users choose, and what authors extend."""

from replicax._src.strategies import _default as _default  # fills the default slot of the contexts
from replicax._src.strategies._access import input_layout_of as input_layout_of
from replicax._src.strategies._access import replica_mesh_of as replica_mesh_of
from replicax._src.strategies._central_storage import (
    CentralStorageStrategy as CentralStorageStrategy,
)
from replicax._src.strategies._extended import StrategyExtended as StrategyExtended
from replicax._src.strategies._mirrored import MirroredStrategy as MirroredStrategy
from replicax._src.strategies._multi_worker_mirrored import (
    ExperimentalMultiWorkerMirroredStrategy as ExperimentalMultiWorkerMirroredStrategy,
)
from replicax._src.strategies._multi_worker_mirrored import (
    MultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy,
)
from replicax._src.strategies._one_device import OneDeviceStrategy as OneDeviceStrategy
from replicax._src.strategies._state_layout import StateLayout as StateLayout
from replicax._src.strategies._strategy import RunOptions as RunOptions
from replicax._src.strategies._strategy import Strategy as Strategy
from replicax._src.strategies._tpu import ExperimentalTPUStrategy as ExperimentalTPUStrategy
from replicax._src.strategies._tpu import TPUStrategy as TPUStrategy
from replicax._src.strategies._tpu_system import initialize_tpu_system as initialize_tpu_system
from replicax._src.strategies._tpu_system import shutdown_tpu_system as shutdown_tpu_system
from replicax._src.strategies._value_context import ValueContext as ValueContext
