"""What classes are called: the public module that lists them, not the file that has them."""

from __future__ import annotations

import sys


def name_publicly(package: str) -> None:
    """Gives each class that a public module of `package` lists the address that users write.

    Tracebacks, `repr` and pickles then say `replicax.distribute.MirroredStrategy`. Of several
    public addresses the shortest counts.
    """
    inside = f"{package}._src"
    public = [name for name in sys.modules if f"{name}.".startswith(f"{package}.")]
    for module in sorted(public, key=lambda name: name.count(".")):
        if f"{module}.".startswith(f"{inside}."):
            continue
        for name, value in vars(sys.modules[module]).items():
            listed = isinstance(value, type) and not name.startswith("_")
            if listed and value.__module__.startswith(inside):
                value.__module__, value.__name__, value.__qualname__ = module, name, name
