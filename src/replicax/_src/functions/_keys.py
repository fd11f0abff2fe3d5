"""What stands for a Python value in the key of a program: its exact value, or the object itself.

Two values that a program can tell apart never have equal keys: 1, 1.0 and True differ, and so do
0.0 and -0.0.
"""

from __future__ import annotations

import enum
import weakref
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import numpy as np

from replicax._src import _tree

_AS_THEY_ARE = (bool, int, str, bytes, type(None), type(Ellipsis), type(NotImplemented))


class ByIdentity:
    """An object as a part of a key: equal to itself while it lives."""

    __slots__ = ("__weakref__", "_hash", "_reference")

    def __init__(self, value: object):
        self._hash = id(value)
        try:
            self._reference: Any = weakref.ref(value)
        except TypeError:  # without weak references; it stays alive as long as the key
            self._reference = lambda: value

    def watched(self, fn: Callable[[Any], Any]) -> Any:
        """Returns a weak reference that, if kept, calls `fn` when the object is gone."""
        value = self._reference()
        is_weak = isinstance(self._reference, weakref.ref) and value is not None
        return weakref.ref(value, fn) if is_weak else None

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


def identities_in(key: Hashable) -> Iterator[ByIdentity]:
    """Yields the objects in a key, and in the tuples and sets inside of it."""
    stack: list[Any] = [key]
    while stack:
        each = stack.pop()
        if isinstance(each, tuple | frozenset):
            stack.extend(each)
        elif isinstance(each, ByIdentity):
            yield each


def plain_key(value: object) -> Hashable:
    """Returns the key of a number, a text or the like, by its exact value; otherwise None."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return (kind, value)
    if kind is float or kind is complex:
        return (kind, repr(value))  # repr tells -0.0 from 0.0, and one nan is another
    if isinstance(value, np.generic) and value.dtype != object:
        return (kind, value.dtype.str, value.tobytes())
    if isinstance(value, enum.Enum):
        return (kind, value.name, repr(value._value_))  # its value need not be hashable
    if kind is slice or kind is range:
        span: Any = value
        keys = tuple(map(plain_key, (span.start, span.stop, span.step)))
        return None if None in keys else (kind, keys)
    if isinstance(value, np.dtype):
        return (kind, value)
    return None


def constant_key(value: object) -> Hashable:
    """Returns what stands for an argument of a compiled function that is no array."""
    key = plain_key(value)
    if key is not None:
        return key
    if type(value) is set or type(value) is frozenset:
        return (type(value), frozenset(map(constant_key, value)))
    if type(value) is tuple:  # in a set; elsewhere it is taken apart
        return (tuple, tuple(map(constant_key, value)))
    return ByIdentity(value)
