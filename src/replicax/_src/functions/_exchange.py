"""A function with other arrays in the places of those that it captures.

What holds such an array is made again around it: functions with other cells and globals, methods,
partials and containers. Everything else stays the very same object.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import types
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src import _tree
from replicax._src.context import ReplicaContext
from replicax._src.functions._code import assigned_names, contents_of, globals_of
from replicax._src.functions._keys import plain_key
from replicax._src.functions._packages import TAKEN_AS_THEY_ARE, from_library
from replicax._src.functions._retry import OnlyPython
from replicax._src.values import DistributedValues
from replicax._src.variable import Variable


class Exchange:
    """Puts other arrays in the places of some, in all that can be made again with them."""

    def __init__(self, root: object, new: dict[int, Any], assigns_globals: bool):
        self._known = dict(new)
        self._assigns_globals = assigns_globals
        self._nodes: dict[int, TreeNode] = {}  # they keep what they are made of alive
        self._cells: dict[int, types.CellType] = {}
        self._scopes: dict[int, dict[str, Any]] = {}
        self._reaching = self._that_reach(set(new), root)
        self.rebuilt: list[tuple[Any, list[Any]]] = []

    def _that_reach(self, arrays: set[int], root: object) -> set[int]:
        """Returns the ids of all values that have one of the arrays inside."""
        parents: dict[int, list[int]] = collections.defaultdict(list)
        stack, seen = [root], set[int]()
        while stack:
            value = stack.pop()
            is_proxy = type(value) in weakref.ProxyTypes  # it may stand for nothing any more
            if id(value) in seen or is_proxy or plain_key(value) is not None:
                continue
            seen.add(id(value))
            if id(value) in arrays:
                continue
            node = self._nodes[id(value)] = _movable(value)
            for child in node.children:
                parents[id(child)].append(id(value))
                stack.append(child)
        if not seen.issuperset(arrays):
            raise OnlyPython("it captures a structure that gives other arrays each time")
        reaching, reached = set[int](), list(arrays)
        while reached:
            for parent in parents[reached.pop()]:
                if parent not in reaching:
                    reaching.add(parent)
                    reached.append(parent)
        return reaching

    def of(self, value: Any) -> Any:
        """`value` with the other arrays; itself if there are none in it."""
        if id(value) in self._known:
            return self._known[id(value)]
        if id(value) not in self._reaching:
            return value
        if isinstance(value, types.FunctionType):
            return self._function(value)
        node = self._nodes[id(value)]
        if type(value) in (list, dict):  # they may contain themselves
            new = self._known[id(value)] = type(value)()
            children = [self.of(child) for child in node.children]
            new.extend(children) if type(value) is list else new.update(node.rebuild(children))
        else:
            children = [self.of(child) for child in node.children]
            new = self._known[id(value)] = node.rebuild(children)
        if node.is_mutable:
            self.rebuilt.append((new, children))
        return new

    def _function(self, fn: types.FunctionType) -> Any:
        """Returns a function made again; cells without such arrays are its own ones."""
        cells = tuple(self._cell(cell) for cell in fn.__closure__ or ())
        pairs = zip(fn.__code__.co_freevars, fn.__closure__ or (), cells)
        others = [name for name, old, new in pairs if old is not new]
        if not assigned_names(fn.__code__).isdisjoint(others):
            raise OnlyPython("it assigns a name of a function around it that has an array")
        scope = self._scope(fn)
        new = types.FunctionType(fn.__code__, scope, fn.__name__, None, cells)
        self._known[id(fn)] = new  # before looking inside: functions may refer to themselves
        new.__qualname__, new.__module__, new.__doc__ = fn.__qualname__, fn.__module__, fn.__doc__
        vars(new).update(vars(fn))
        for old, cell in zip(fn.__closure__ or (), cells):
            if old is not cell:
                cell.cell_contents = self.of(contents_of(old))
        if scope is not fn.__globals__:
            scope.update({name: self.of(each) for name, each in globals_of(fn)})
        new.__defaults__, new.__kwdefaults__ = self.of(fn.__defaults__), self.of(fn.__kwdefaults__)
        return new

    def _scope(self, fn: types.FunctionType) -> dict[str, Any]:
        """Returns the globals of a function that is made again: its own, if none is an array."""
        values = (id(each) for _, each in globals_of(fn))
        if not any(each in self._reaching or each in self._known for each in values):
            return fn.__globals__
        if self._assigns_globals:
            raise OnlyPython("it assigns globals, and has arrays among them")
        return self._scopes.setdefault(id(fn.__globals__), dict(fn.__globals__))

    def _cell(self, cell: types.CellType) -> types.CellType:
        contents = id(contents_of(cell))
        if contents not in self._reaching and contents not in self._known:
            return cell
        return self._cells.setdefault(id(cell), types.CellType())


class TreeNode(NamedTuple):
    """A value that can be made again from its parts; `label` says the rest about it."""

    label: Hashable
    children: Sequence[Any]
    rebuild: Callable[[Sequence[Any]], Any]
    is_mutable: bool = False


def _movable(value: object) -> TreeNode:
    """Returns the parts of a value that can be exchanged; none for most objects."""
    if isinstance(value, types.FunctionType):
        if from_library(value):
            return TreeNode(None, (), lambda parts: value)
        cells = map(contents_of, value.__closure__ or ())
        scope = (each for _, each in globals_of(value))
        parts = [*cells, value.__defaults__, value.__kwdefaults__, *scope]
        return TreeNode(None, parts, lambda parts: value)
    if isinstance(value, Variable | type | types.ModuleType | ReplicaContext):
        return TreeNode(None, (), lambda parts: value)
    return node_of(value) or TreeNode(None, (), lambda parts: value)


def node_of(value: Any) -> TreeNode | None:
    """Returns the parts of a method, partial or container; None for what cannot be made again."""
    if isinstance(value, types.MethodType):
        return TreeNode(
            "method", (value.__func__, value.__self__), lambda p: types.MethodType(p[0], p[1])
        )
    if type(value) is functools.partial:
        return TreeNode(
            "partial",
            (value.func, value.args, value.keywords, vars(value)),
            lambda p: functools.partial(p[0], *p[1], **p[2]),
        )
    kind = type(value)
    if kind is list or kind is tuple:
        return TreeNode(kind, value, kind, kind is list)
    if isinstance(value, dict):
        if kind not in (dict, collections.OrderedDict):
            return None
        items = list(value.items())  # at once: another thread may change it
        keys = tuple(_dict_key(name) for name, _ in items)
        if None in keys:
            return None
        names, children = [name for name, _ in items], [child for _, child in items]
        return TreeNode((kind, keys), children, lambda p: kind(zip(names, p)), True)
    if isinstance(value, list | DistributedValues) or not _has_faithful_parts(value):
        return None
    level = _tree.one_level(value)
    if level is None:
        return None
    children, rebuild, label = level
    try:
        hash(label)
    except TypeError:
        return None
    return TreeNode(label, list(children), rebuild, not isinstance(value, tuple))


def _dict_key(name: object) -> Hashable:
    """Returns the key of a number, a text or the like, or a tuple of those; otherwise None."""
    if type(name) is not tuple:
        return plain_key(name)
    parts = tuple(map(_dict_key, name))
    return None if None in parts else (tuple, parts)


def _has_faithful_parts(value: object) -> bool:
    """Returns whether JAX's or our own walk of a structure is sure to see all that is in it.

    A user's own `tree_flatten` may leave attributes out, which the function may read.
    """
    if isinstance(value, tuple):
        return type(value).__new__ is not object.__new__ and hasattr(value, "_fields")
    if dataclasses.is_dataclass(value):
        names = {field.name for field in dataclasses.fields(value)}
        return not isinstance(value, type) and names.issuperset(getattr(value, "__dict__", names))
    package_bases = [base for base in type(value).__mro__[:-1] if from_library(base)]
    return any(base.__module__.partition(".")[0] in TAKEN_AS_THEY_ARE for base in package_bases)


def is_array(value: object) -> bool:
    if isinstance(value, np.ndarray):
        number = jnp.issubdtype(value.dtype, np.number) or value.dtype == np.bool_
        return type(value) in (np.ndarray, np.memmap) and number
    return isinstance(value, jax.Array)
