"""What a function captures: its arrays as inputs, everything else as a key.

A loss in a training loop is a new closure at every step, over a new batch. Its code is the same.
`Capture` walks closure cells, defaults, globals, and the functions and containers they hold. It
collects the arrays, and describes the rest by a key: two functions with equal keys run the same
program, whatever their arrays are. `Capture.plan` takes a snapshot that can be called with other
arrays in their places; it is needed only to trace a function.

Arrays that cannot be swapped, such as attributes of a user's object, are part of the key. A new
array there compiles anew, which is slow but right: a stale result is never an option.
"""

from __future__ import annotations

import argparse
import array
import collections
import enum
import functools
import hashlib
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax import _tree
from replicax._typing import Tracer
from replicax.context import ReplicaContext
from replicax.values import DistributedValues
from replicax.variable import Variable

_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
_BY_IDENTITY = (
    Variable,
    DistributedValues,
    types.CodeType,
)
_UNORDERED = (set, frozenset)
_ORDERED = (list, tuple, collections.deque)
_CONTAINERS = (
    *_UNORDERED,
    *_ORDERED,
    dict,
    types.MappingProxyType,
    types.SimpleNamespace,
    argparse.Namespace,
    collections.UserDict,
    collections.UserList,
)

Assemble = Callable[[Sequence[Any]], Any]
Rebuild = Callable[["_Build"], Any]


class Capture:
    """One walk over a function: its `key`, and its `arrays` in the order of the walk."""

    def __init__(self, fn: Callable[..., Any]):
        self.arrays: list[Any] = []
        self.kept: list[Any] = []  # in the key by their id, which nothing else may get meanwhile
        self.codes: list[types.CodeType] = []
        self._fn = fn
        self._seen: dict[int, int] = {}
        self._alive: list[Any] = []  # the same for the length of the walk
        self.key = self._walk(fn, swappable=True)
        self._alive.clear()

    def plan(self) -> Callable[[Sequence[Any]], Callable[..., Any]]:
        """A snapshot of the function as it is now, which makes it anew with other arrays."""
        rebuild = _Planner().plan(self._fn)
        return lambda arrays: rebuild(_Build(arrays))

    def _identity(self, value: Any) -> tuple[Any, ...]:
        self.kept.append(value)
        return ("id", id(value))

    def _walk(self, value: Any, swappable: bool) -> Any:
        plain = _plain_key(value)
        if plain is not None:
            return plain
        if _is_array(value):
            return self._array_key(value, swappable)
        if isinstance(value, _BY_IDENTITY):
            return self._identity(value)
        if isinstance(value, ReplicaContext):
            return ("replica context",)  # a new one each run; what it is asked is tracked apart
        if isinstance(value, _Named):
            return self._named_key(value)
        if id(value) in self._seen:
            return ("seen", self._seen[id(value)])
        self._seen[id(value)] = len(self._seen)
        self._alive.append(value)  # some nodes flatten into new objects each time
        if isinstance(value, type):
            return self._class_key(value)
        node = _node(value)
        if node is not None:
            label, children, _ = node
            if isinstance(label, tuple) and isinstance(label[0], types.CodeType):
                self.codes.append(label[0])
            if isinstance(value, types.FunctionType):
                swappable = swappable and not _from_library(value)
            return (label, tuple(self._walk(child, swappable) for child in children))
        return self._object_key(value)

    def _array_key(self, value: Any, swappable: bool) -> Any:
        if swappable:
            index = self._seen.get(id(value))
            if index is None:
                index = self._seen[id(value)] = len(self._seen)
                self._alive.append(value)
                self.arrays.append(value)
            return ("array", index)
        if isinstance(value, np.ndarray):  # the user may write into it
            digest = hashlib.blake2b(value.tobytes(), digest_size=16).digest()
            return ("numpy", value.shape, value.dtype.str, digest)
        return self._identity(value)

    def _object_key(self, value: Any) -> Any:
        """An object that cannot be made anew: who it is, and what it holds now."""
        identity = self._identity(value)
        if isinstance(value, np.ndarray | bytearray | memoryview | array.array):
            return (identity, self._content(value))
        if isinstance(value, types.BuiltinMethodType):
            return (identity, self._walk(value.__self__, swappable=False))
        try:
            wrapped = getattr(value, "__wrapped__", None)
        except Exception:  # a module that is loaded when it is looked at, and is not there
            return identity
        if isinstance(wrapped, types.FunctionType):  # lru_cache, custom_vjp, jit, ...
            return (identity, self._walk(wrapped, swappable=False))
        if _from_library(type(value)) and not isinstance(value, _CONTAINERS):
            return identity
        held: list[Any] = []
        if isinstance(value, _UNORDERED):
            held.append(frozenset(self._walk(item, swappable=False) for item in value))
        elif isinstance(value, dict | types.MappingProxyType):
            held.extend((self._walk(k, False), self._walk(v, False)) for k, v in value.items())
        elif isinstance(value, _ORDERED):
            held.extend(self._walk(item, swappable=False) for item in value)
        for name, attribute in _attributes(value):
            held.append((name, self._walk(attribute, swappable=False)))
        return (identity, self._walk(type(value), swappable=False), tuple(held))

    def _content(self, value: Any) -> Any:
        """What is in a buffer that the user may write into."""
        if isinstance(value, np.ndarray) and value.dtype == object:
            return tuple(self._walk(item, swappable=False) for item in value.flat)
        if isinstance(value, np.ndarray):
            return np.ma.getdata(value).tobytes(), np.ma.getmaskarray(value).tobytes()
        return bytes(value)

    def _class_key(self, value: type) -> Any:
        """A class of the user's: its attributes and functions, and those of its bases."""
        held: list[Any] = [self._identity(value)]
        for base in value.__mro__:
            if _from_library(base):
                continue
            for name, member in list(vars(base).items()):
                if not name.startswith("__") or name == "__call__":
                    held.append((name, self._walk(_unwrapped(member), swappable=False)))
        return tuple(held)

    def _named_key(self, value: _Named) -> Any:
        """What a function may read of a module: the attributes that it names."""
        held = [self._identity(value.module)]
        members = vars(value.module)
        held.extend(self._walk(members[n], swappable=False) for n in value.names if n in members)
        return tuple(held)


class _Named:
    """A module of the user's, as far as one function reads it."""

    def __init__(self, module: types.ModuleType, names: tuple[str, ...]):
        self.module = module
        self.names = names


class _Build:
    """One making of the function: the arrays to use, and the functions made so far."""

    def __init__(self, arrays: Sequence[Any]):
        self.arrays = arrays
        self.functions: dict[int, Any] = {}


class _Planner:
    """Walks as `Capture` does, and notes how to put each part together again."""

    def __init__(self) -> None:
        self._indices: dict[int, int] = {}
        self._plans: dict[int, Rebuild] = {}
        self._alive: list[Any] = []

    def plan(self, value: Any) -> Rebuild:
        if _plain_key(value) is not None:
            return lambda build: value
        if _is_array(value):
            index = self._indices.setdefault(id(value), len(self._indices))
            self._alive.append(value)
            return lambda build: build.arrays[index]
        if isinstance(value, (*_BY_IDENTITY, ReplicaContext, types.ModuleType, _Named, type)):
            return lambda build: value
        if id(value) in self._plans:
            return self._plans[id(value)]
        # Set before looking inside: functions may refer to themselves.
        identity = id(value)
        self._plans[identity] = lambda build: build.functions[identity]
        self._alive.append(value)
        node = _node(value)
        if node is None:
            rebuild: Rebuild = lambda build: value  # noqa: E731
        elif isinstance(value, types.FunctionType):
            rebuild = self._plan_function(value)
        else:
            _, children, assemble = node
            before = len(self._indices)
            parts = [self.plan(child) for child in children]
            if len(self._indices) == before and not isinstance(value, list | dict):
                rebuild = lambda build: value  # noqa: E731
            else:
                rebuild = lambda build: assemble([part(build) for part in parts])  # noqa: E731
        self._plans[id(value)] = rebuild
        return rebuild

    def _plan_function(self, fn: types.FunctionType) -> Rebuild:
        if _from_library(fn):
            return lambda build: fn
        names = _globals_of(fn)
        cells = [self.plan(_cell_contents(cell)) for cell in fn.__closure__ or ()]
        defaults, keyword_defaults = self.plan(fn.__defaults__), self.plan(fn.__kwdefaults__)
        scope = [(name, self.plan(fn.__globals__[name])) for name in names]
        # Not the function itself: its cells hold the arrays of this call.
        identity, code, name, attributes = id(fn), fn.__code__, fn.__name__, dict(vars(fn))
        all_globals = fn.__globals__

        def rebuild(build: _Build) -> Any:
            if identity in build.functions:
                return build.functions[identity]
            new_cells = tuple(types.CellType() for _ in cells)
            new_scope = dict(all_globals)
            new = types.FunctionType(code, new_scope, name, None, new_cells)
            build.functions[identity] = new
            for cell, part in zip(new_cells, cells):
                contents = part(build)
                if contents is not _UNBOUND:
                    cell.cell_contents = contents
            new_scope.update({name: part(build) for name, part in scope})
            new.__defaults__, new.__kwdefaults__ = defaults(build), keyword_defaults(build)
            vars(new).update(attributes)
            return new

        return rebuild


class _Unbound(enum.Enum):
    """What a closure cell holds before its name is bound."""

    UNBOUND = 0


_UNBOUND = _Unbound.UNBOUND


def _plain_key(value: Any) -> Any:
    """A key for numbers, texts and the like, by exact value; None for anything else."""
    if isinstance(value, float | complex):
        return (type(value), repr(value))  # repr tells -0.0 from 0.0, and one nan is another
    if isinstance(value, np.generic):
        return (type(value), value.tobytes())
    if isinstance(value, enum.Enum):
        return (type(value), value.name)  # its value need not be hashable
    if value is None or isinstance(value, bool | int | str | bytes | type(Ellipsis)):
        return (type(value), value)
    return None


def _is_array(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        number = jnp.issubdtype(value.dtype, np.number) or value.dtype == np.bool_
        return type(value) is np.ndarray and number
    return isinstance(value, jax.Array | Tracer)


def _node(value: Any) -> tuple[Any, list[Any], Assemble] | None:
    """A label, the parts, and how to put parts together again; None for what cannot be."""
    if isinstance(value, types.FunctionType):
        code = value.__code__
        cells = [_as_read(_cell_contents(cell), code) for cell in value.__closure__ or ()]
        if _from_library(value):
            return (value.__code__, "library"), [*cells, value.__defaults__], lambda parts: value
        names = _globals_of(value)
        scope = [_as_read(value.__globals__[name], value.__code__) for name in names]
        parts = [*cells, value.__defaults__, value.__kwdefaults__, *scope, dict(vars(value))]
        return (value.__code__, id(value.__globals__), names), parts, lambda parts: value
    if isinstance(value, types.MethodType):
        return "method", [value.__func__, value.__self__], lambda p: types.MethodType(p[0], p[1])
    if type(value) is functools.partial:
        parts = [value.func, value.args, value.keywords]
        return "partial", parts, lambda p: functools.partial(p[0], *p[1], **p[2])
    if type(value) is dict:
        keys = tuple(value)
        key_keys = tuple(_plain_key(key) for key in keys)
        if None in key_keys:
            return None
        return ("dict", key_keys), list(value.values()), lambda p: dict(zip(keys, p))
    if isinstance(value, list | dict) and type(value) not in (list, collections.OrderedDict):
        return None  # a user's container, which may hold more than its items
    level = _tree.one_level(value)
    if level is None or _from_library(type(value)) and not _is_registered(value):
        return None
    children, rebuild, label = level
    try:
        hash(label)
    except TypeError:
        return None
    return label, list(children), rebuild


def _as_read(value: Any, code: types.CodeType) -> Any:
    if isinstance(value, types.ModuleType):
        return _Named(value, () if _from_library(value) else _global_names(code))
    return value


def _unwrapped(member: Any) -> Any:
    """The function behind a static method, class method or property."""
    if isinstance(member, property):
        return (member.fget, member.fset)
    return getattr(member, "__func__", member)


def _is_registered(value: Any) -> bool:
    return not jax.tree_util.all_leaves([value])


def _attributes(value: Any) -> Iterable[tuple[str, Any]]:
    """The instance attributes, from `__dict__` and `__slots__`."""
    yield from getattr(value, "__dict__", {}).items()
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield name, getattr(value, name)


def _cell_contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _UNBOUND


def _globals_of(fn: types.FunctionType) -> tuple[str, ...]:
    return tuple(name for name in _global_names(fn.__code__) if name in fn.__globals__)


@functools.lru_cache(maxsize=1024)
def _global_names(code: types.CodeType) -> tuple[str, ...]:
    """The global names that a function, and the functions defined inside it, may read."""
    names = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.update(dict.fromkeys(_global_names(constant)))
    return tuple(names)


def _from_library(value: Any) -> bool:
    """Whether a function, class or module is not the user's, and so is taken as it is."""
    name = value.__name__ if isinstance(value, types.ModuleType) else value.__module__
    return _is_library((name or "").partition(".")[0])


@functools.lru_cache(maxsize=4096)
def _is_library(package: str) -> bool:
    """Whether a package comes with Python or is installed, and is not the program itself."""
    if package == "__main__" or not package:
        return False
    if package in sys.stdlib_module_names or package == __name__.partition(".")[0]:
        return True
    file = getattr(sys.modules.get(package), "__file__", None)
    return file is not None and file.startswith(_INSTALLED)
