"""replicax: the programming model of `tf.distribute`, on JAX. Import it as `rx`."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from replicax import compat as compat
from replicax import config as config
from replicax import data as data
from replicax import debug as debug
from replicax import distribute as distribute
from replicax import errors as errors
from replicax import experimental as experimental
from replicax import integrations as integrations
from replicax import io as io
from replicax import metrics as metrics
from replicax import nn as nn
from replicax import random as random
from replicax import summary as summary
from replicax import tpu as tpu
from replicax import train as train
from replicax import types as types
from replicax._arrays import string as string
from replicax._not_here import names_of_others as _names_of_others
from replicax.context import get_replica_context as get_replica_context
from replicax.devices import constant as constant
from replicax.devices import device as device
from replicax.functions import TensorSpec as TensorSpec
from replicax.functions import function as function
from replicax.training import Optimizer as Optimizer
from replicax.training import accumulate_gradients as accumulate_gradients
from replicax.training import grad as grad
from replicax.training import value_and_grad as value_and_grad
from replicax.variable import Variable as Variable
from replicax.variable import VariableAggregation as VariableAggregation
from replicax.variable import VariableSynchronization as VariableSynchronization
from replicax.variable import arrays as arrays
from replicax.variable import assign as assign
from replicax.variable import variable_creator_scope as variable_creator_scope
from replicax.variable import variables as variables
from replicax.watching import Progress as Progress
from replicax.watching import profile as profile
from replicax.watching import progress as progress

__version__ = "0.1.0"

if not _TYPE_CHECKING:  # type checkers would take any name for there
    __getattr__ = _names_of_others(__name__)
