"""What public modules do besides listing names.

Classes get the addresses that users write, names of which the rooms are large are loaded when they
are used, and missing names get an error that says where to look.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

_INSIDE = "replicax._src"


def name_publicly(package: str) -> None:
    """Gives each class that a public module of `package` lists the address that users write.

    Tracebacks, `repr` and pickles then say `replicax.distribute.MirroredStrategy`. Of several
    public addresses the shortest counts.
    """
    public = [name for name in sys.modules if f"{name}.".startswith(f"{package}.")]
    for module in sorted(public, key=lambda name: name.count(".")):
        if not f"{module}.".startswith(f"{_INSIDE}."):
            for name, value in vars(sys.modules[module]).items():
                _name(value, module, name)


def _name(value: Any, module: str, name: str) -> None:
    listed = isinstance(value, type) and not name.startswith("_")
    if listed and value.__module__.startswith(_INSIDE):
        value.__module__, value.__name__, value.__qualname__ = module, name, name


def load_on_demand(
    module: str,
    names: Mapping[str, str],
    missing: Callable[[str], Any] | None = None,
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__all__`, `__getattr__` and `__dir__` of a module that loads some names when used.

    Type checkers do not see these: the module lists the same names for them, in an
    `if TYPE_CHECKING`.

    Args:
      module: the public module, which has imported its other names.
      names: by the module that has them, names separated by spaces; by `module` itself, the public
        modules below it.
      missing: the `__getattr__` for other names; by default that of `names_of_others`.
    """
    namespace = sys.modules[module]
    source_of = {name: source for source, text in names.items() for name in text.split()}
    find_other = missing or names_of_others(module)

    def load(name: str) -> Any:
        if (source := source_of.get(name)) is None:
            return find_other(name)
        if source == module:
            return importlib.import_module(f"{module}.{name}")
        loaded = importlib.import_module(source)
        for each in names[source].split():
            value = getattr(loaded, each)
            _name(value, module, each)
            setattr(namespace, each, value)
        return vars(namespace)[name]

    def list_names() -> list[str]:
        return sorted({*vars(namespace), *source_of})

    public = [name for name in list_names() if not name.startswith("_")]
    return public, load, list_names


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
