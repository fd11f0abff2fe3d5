"""`rx.compat.v1`: what programs for TensorFlow 1 call; a thin layer over the current names."""

from replicax._src._public import name_publicly as _name_publicly
from replicax._src.compat import ConfigProto as ConfigProto
from replicax._src.compat import GPUOptions as GPUOptions
from replicax._src.compat import GraphOptions as GraphOptions
from replicax._src.compat import OptimizerOptions as OptimizerOptions
from replicax.compat.v1 import distribute as distribute
from replicax.compat.v1 import estimator as estimator

_name_publicly(__name__)
