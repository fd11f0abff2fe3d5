"""Strategies and settings for programs that were written for TensorFlow 1."""

from replicax._src.compat._config_proto import ConfigProto as ConfigProto
from replicax._src.compat._config_proto import GPUOptions as GPUOptions
from replicax._src.compat._config_proto import GraphOptions as GraphOptions
from replicax._src.compat._config_proto import OptimizerOptions as OptimizerOptions
from replicax._src.compat._strategies import CentralStorageStrategy as CentralStorageStrategy
from replicax._src.compat._strategies import MirroredStrategy as MirroredStrategy
from replicax._src.compat._strategies import (
    MultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy,
)
from replicax._src.compat._strategies import OneDeviceStrategy as OneDeviceStrategy
from replicax._src.compat._strategies import TPUStrategy as TPUStrategy
from replicax._src.compat._strategy import Strategy as Strategy
from replicax._src.compat._strategy import get_loss_reduction as get_loss_reduction
