"""`rx.compat`: the names of older programs."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from replicax._src._old_names import OldNameWarning as OldNameWarning
from replicax._src._public import load_on_demand as _load_on_demand

if _TYPE_CHECKING:
    from replicax.compat import v1 as v1
else:
    __all__, __getattr__, __dir__ = _load_on_demand(__name__, {"replicax.compat": "v1"})
