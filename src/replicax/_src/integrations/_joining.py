"""When a library joins in: before the first scope, trace or data set after it was imported.

Nothing is imported for the user, and nothing is changed in a library outside of this.
"""

from __future__ import annotations

import importlib
import sys

from replicax._src._versions import not_as_known
from replicax._src._warnings import warn
from replicax._src.context import joining_hooks

# Library, and the module of ours whose `join()` lets its objects live under a strategy.
_waiting = {
    "keras": "replicax._src.integrations.keras",
    "flax.nnx": "replicax._src.integrations.nnx",
}


def _join_those_loaded(in_time: bool) -> None:
    for library, ours in list(_waiting.items()):
        if library in sys.modules and not _is_being_imported(library):
            joined = True
            try:
                importlib.import_module(ours).join()
            except (ImportError, AttributeError, KeyError) as error:
                joined = False
                warn(not_as_known(library, error))
            del _waiting[library]
            if joined and not in_time:
                warn(
                    f"{library} was imported inside of a strategy's scope, so that what was made "
                    "there with it is on one device. Import it before the scope is entered."
                )


def _is_being_imported(library: str) -> bool:
    """Returns whether another thread is at it: what it has not done yet would not be found."""
    return getattr(getattr(sys.modules[library], "__spec__", None), "_initializing", False)


joining_hooks.append(_join_those_loaded)
