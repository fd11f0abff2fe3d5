"""What the values that a function refers to hold themselves: items, attributes, functions.

`_captures.py` walks over all of it.
"""

from __future__ import annotations

import argparse
import array
import collections
import collections.abc
import contextvars
import functools
import hashlib
import threading
import types
import typing
import weakref
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from replicax._src.functions._retry import OnlyPython

_NAMESPACES = (types.SimpleNamespace, argparse.Namespace, threading.local)
_MAPPINGS = (
    dict,
    types.MappingProxyType,
    collections.UserDict,
    collections.ChainMap,
    weakref.WeakKeyDictionary,
    weakref.WeakValueDictionary,
)
_VIEWS = (collections.abc.KeysView, collections.abc.ValuesView, collections.abc.ItemsView)
_SEQUENCES = (list, tuple, collections.deque, collections.UserList, weakref.WeakSet, *_VIEWS)
_UNIONS = (types.UnionType, type(typing.Union[int, str]))  # noqa: UP007
LOOKED_INTO = (
    *_NAMESPACES,
    functools.cached_property,
    functools.partial,
    functools.partialmethod,
    functools.singledispatchmethod,
)


class Origin(NamedTuple):
    """Whose a class is: see `_packages.py`."""

    is_users: bool
    is_taken: bool
    is_used_by_package: bool


def content_of(value: np.ndarray) -> Hashable:
    """Returns what is in a NumPy array, which the user may write into."""
    digest = hashlib.blake2b(_bytes_of(np.ma.getdata(value)), digest_size=16)
    if isinstance(value, np.ma.MaskedArray):
        digest.update(_bytes_of(np.ma.getmaskarray(value)))
    return (type(value), value.shape, str(value.dtype), digest.digest())


def _bytes_of(value: np.ndarray) -> Any:
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8)


def items_of(value: object) -> Iterator[tuple[Any, Any]]:
    """Yields what a container that is no plain one holds."""
    if isinstance(value, _MAPPINGS):
        yield from list(value.items())
        if isinstance(value, collections.defaultdict):
            yield "default_factory", value.default_factory
    elif isinstance(value, contextvars.ContextVar):
        yield "value", value.get(None)
    elif isinstance(value, _SEQUENCES):
        yield from enumerate(list(value))
    elif type(value) is slice:
        yield from enumerate((value.start, value.stop, value.step))
    elif isinstance(value, _UNIONS):
        yield from enumerate(typing.get_args(value))


def attributes_of(value: object) -> Iterator[tuple[str, Any]]:
    """Yields the attributes in `__dict__` and `__slots__`."""
    yield from list(getattr(value, "__dict__", {}).items())
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name in ("__dict__", "__weakref__"):
                continue
            if name.startswith("__") and not name.endswith("__"):
                name = f"_{base.__name__.lstrip('_')}{name}"
            if hasattr(value, name):
                yield name, getattr(value, name)


def unwrapped(member: object) -> Any:
    """Returns the functions behind a static method, class method or property."""
    if isinstance(member, property):
        return (member.fget, member.fset)
    return member.__func__ if isinstance(member, staticmethod | classmethod) else member


def wrapped_functions(value: object, whose: Origin) -> list[Any]:
    """Returns the user's functions in an object that wraps them: jit, lru_cache, custom_vjp, ..."""
    if whose.is_users:
        found = [getattr(value, "__dict__", {}).get("__wrapped__")]
    else:
        names = ("__wrapped__", "fwd", "bwd", "jvp")
        try:
            found = [getattr(value, name, None) for name in names if callable(value)]
        except Exception:  # a module that is loaded when it is looked at, and is not there
            found = []
    return [each for each in found if isinstance(each, types.FunctionType)]


def numbers_in(values: list[Any]) -> Hashable:
    """Returns a key for a long list of nothing but floats or integers; None for any other."""
    kinds = set(map(type, values)) if len(values) > 64 else ()
    if kinds == {float}:
        return array.array("d", values).tobytes()
    return (int, *values) if kinds == {int} else None


def cannot_be_read(value: object, error: Exception) -> OnlyPython:
    return OnlyPython(f"it refers to a {type(value).__name__} that cannot be looked at: {error}")


def behind_proxy(proxy: object) -> Any:
    """Returns the object that a weak proxy stands for; None if it is gone."""
    try:
        return proxy.__repr__.__self__
    except ReferenceError:
        return None


def code_of(fn: object) -> Any:
    """Returns the code of a function, a partial, a method or a callable object, if it has one."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__code__", None) or getattr(type(fn).__call__, "__code__", None)


def is_used_by_others(value: object, whose: Origin) -> bool:
    """Returns whether code that is not the user's may read attributes of an object."""
    if isinstance(value, _NAMESPACES):
        return False
    if isinstance(value, LOOKED_INTO) or whose.is_used_by_package:
        return True
    return not jax.tree_util.all_leaves([value])  # JAX takes it apart
