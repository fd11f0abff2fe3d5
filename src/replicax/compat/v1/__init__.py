"""`rx.compat.v1`: what programs for TensorFlow 1 call; a thin layer over the current names."""

from replicax.compat.v1 import distribute as distribute
from replicax.compat.v1 import estimator as estimator
from replicax.compat.v1._config_proto import ConfigProto as ConfigProto
from replicax.compat.v1._config_proto import GPUOptions as GPUOptions
from replicax.compat.v1._config_proto import GraphOptions as GraphOptions
from replicax.compat.v1._config_proto import OptimizerOptions as OptimizerOptions
