"""Compiled functions: `rx.function`."""

from replicax._src.functions._access import last_of_steps as last_of_steps
from replicax._src.functions._access import observe as observe
from replicax._src.functions._access import observer_of as observer_of
from replicax._src.functions._access import run_on_replicas as run_on_replicas
from replicax._src.functions._bound_function import BoundFunction as BoundFunction
from replicax._src.functions._cache import FunctionCache as FunctionCache
from replicax._src.functions._decorator import function as function
from replicax._src.functions._function import Function as Function
from replicax._src.functions._function import as_function as as_function
from replicax._src.functions._function import function_watchers as function_watchers
from replicax._src.functions._keys import ByIdentity as ByIdentity
from replicax._src.functions._losses import LossCache as LossCache
from replicax._src.functions._observing import Discarding as Discarding
from replicax._src.functions._observing import Examined as Examined
from replicax._src.functions._observing import Proceed as Proceed
from replicax._src.functions._observing import Substitute as Substitute
from replicax._src.functions._programs import traces_so_far as traces_so_far
from replicax._src.functions._retry import NotOneProgram as NotOneProgram
