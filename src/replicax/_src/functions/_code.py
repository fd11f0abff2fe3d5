"""What the code of a function names: globals, cells, attributes, imports, and what it assigns."""

from __future__ import annotations

import dis
import functools
import importlib.util
import itertools
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

_READING_GLOBALS = frozenset(["globals", "eval", "exec", "__globals__"])
UNBOUND = object()  # in the place of what a name is not bound to yet


def contents_of(cell: types.CellType) -> Any:
    """Returns what a closure cell holds; `UNBOUND` if it is empty."""
    try:
        return cell.cell_contents
    except ValueError:  # its name is not bound yet
        return UNBOUND


def closure_of(fn: object) -> list[Any]:
    """Returns what a function has from the functions around it."""
    found = map(contents_of, getattr(fn, "__closure__", None) or ())
    return [None if each is UNBOUND else each for each in found]


def globals_of(fn: types.FunctionType) -> list[tuple[str, Any]]:
    """Returns the names and values of the globals that a function reads, if they are there."""
    scope = fn.__globals__
    return [(name, scope[name]) for name in _global_names(fn.__code__) if name in scope]


@functools.lru_cache(maxsize=4096)
def codes_in(code: types.CodeType | None) -> tuple[types.CodeType, ...]:
    """Returns the code of a function, and of the functions defined inside."""
    if code is None:
        return ()
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return (code, *itertools.chain.from_iterable(map(codes_in, inner)))


def _instructions(code: types.CodeType) -> Iterator[dis.Instruction]:
    """Yields those of a function, and of the functions defined inside."""
    return itertools.chain.from_iterable(map(dis.get_instructions, codes_in(code)))


def _arguments(code: types.CodeType, *operations: str) -> Iterator[str]:
    """Yields the names that a function, and those inside it, use with some operations."""
    return (str(each.argval) for each in _instructions(code) if each.opname in operations)


@functools.lru_cache(maxsize=4096)
def _global_names(code: types.CodeType) -> tuple[str, ...]:
    """Returns the names of globals that a function, and the functions defined inside, read."""
    return tuple(dict.fromkeys(_arguments(code, "LOAD_GLOBAL", "LOAD_NAME")))


def imports_of(fn: types.FunctionType) -> list[types.ModuleType]:
    """Returns the modules that a function imports itself, as far as they are there already."""
    package = fn.__globals__.get("__package__") or ""
    names = [
        importlib.util.resolve_name("." * level + name, package) if level and package else name
        for name, level in _imported_names(fn.__code__)
    ]
    named = set(names_in(fn.__code__))
    if named & {"import_module", "__import__"} or named >= {"sys", "modules"}:
        names += _texts(fn.__code__)
    return [sys.modules[name] for name in names if name in sys.modules]


def _texts(code: types.CodeType) -> list[str]:
    """Returns the texts in the code of a function, and in the functions defined inside."""
    return [text for each in codes_in(code) for text in each.co_consts if isinstance(text, str)]


def reads_any_global(code: types.CodeType) -> bool:
    """Returns whether a function may read globals that it does not name."""
    return not _READING_GLOBALS.isdisjoint(names_in(code))


@functools.lru_cache(maxsize=4096)
def _imported_names(code: types.CodeType) -> tuple[tuple[str, int], ...]:
    found: list[tuple[str, int]] = []
    constants: list[Any] = []
    for each in _instructions(code):
        if each.opname in ("LOAD_CONST", "LOAD_SMALL_INT"):
            constants.append(each.argval)
        elif each.opname == "IMPORT_NAME":
            levels = [x for x in constants[-2:] if isinstance(x, int)]
            found.append((str(each.argval), levels[0] if levels else 0))
    return tuple(found)


@functools.lru_cache(maxsize=4096)
def assigned_names(code: types.CodeType) -> frozenset[str]:
    """Returns the names of functions around it, and globals, that a function assigns or deletes."""
    kinds = ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF")
    return frozenset(_arguments(code, *kinds))


@functools.lru_cache(maxsize=4096)
def assigns_globals(code: types.CodeType) -> bool:
    return any(_arguments(code, "STORE_GLOBAL", "DELETE_GLOBAL"))


@functools.lru_cache(maxsize=4096)
def names_in(code: types.CodeType) -> tuple[str, ...]:
    """Returns the names of globals and attributes in a function, and in those inside it."""
    names = dict.fromkeys(name for each in codes_in(code) for name in each.co_names)
    names.update(dict.fromkeys(filter(str.isidentifier, _texts(code))))  # for getattr
    operations = {each.opname for each in _instructions(code)}
    if any(each.startswith("FORMAT") for each in operations):
        names["format"] = None
    if "MATCH_CLASS" in operations:  # `case Point(x, y)` reads what `__match_args__` names
        names["getattr"] = None
    return tuple(names)


@functools.lru_cache(maxsize=4096)
def only_added_to(code: types.CodeType) -> frozenset[str]:
    """Returns the names that a function, and those inside it, use only to append or add."""
    added, used = set[str](), set[str]()
    instructions = list(dis.get_instructions(code))
    for this, following in zip(instructions, [*instructions[1:], None]):
        if this.opname in ("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME", "LOAD_CLASSDEREF"):
            adds = following is not None and following.opname in ("LOAD_METHOD", "LOAD_ATTR")
            adds = adds and following is not None and following.argval in ("append", "add")
            (added if adds else used).add(str(this.argval))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inside = only_added_to(constant)
            added |= inside
            used |= set(constant.co_names + constant.co_freevars) - inside
    return frozenset(added - used)


def captured_objects(fn: object) -> Iterator[Any]:
    """Yields what a function refers to: closure, globals, its object and its attributes."""
    found: list[Any] = []
    while isinstance(fn, functools.partial):
        found += fn.args
        fn = fn.func
    if isinstance(fn, types.MethodType):
        found.append(fn.__self__)
        fn = fn.__func__
    while fn is not None:  # decorated functions too
        for content in closure_of(fn):
            found.append(content() if isinstance(content, weakref.ref) else content)
        scope = getattr(fn, "__globals__", {})
        code = getattr(fn, "__code__", None)
        found += [scope[name] for name in (_global_names(code) if code else ()) if name in scope]
        fn = getattr(fn, "__wrapped__", None)
    for value in found:
        yield value
        if isinstance(value, list | tuple):
            yield from value[:4]
        elif isinstance(value, dict):
            yield from list(value.values())[:4]
        elif not isinstance(value, type | types.ModuleType) and hasattr(value, "__dict__"):
            for attribute in list(vars(value).values()):
                yield attribute
                if isinstance(attribute, list | tuple):
                    yield from attribute[:4]
