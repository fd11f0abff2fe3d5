"""Describes the public surface of a library: names, members of classes, arguments with defaults.

The same code looks at TensorFlow (`record.py`) and at replicax (`compare.py`), so that nothing
differs only because it was looked at differently. It imports neither.
"""

from __future__ import annotations

import enum
import inspect
import types
from collections.abc import Iterator
from typing import Any, TypedDict


class Described(TypedDict, total=False):
    """What there is to know of one name.

    Attributes:
      kind: "module", "class", "function" or "value".
      arguments: of a function, or of the constructor of a class: `name`, `name=default`, `*name`,
        `**name`, and a `*` before those that must be named. None where they are not known.
      members: of a class: the arguments of its methods, None for what is not called.
    """

    kind: str
    arguments: list[str] | None
    members: dict[str, list[str] | None]


def find(library: Any, path: str) -> Any:
    """Returns `library.a.b` for "a.b"."""
    for part in filter(None, path.split(".")):
        library = getattr(library, part)
    return library


def public(value: Any) -> list[str]:
    """The public attributes of something."""
    return sorted(name for name in dir(value) if not name.startswith("_"))


def names_below(library: Any, path: str) -> Iterator[str]:
    """Yields the public names of a namespace and of those below it."""
    for name in public(find(library, path)):
        below = f"{path}.{name}"
        if isinstance(find(library, below), types.ModuleType):
            yield from names_below(library, below)
        else:
            yield below


def describe(value: Any) -> Described:
    """Describes what a public name stands for."""
    if isinstance(value, types.ModuleType):
        return {"kind": "module"}
    if inspect.isclass(value):
        return {
            "kind": "class",
            "arguments": None if issubclass(value, enum.Enum) else arguments(value),
            "members": {name: member(value, name) for name in members(value)},
        }
    if callable(value):
        return {"kind": "function", "arguments": arguments(value)}
    return {"kind": "value"}


def members(cls: type) -> list[str]:
    """The public members of a class, but for those of builtin classes (an enum of text is text)."""
    builtin = {
        name
        for base in cls.__mro__
        if base.__module__ in ("builtins", "enum")
        for name in dir(base)
    }
    fields = getattr(cls, "__dataclass_fields__", ())
    return sorted({name for name in (*public(cls), *fields)} - builtin)


def member(cls: type, name: str) -> list[str] | None:
    """The arguments of a method; None for an attribute."""
    value = inspect.getattr_static(cls, name, None)
    if isinstance(value, staticmethod):
        return arguments(value.__func__)
    if isinstance(value, classmethod):
        return _without_first(arguments(value.__func__))
    if callable(value) and not inspect.isclass(value) and not isinstance(value, enum.Enum):
        return _without_first(arguments(value))
    return None


def arguments(value: Any) -> list[str] | None:
    """The arguments of a callable, as they are written in its signature."""
    is_class = inspect.isclass(value)
    if is_class and value.__init__ is object.__init__ and value.__new__ is object.__new__:
        return []
    if is_class and value.__new__ is not object.__new__ and value.__init__ is object.__init__:
        value, is_class = value.__new__, True
    elif is_class:
        value = value.__init__
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return None
    written: list[str] = []
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not any(text.startswith("*") for text in written):
            written.append("*")
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        default = "" if each.default is each.empty else f"={_default(each.default)}"
        written.append(f"{stars}{each.name}{default}")
    return written[1:] if is_class else written


def _without_first(written: list[str] | None) -> list[str] | None:
    return None if written is None else written[1:]


def _default(value: Any) -> str:
    """A default, written so that those of two libraries can be compared."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if value is None or isinstance(value, bool | int | float | str | bytes | tuple | list | dict):
        return repr(value)
    return getattr(value, "name", None) or getattr(value, "__name__", None) or "..."
