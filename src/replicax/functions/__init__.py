"""Compiled functions: `rx.function`."""

from replicax.functions._cache import FunctionCache as FunctionCache
from replicax.functions._decorator import function as function
from replicax.functions._function import Function as Function
from replicax.functions._function import as_function as as_function
from replicax.functions._keys import ByIdentity as ByIdentity
from replicax.functions._losses import LossCache as LossCache
from replicax.functions._retry import NotOneProgram as NotOneProgram
from replicax.functions._tensor_spec import TensorSpec as TensorSpec
