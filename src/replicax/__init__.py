"""replicax: the programming model of `tf.distribute`, on JAX. Import it as `rx`."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

import replicax._src._loading as _loading  # noqa: F401 (first, and quickly)
from replicax import compat as compat
from replicax import config as config
from replicax import data as data
from replicax import distribute as distribute
from replicax import errors as errors
from replicax import experimental as experimental
from replicax import io as io
from replicax import metrics as metrics
from replicax import nn as nn
from replicax import random as random
from replicax import tpu as tpu
from replicax import train as train
from replicax import types as types
from replicax._src import integrations as _integrations  # noqa: F401 (other libraries join in)
from replicax._src._arrays import string as string
from replicax._src._public import load_on_demand as _load_on_demand
from replicax._src._public import name_publicly as _name_publicly
from replicax._src._tensor_spec import TensorSpec as TensorSpec
from replicax._src.context import get_replica_context as get_replica_context
from replicax._src.devices import constant as constant
from replicax._src.devices import device as device
from replicax._src.functions import function as function
from replicax._src.training import GradientTape as GradientTape
from replicax._src.training import Optimizer as Optimizer
from replicax._src.training import accumulate_gradients as accumulate_gradients
from replicax._src.training import grad as grad
from replicax._src.training import value_and_grad as value_and_grad
from replicax._src.training import values_and_grads as values_and_grads
from replicax._src.variable import IndexedSlices as IndexedSlices
from replicax._src.variable import Variable as Variable
from replicax._src.variable import VariableAggregation as VariableAggregation
from replicax._src.variable import VariableSynchronization as VariableSynchronization
from replicax._src.variable import arrays as arrays
from replicax._src.variable import assign as assign
from replicax._src.variable import variable_creator_scope as variable_creator_scope
from replicax._src.variable import variables as variables

__version__ = "0.1.0"

_name_publicly(__name__)

if _TYPE_CHECKING:
    from replicax import debug as debug
    from replicax import image as image
    from replicax import summary as summary
    from replicax._src.cli.launch_function import launch as launch
    from replicax._src.watching import Progress as Progress
    from replicax._src.watching import profile as profile
    from replicax._src.watching import progress as progress
else:
    __all__, __getattr__, __dir__ = _load_on_demand(
        __name__,
        {
            "replicax": "debug image summary",
            "replicax._src.cli.launch_function": "launch",
            "replicax._src.watching": "Progress profile progress",
        },
    )
