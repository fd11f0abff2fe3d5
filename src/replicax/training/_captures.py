"""What a function captures: its arrays as inputs, everything else as a key.

A loss in a training loop is a new closure at every step, over a new batch. Its code is the same.
`Capture` walks closure cells, defaults, globals and the functions and containers they hold. It
collects the arrays, and describes the rest by a key: two functions with equal keys run the same
program, whatever their arrays are. `with_arrays` makes the function anew with other arrays in
their places; this is needed only to trace it.
"""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from replicax import _tree
from replicax._typing import Tracer
from replicax.context import ReplicaContext
from replicax.variables import Variable

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), np.generic, enum.Enum)
_LIBRARIES = frozenset(
    {"jax", "jaxlib", "numpy", "scipy", "optax", "flax", "haiku", "equinox", "keras", "replicax"}
)
_MAX_OBJECT_DEPTH = 3


class Capture:
    """One walk over a function."""

    def __init__(self, fn: Callable[..., Any]):
        self.arrays: list[Any] = []
        self.kept: list[Any] = []  # objects known by their id, which must not be reused
        self._fn = fn
        self._seen: dict[int, int] = {}
        self.key = self._walk(fn, 0)

    def with_arrays(self, arrays: Sequence[Any]) -> Callable[..., Any]:
        """The function with these in the places of `self.arrays`."""
        return _Rebuilder({id(old): new for old, new in zip(self.arrays, arrays)}).rebuild(self._fn)

    def _identity(self, value: Any) -> tuple[Any, ...]:
        self.kept.append(value)
        return ("id", id(value))

    def _walk(self, value: Any, depth: int) -> Any:
        if isinstance(value, _PLAIN):
            return (type(value), value)
        if _is_liftable(value):
            if id(value) not in self._seen:
                self._seen[id(value)] = len(self._seen)
                self.arrays.append(value)
            return ("array", self._seen[id(value)])
        if isinstance(value, Variable | types.ModuleType | type | types.BuiltinFunctionType):
            return self._identity(value)
        if isinstance(value, ReplicaContext):
            return ("replica context",)  # a new one each run; what it is asked is tracked apart
        if id(value) in self._seen:
            return ("seen", self._seen[id(value)])
        self._seen[id(value)] = len(self._seen)
        parts = _parts_of_callable(value)
        if parts is None:
            level = _tree.one_level(value, _is_opaque)
            parts = None if level is None else (level[2], list(level[0]))
        if parts is not None:
            label, children = parts
            key = tuple(self._walk(child, depth) for child in children)
            return (_hashable(label), key)
        return self._walk_object(value, depth)

    def _walk_object(self, value: Any, depth: int) -> Any:
        """An object of the user's: known by identity and by what its attributes hold now.

        Its arrays cannot be swapped for inputs, so they are part of the key: a new array there
        compiles anew, which is slow but right.
        """
        identity = self._identity(value)
        attributes = getattr(value, "__dict__", None)
        if attributes is None or depth >= _MAX_OBJECT_DEPTH or _from_library(type(value)):
            return identity
        return (identity, tuple((k, self._walk_attribute(v, depth)) for k, v in attributes.items()))

    def _walk_attribute(self, value: Any, depth: int) -> Any:
        if isinstance(value, jax.Array | np.ndarray) or callable(value):
            return self._identity(value)
        level = _tree.one_level(value, _is_opaque)
        if level is not None:
            return tuple(self._walk_attribute(child, depth + 1) for child in level[0])
        return self._walk(value, depth + 1)


class _Rebuilder:
    """Copies of functions and containers with some arrays replaced."""

    def __init__(self, replacements: dict[int, Any]):
        self._replacements = replacements
        self._done: dict[int, Any] = {}

    def rebuild(self, value: Any) -> Any:
        if id(value) in self._replacements:
            return self._replacements[id(value)]
        if isinstance(value, (*_PLAIN, Variable, types.ModuleType, type)):
            return value
        if id(value) in self._done:
            return self._done[id(value)]
        if isinstance(value, types.FunctionType) and not _from_library(value):
            return self._rebuild_function(value)
        if isinstance(value, types.MethodType):
            # The object stays; a method's own closure and globals may hold arrays.
            return types.MethodType(self.rebuild(value.__func__), value.__self__)
        if isinstance(value, functools.partial):
            return functools.partial(
                self.rebuild(value.func),
                *map(self.rebuild, value.args),
                **{k: self.rebuild(v) for k, v in value.keywords.items()},
            )
        level = _tree.one_level(value, _is_opaque)
        if level is None:
            return value
        children = [self.rebuild(child) for child in level[0]]
        changed = any(new is not old for new, old in zip(children, level[0]))
        return level[1](children) if changed else value

    def _rebuild_function(self, fn: types.FunctionType) -> types.FunctionType:
        cells = tuple(types.CellType() for _ in fn.__closure__ or ())
        scope = dict(fn.__globals__)
        new = types.FunctionType(fn.__code__, scope, fn.__name__, None, cells)
        self._done[id(fn)] = new  # before looking inside: functions may refer to themselves
        for cell, old in zip(cells, fn.__closure__ or ()):
            try:
                cell.cell_contents = self.rebuild(old.cell_contents)
            except ValueError:  # a name that is not bound yet
                continue
        for name in _global_names(fn.__code__):
            if name in scope:
                scope[name] = self.rebuild(scope[name])
        new.__defaults__ = self.rebuild(fn.__defaults__)
        new.__kwdefaults__ = self.rebuild(fn.__kwdefaults__)
        new.__dict__.update(fn.__dict__)
        return new


def _is_liftable(value: Any) -> bool:
    if isinstance(value, Tracer):
        return True
    if isinstance(value, np.ndarray):
        return value.dtype != object and value.dtype.kind not in "USMm"
    return isinstance(value, jax.Array)


def _is_opaque(value: Any) -> bool:
    return isinstance(value, Variable) or _is_liftable(value)


def _parts_of_callable(value: Any) -> tuple[Any, list[Any]] | None:
    """A label and the captured values of a function, method or partial; None for anything else."""
    if isinstance(value, types.FunctionType):
        if _from_library(value):
            return (("function", id(value)), [])
        scope = value.__globals__
        names = [name for name in _global_names(value.__code__) if name in scope]
        children = [_cell_contents(cell) for cell in value.__closure__ or ()]
        children += [value.__defaults__, value.__kwdefaults__, *(scope[name] for name in names)]
        return (("function", value.__code__, id(scope), tuple(names)), children)
    if isinstance(value, types.MethodType):
        return ("method", [value.__func__, value.__self__])
    if isinstance(value, functools.partial):
        return ("partial", [value.func, value.args, value.keywords])
    return None


def _cell_contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "<unbound>"


@functools.lru_cache(maxsize=1024)
def _global_names(code: types.CodeType) -> tuple[str, ...]:
    """The global names that a function, and the functions defined inside it, may read."""
    names = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.update(dict.fromkeys(_global_names(constant)))
    return tuple(names)


def _from_library(value: Any) -> bool:
    return (getattr(value, "__module__", None) or "").partition(".")[0] in _LIBRARIES


def _hashable(label: Any) -> Any:
    if isinstance(label, tuple):
        return tuple(frozenset(part) if isinstance(part, set) else part for part in label)
    return label
