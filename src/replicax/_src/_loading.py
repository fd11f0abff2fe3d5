"""Loads what `import replicax` loads, before the public modules list it.

What is loaded stays. Python would stop several times to look for garbage in it, and in JAX, which
takes a third of the time.
"""

from __future__ import annotations

import gc
import importlib


def load(*modules: str) -> None:
    """Imports modules, and collects no garbage meanwhile."""
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        for module in modules:
            importlib.import_module(module)
    finally:
        if is_collecting:
            gc.enable()


load("replicax._src.strategies", "replicax._src.integrations")
