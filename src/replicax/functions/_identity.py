"""What stands for an object in the key of a program: its value, or the object itself."""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from replicax import _tree
from replicax.variable import Variable

_BY_VALUE = (int, float, complex, str, bytes, bool, type(None), enum.Enum, np.dtype, slice, range)


class ByIdentity:
    """An object as a part of a key: equal to itself while it lives."""

    __slots__ = ("__weakref__", "_hash", "_reference")

    def __init__(self, value: Any):
        self._hash = id(value)
        try:
            self._reference: Any = weakref.ref(value)
        except TypeError:  # without weak references; it stays alive as long as the key
            self._reference = lambda: value

    def when_gone(self, fn: Callable[..., Any], *args: Any) -> None:
        """Calls `fn(*args)` when the object is gone."""
        value = self._reference()
        if isinstance(self._reference, weakref.ref) and value is not None:
            weakref.finalize(value, fn, *args).atexit = False

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ByIdentity):
            return False
        mine = self._reference()
        return mine is not None and mine is other._reference()

    def __repr__(self) -> str:
        value = self._reference()
        return _tree.describe(value) if value is not None else "an object that is gone"


def constant_key(value: Any) -> Any:
    """What stands for a constant in the key of a program."""
    if isinstance(value, _BY_VALUE):
        if isinstance(value, float) and value != value:
            return (float, "nan")
        return (type(value), repr(value) if isinstance(value, float | slice) else value)
    if isinstance(value, type) or callable(value) or isinstance(value, Variable):
        return ByIdentity(value)
    if dataclasses.is_dataclass(value) or isinstance(value, frozenset):
        try:
            hash(value)
            return (type(value), value)
        except TypeError:
            pass
    return ByIdentity(value)


def function_key(fn: Any, seen: frozenset[int] = frozenset()) -> Any:
    """Equal for two functions with the same code that captured the same objects."""
    if id(fn) in seen:  # functions that call each other
        return ByIdentity(fn)
    seen |= {id(fn)}
    if isinstance(fn, functools.partial):
        parts: Sequence[Any] = (*fn.args, *fn.keywords.values())
        names = tuple(fn.keywords)
        return ("partial", function_key(fn.func, seen), names, tuple(map(constant_key, parts)))
    if isinstance(fn, types.MethodType):
        return ("method", constant_key(fn.__self__), function_key(fn.__func__, seen))
    if not isinstance(fn, types.FunctionType):
        return constant_key(fn)
    captured = []
    for content in closure_of(fn):
        nested = isinstance(content, types.FunctionType)
        captured.append(function_key(content, seen) if nested else constant_key(content))
    defaults = tuple(constant_key(value) for value in fn.__defaults__ or ())
    scope = fn.__globals__
    numbers = tuple(
        (name, constant_key(scope[name]))
        for name in _names_in(fn.__code__)
        if isinstance(scope.get(name), int | float | str | bool | None) and name in scope
    )
    return (fn.__code__, id(scope), numbers, tuple(captured), defaults)


def closure_of(fn: Any) -> list[Any]:
    """What a function has from the functions around it."""
    found = []
    for cell in getattr(fn, "__closure__", None) or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # not assigned yet
            found.append(None)
    return found


def captured_objects(fn: Any) -> Iterator[Any]:
    """What a function refers to: closure, globals, its object and that object's attributes."""
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
        found += [scope[name] for name in _names_in(code) if name in scope]
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


def _names_in(code: types.CodeType | None) -> Iterator[str]:
    if code is None:
        return
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)
