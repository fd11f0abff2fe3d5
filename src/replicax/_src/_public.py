"""What public modules do besides listing names: classes get addresses, missing names an error."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn


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


def names_of_others(module: str) -> Callable[[str], NoReturn]:
    """Returns the `__getattr__` of a module: it raises an error that says where to look."""

    def missing(name: str) -> NoReturn:
        text = f"module {module!r} has no attribute {name!r}"
        if not name.startswith("_"):
            place = f"tf{module.removeprefix('replicax')}.{name}"
            text += (
                f". What to write for {place} is in docs/names.md, and `replicax migrate` says it "
                "of each line of a program"
            )
        raise AttributeError(text, name=name)

    return missing
