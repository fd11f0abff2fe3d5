"""When a library joins in: at the first scope that is entered after it was imported.

Nothing is imported for the user, and nothing is changed in a library outside of this.
"""

from __future__ import annotations

import importlib
import sys

from replicax.context import _stack

# Library, and the module of ours whose `join()` lets its objects live under a strategy.
_waiting = {
    "keras": "replicax.integrations.keras",
    "flax.nnx": "replicax.integrations.nnx",
}


def _join_those_loaded() -> None:
    for library, ours in list(_waiting.items()):
        if library in sys.modules:
            importlib.import_module(ours).join()
            del _waiting[library]


_stack.scope_entry_hooks.append(_join_those_loaded)
