"""Strategies: what users choose, and what authors extend."""

from replicax.strategies import _default as _default  # fills the default slot of the contexts
from replicax.strategies._central_storage import CentralStorageStrategy as CentralStorageStrategy
from replicax.strategies._extended import StrategyExtended as StrategyExtended
from replicax.strategies._mirrored import MirroredStrategy as MirroredStrategy
from replicax.strategies._multi_worker_mirrored import (
    ExperimentalMultiWorkerMirroredStrategy as ExperimentalMultiWorkerMirroredStrategy,
)
from replicax.strategies._multi_worker_mirrored import (
    MultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy,
)
from replicax.strategies._one_device import OneDeviceStrategy as OneDeviceStrategy
from replicax.strategies._state_layout import StateLayout as StateLayout
from replicax.strategies._strategy import RunOptions as RunOptions
from replicax.strategies._strategy import Strategy as Strategy
from replicax.strategies._tpu import ExperimentalTPUStrategy as ExperimentalTPUStrategy
from replicax.strategies._tpu import TPUStrategy as TPUStrategy
from replicax.strategies._tpu_system import initialize_tpu_system as initialize_tpu_system
from replicax.strategies._tpu_system import shutdown_tpu_system as shutdown_tpu_system
from replicax.strategies._value_context import ValueContext as ValueContext
