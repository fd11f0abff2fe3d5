"""What a function refers to besides its arguments: arrays, and a key for everything else.

A loss or a replica function is often a new object at every step, with the same code and another
batch in its closure. `Captures` walks everything that the function can reach: closure cells,
defaults, attributes, the globals that its code names, and in turn the functions, containers,
objects, classes and modules in those. Functions with equal keys run the same program.

What the function reaches through cells, defaults, globals and plain containers can be exchanged:
`with_arrays` gives the function with other arrays there, so that arrays are inputs of a program.
An array that is reached through an object is a part of the key: another one there means another
program. That is slower, and never wrong.

Of objects, classes and modules those attributes count that some code reached so far has the name
of: a trainer may keep its history in an attribute that the step does not know. Objects of the
standard library, of JAX, NumPy and the packages in `_TAKEN_AS_THEY_ARE` are not looked into: their
state is in variables and arrays. `docs/captures.md` has the rule and a table.
"""

from __future__ import annotations

import argparse
import array
import collections
import contextvars
import dataclasses
import dis
import enum
import functools
import hashlib
import importlib.util
import inspect
import operator
import sys
import sysconfig
import types
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from replicax import _tree
from replicax._typing import Tracer
from replicax.context import ReplicaContext
from replicax.functions._keys import ByIdentity, plain_key
from replicax.functions._late_numpy import LateNumPy
from replicax.functions._retry import OnlyPython
from replicax.values import DistributedValues
from replicax.variable import Variable

_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
_INSTALLED_IN = frozenset(["site-packages", "dist-packages"])  # of any environment
_TAKEN_AS_THEY_ARE = frozenset(
    ["chex", "equinox", "flax", "jax", "jaxlib", "keras", "numpy", "optax", "orbax", "replicax"]
)
_NAMESPACES = (types.SimpleNamespace, argparse.Namespace)
_MAPPINGS = (
    dict,
    types.MappingProxyType,
    collections.UserDict,
    collections.ChainMap,
    weakref.WeakKeyDictionary,
    weakref.WeakValueDictionary,
)
_READS_ANYTHING = (getattr, vars, dir, eval, exec, globals, locals)
_LOOKED_INTO = (
    *_NAMESPACES,
    functools.cached_property,
    functools.partial,
    functools.partialmethod,
    functools.singledispatchmethod,
)
# With one of these in its code a function may read attributes that it does not name.
_DYNAMIC = frozenset(
    """getattr vars dir globals locals eval exec __dict__ __getattribute__ __getstate__ attrgetter
    methodcaller getmembers getattr_static asdict astuple fields replace copy deepcopy
    import_module __import__ modules tree tree_util tree_map tree_flatten tree_leaves
    dumps""".split()
)
_WALKING = frozenset("tree tree_util tree_map tree_flatten tree_leaves map_structure".split())
_ASKING_FOR_TYPES = frozenset("ndarray type Hashable issubclass".split())
_SHOWING = frozenset(["str", "repr", "format", "print"])
_OF_NO_MATTER = frozenset(
    """__dict__ __weakref__ __doc__ __module__ __name__ __qualname__ __spec__ __loader__ __file__
    __cached__ __builtins__ __annotations__ __annotate__ __package__ __path__ __slots__
    __slotnames__ __firstlineno__ __static_attributes__""".split()
)
_ONLY_TO_MAKE_OR_SHOW = frozenset(
    """__init__ __new__ __post_init__ __init_subclass__ __del__ __repr__ __str__ __reduce__
    __getstate__ __setstate__ __copy__ __deepcopy__""".split()
)
_NO_PACKAGES = frozenset(["abc", "builtins", "collections", "enum", "types", "typing"])
_MOST_OBJECTS = 20_000  # beyond which a walk costs more than it saves
_own_packages: set[str] = set()  # of functions that were handed over: also if they are installed
_names_met: dict[Any, frozenset[str]] = {}  # by the code of the function that a walk began with
_UNBOUND = object()  # in the place of what a name is not bound to yet


class Captures:
    """One walk over what a function refers to.

    Attributes:
      arrays: those that can be exchanged, in the order of the walk.
      key: equal for functions that run the same program, whatever their arrays are.
      codes: the code of the user's functions, to remember what was learned of them.
      have_tracers: whether a value of an unfinished or earlier trace is among them.
    """

    def __init__(self, fn: Callable[..., Any], inputs: bool = True, numpy_inputs: bool = True):
        """
        Args:
          fn: the function.
          inputs: whether arrays are to be inputs where they can be; else all are in the key.
          numpy_inputs: the same of NumPy arrays.
        """
        self._fn = fn
        self._numpy_inputs = numpy_inputs
        self._rebuilt: list[tuple[Any, list[Any]]] = []
        self._fixed: set[int] = set()
        _own_packages.add(_package_of(fn))
        code = getattr(fn, "__code__", None)
        self._names: set[str] = set(_names_met.get(code, ()))
        while True:
            known = len(self._names)
            self.arrays: list[Any] = []
            self.have_tracers = False
            self._names_here: set[str] = set()  # without those of earlier walks
            self._codes: dict[types.CodeType, None] = {}
            self._numbers: dict[tuple[int, Any], int] = {}  # by the object, and how it is reached
            self._alive: list[Any] = []  # some nodes flatten into new objects each time
            self._sees_all = not _DYNAMIC.isdisjoint(self._names)
            try:
                self.key = self._visit(fn, inputs)
            except RecursionError:
                raise OnlyPython("it refers to objects that are nested too deeply") from None
            fixed = {
                id(each)
                for each in self._alive
                if type(each) in (list, dict)
                and {(id(each), True), (id(each), False)} <= self._numbers.keys()
            }
            if len(self._names) == known and fixed <= self._fixed:
                break
            self._fixed |= fixed  # reached through an object too: it must stay the very same
        if code is not None:
            if len(_names_met) > 4096:
                _names_met.clear()
            _names_met[code] = frozenset(self._names)
        self._numbers.clear()
        self._alive.clear()

    @property
    def codes(self) -> tuple[types.CodeType, ...]:
        return tuple(self._codes)

    @property
    def have_numpy(self) -> bool:
        """Whether NumPy arrays are among `arrays`."""
        return any(isinstance(each, np.ndarray) for each in self.arrays)

    @property
    def ask_for_types(self) -> bool:
        """Whether the function may ask an array whether it is one of NumPy's."""
        return not self._names_here.isdisjoint(_ASKING_FOR_TYPES)

    def with_arrays(self, arrays: Sequence[Any]) -> Callable[..., Any]:
        """The function with these in the places of its own arrays."""
        flattens = self._names_here.isdisjoint(_WALKING)
        new = {
            id(old): LateNumPy(each, old.dtype, flattens) if isinstance(old, np.ndarray) else each
            for old, each in zip(self.arrays, arrays, strict=True)
            if old is not each
        }
        self._rebuilt = []
        if not new:
            return self._fn
        exchange = _Exchange(self._fn, new, any(map(_assigns_globals, self._codes)))
        function = exchange.of(self._fn)
        self._rebuilt = exchange.rebuilt
        return function

    def require_unchanged(self) -> None:
        """Gives up if the function changed a container that it was given an exchanged copy of."""
        for node, children in self._rebuilt:
            now = _node(node)
            parts = () if now is None else now.children
            if len(parts) != len(children) or any(a is not b for a, b in zip(parts, children)):
                raise OnlyPython(f"it changes a {type(node).__name__} that it captures")

    # ------------------------------------------------------------------ the key

    def _visit(self, value: Any, movable: bool) -> Hashable:
        plain = plain_key(value)
        if plain is not None:
            is_own = isinstance(value, enum.Enum) and not _from_library(type(value))
            return (plain, self._type_key(type(value))) if is_own else plain
        movable = movable and id(value) not in self._fixed
        if isinstance(value, Tracer):
            self.have_tracers = True
            return ByIdentity(value)
        if _is_array(value):
            return self._array_key(value, movable)
        if isinstance(value, Variable | types.CodeType):
            return ByIdentity(value)
        if isinstance(value, ReplicaContext):
            return "replica context"  # a new one each run, for the replica that the program is for
        known = self._numbers.get((id(value), movable))
        if known is not None:
            return ("again", known)
        self._number(value, movable)
        if len(self._alive) > _MOST_OBJECTS:
            raise OnlyPython(f"it refers to more than {_MOST_OBJECTS} objects")
        if isinstance(value, types.FunctionType):
            return self._function_key(value, movable)
        if isinstance(value, types.ModuleType):
            return self._module_key(value)
        if isinstance(value, type):
            return self._class_key(value)
        node = _node(value)
        if node is None:
            return self._object_key(value)
        parts = tuple(self._visit(child, movable) for child in node.children)
        known = set(map(id, node.children))
        # What JAX does not take for a part: static fields of modules, for example.
        others = tuple(
            (name, self._visit(each, False))
            for name, each in list(getattr(value, "__dict__", {}).items())
            if id(each) not in known
        )
        is_users = not _from_library(type(value))
        return (node.label, parts, others, self._type_key(type(value)) if is_users else None)

    def _number(self, value: Any, how: Any) -> int:
        self._alive.append(value)
        return self._numbers.setdefault((id(value), how), len(self._numbers))

    def _array_key(self, value: Any, movable: bool) -> Hashable:
        is_numpy = isinstance(value, np.ndarray)
        if not movable or (is_numpy and not self._numpy_inputs):
            return _content(value) if is_numpy else ByIdentity(value)
        if (id(value), movable) not in self._numbers:
            self.arrays.append(value)
        number = self._number(value, movable)
        return ("array", str(value.dtype) if is_numpy else "", number)

    def _function_key(self, fn: types.FunctionType, movable: bool) -> Hashable:
        movable = movable and not _from_library(fn)
        code = fn.__code__
        read: list[Hashable] = []
        for name, cell in zip(code.co_freevars, fn.__closure__ or ()):
            read.append(self._read_key(code, name, _contents(cell), movable))
        read.append(self._visit(fn.__defaults__, movable))
        read.append(self._visit(fn.__kwdefaults__, movable))
        read += [(name, self._visit(each, False)) for name, each in list(vars(fn).items())]
        if _from_library(fn):
            return (ByIdentity(code), tuple(read))
        self._codes[code] = None
        self._names.update(_names_in(code))
        self._names_here.update(_names_in(code))
        for name, each in _globals_of(fn):
            read.append((name, self._read_key(code, name, each, movable)))
        read += [self._visit(each, False) for each in _imports_of(fn)]
        return (code, tuple(read))

    def _read_key(self, code: types.CodeType, name: str, value: Any, movable: bool) -> Hashable:
        """A value that a function has under a name; a list that it only appends to may grow."""
        if type(value) in (list, set) and name in _only_added_to(code):
            return ByIdentity(value) if type(value) is set else "a list to append to"
        return self._visit(value, movable)

    def _module_key(self, module: types.ModuleType) -> Hashable:
        if _from_library(module):
            return ByIdentity(module)
        return (ByIdentity(module), self._members_key(vars(module), self._sees_all))

    def _members_key(
        self, members: Any, all_of_them: bool, without: frozenset[str] = frozenset()
    ) -> Hashable:
        """The attributes of a class or module that a function may read."""
        return tuple(
            (name, self._visit(_unwrapped(member), False))
            for name, member in list(members.items())
            if (all_of_them or name in self._names or name.startswith("__"))
            and name not in _OF_NO_MATTER
            and name not in without
        )

    def _type_key(self, value: type) -> Hashable:
        """The class of an object that is there already: how others are made is of no matter."""
        known = self._numbers.get((id(value), "type"))
        if known is not None:
            return ("again", known)
        self._number(value, "type")
        needed = not self._names.isdisjoint(("type", "__class__", *_SHOWING))
        return self._class_key(value, frozenset() if needed else _ONLY_TO_MAKE_OR_SHOW)

    def _class_key(self, value: type, without: frozenset[str] = frozenset()) -> Hashable:
        """A class of the user's: its attributes and methods, and those of its bases."""
        read: list[Any] = [ByIdentity(value)]
        if type(value) is not type:
            read.append(self._visit(type(value), False))
        sees_all = self._sees_all or _is_used_by_package(value)
        for base in value.__mro__:
            if not _from_library(base):
                read.append(self._members_key(vars(base), sees_all, without))
        return tuple(read)

    def _object_key(self, value: Any) -> Hashable:
        """An object that cannot be exchanged: who it is, and what it holds now."""
        read: list[Hashable] = [ByIdentity(value)]
        if isinstance(value, np.ndarray | bytearray | memoryview | array.array):
            return (*read, self._buffer_key(value))
        if isinstance(value, DistributedValues):
            parts = value.values
            return (*read, *(_content(x) for x in parts if isinstance(x, np.ndarray)))
        if isinstance(value, types.BuiltinMethodType) and value.__self__ is not None:
            return (*read, self._visit(value.__self__, False))
        if isinstance(value, weakref.ref):
            return (*read, self._visit(value(), False))
        if _is_builtin(value) and (type(value) is operator.attrgetter or value in _READS_ANYTHING):
            self._names.add("getattr")
        try:
            held = list(_items(value))
            sees_all = self._sees_all or _is_used_by_others(value)
            held += [
                (name, each) for name, each in _attributes(value) if sees_all or name in self._names
            ]
        except Exception as error:  # of the user's own code, or another thread changes it
            name = type(value).__name__
            raise OnlyPython(f"it refers to a {name} that cannot be looked at: {error}") from None
        read += [self._visit(each, False) for each in _wrapped_functions(value)]
        if not _is_taken_as_it_is(type(value)):
            read.append(self._type_key(type(value)))
        read += [(self._visit(name, False), self._visit(each, False)) for name, each in held]
        if isinstance(value, set | frozenset):
            read.append(frozenset(self._visit(each, False) for each in list(value)))
        return tuple(read)

    def _buffer_key(self, value: Any) -> Hashable:
        if isinstance(value, np.ndarray):
            if value.dtype == object:
                return tuple(self._visit(each, False) for each in value.flat)
            return _content(value)
        return bytes(value)


class _Exchange:
    """Puts other arrays in the places of some, in all that can be made again with them."""

    def __init__(self, root: Any, new: dict[int, Any], assigns_globals: bool):
        self._known = dict(new)
        self._assigns_globals = assigns_globals
        self._nodes: dict[int, _Node] = {}  # they keep what they are made of alive
        self._cells: dict[int, types.CellType] = {}
        self._scopes: dict[int, dict[str, Any]] = {}
        self._reaching = self._that_reach(set(new), root)
        self.rebuilt: list[tuple[Any, list[Any]]] = []

    def _that_reach(self, arrays: set[int], root: Any) -> set[int]:
        """The ids of all values that have one of the arrays inside."""
        parents: dict[int, list[int]] = collections.defaultdict(list)
        stack, seen = [root], set[int]()
        while stack:
            value = stack.pop()
            if id(value) in seen or plain_key(value) is not None:
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
            new.extend(children) if type(value) is list else new.update(zip(value, children))
        else:
            children = [self.of(child) for child in node.children]
            new = self._known[id(value)] = node.rebuild(children)
        if node.is_mutable:
            self.rebuilt.append((new, children))
        return new

    def _function(self, fn: types.FunctionType) -> Any:
        """A function made again; cells without such arrays are its own ones."""
        cells = tuple(self._cell(cell) for cell in fn.__closure__ or ())
        pairs = zip(fn.__code__.co_freevars, fn.__closure__ or (), cells)
        others = [name for name, old, new in pairs if old is not new]
        if not _assigned_names(fn.__code__).isdisjoint(others):
            raise OnlyPython("it assigns a name of a function around it that has an array")
        scope = self._scope(fn)
        new = types.FunctionType(fn.__code__, scope, fn.__name__, None, cells)
        self._known[id(fn)] = new  # before looking inside: functions may refer to themselves
        new.__qualname__, new.__module__, new.__doc__ = fn.__qualname__, fn.__module__, fn.__doc__
        vars(new).update(vars(fn))
        for old, cell in zip(fn.__closure__ or (), cells):
            if old is not cell:
                cell.cell_contents = self.of(_contents(old))
        if scope is not fn.__globals__:
            scope.update({name: self.of(each) for name, each in _globals_of(fn)})
        new.__defaults__, new.__kwdefaults__ = self.of(fn.__defaults__), self.of(fn.__kwdefaults__)
        return new

    def _scope(self, fn: types.FunctionType) -> dict[str, Any]:
        """The globals of a function that is made again: its own, if no array is among them."""
        values = (id(each) for _, each in _globals_of(fn))
        if not any(each in self._reaching or each in self._known for each in values):
            return fn.__globals__
        if self._assigns_globals:
            raise OnlyPython("it assigns globals, and has arrays among them")
        return self._scopes.setdefault(id(fn.__globals__), dict(fn.__globals__))

    def _cell(self, cell: types.CellType) -> types.CellType:
        contents = id(_contents(cell))
        if contents not in self._reaching and contents not in self._known:
            return cell
        return self._cells.setdefault(id(cell), types.CellType())


class _Node(NamedTuple):
    """A value that can be made again from its parts; `label` says the rest about it."""

    label: Hashable
    children: Sequence[Any]
    rebuild: Callable[[Sequence[Any]], Any]
    is_mutable: bool = False


def _movable(value: Any) -> _Node:
    """The parts of a value that can be exchanged; none for most objects."""
    if isinstance(value, types.FunctionType):
        if _from_library(value):
            return _Node(None, (), lambda parts: value)
        cells = map(_contents, value.__closure__ or ())
        scope = (each for _, each in _globals_of(value))
        parts = [*cells, value.__defaults__, value.__kwdefaults__, *scope]
        return _Node(None, parts, lambda parts: value)
    if isinstance(value, Variable | type | types.ModuleType | ReplicaContext):
        return _Node(None, (), lambda parts: value)
    return _node(value) or _Node(None, (), lambda parts: value)


def _node(value: Any) -> _Node | None:
    """The parts of a method, a partial or a container; None for what cannot be made again."""
    if isinstance(value, types.MethodType):
        return _Node(
            "method", (value.__func__, value.__self__), lambda p: types.MethodType(p[0], p[1])
        )
    if type(value) is functools.partial:
        return _Node(
            "partial",
            (value.func, value.args, value.keywords, vars(value)),
            lambda p: functools.partial(p[0], *p[1], **p[2]),
        )
    kind = type(value)
    if kind is list or kind is tuple:
        return _Node(kind, value, kind, kind is list)
    if isinstance(value, dict):
        keys = tuple(map(plain_key, value))
        if kind not in (dict, collections.OrderedDict) or None in keys:
            return None
        names = tuple(value)
        return _Node((kind, keys), list(value.values()), lambda p: kind(zip(names, p)), True)
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
    return _Node(label, list(children), rebuild, not isinstance(value, tuple))


def _has_faithful_parts(value: Any) -> bool:
    """Whether JAX's or our own walk of a structure is sure to see all that is in it.

    A user's own `tree_flatten` may leave attributes out, which the function may read.
    """
    if isinstance(value, tuple):
        return type(value).__new__ is not object.__new__ and hasattr(value, "_fields")
    if dataclasses.is_dataclass(value):
        names = {field.name for field in dataclasses.fields(value)}
        return not isinstance(value, type) and names.issuperset(getattr(value, "__dict__", names))
    package_bases = [base for base in type(value).__mro__[:-1] if _from_library(base)]
    return any(base.__module__.partition(".")[0] in _TAKEN_AS_THEY_ARE for base in package_bases)


# ------------------------------------------------------------------ what values refer to


def _is_array(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        number = jnp.issubdtype(value.dtype, np.number) or value.dtype == np.bool_
        return type(value) in (np.ndarray, np.memmap) and number
    return isinstance(value, jax.Array)


def _content(value: np.ndarray) -> Hashable:
    """What is in a NumPy array, which the user may write into."""
    digest = hashlib.blake2b(_bytes_of(np.ma.getdata(value)), digest_size=16)
    if isinstance(value, np.ma.MaskedArray):
        digest.update(_bytes_of(np.ma.getmaskarray(value)))
    return (type(value), value.shape, str(value.dtype), digest.digest())


def _bytes_of(value: np.ndarray) -> Any:
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8)


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    """What a container that is no plain one holds."""
    if isinstance(value, _MAPPINGS):
        yield from list(value.items())
    elif isinstance(value, contextvars.ContextVar):
        yield "value", value.get(None)
    elif isinstance(value, list | tuple | collections.deque | collections.UserList):
        yield from enumerate(value)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """The attributes in `__dict__` and `__slots__`, of an object that is looked into."""
    if _is_taken_as_it_is(type(value)) and not isinstance(value, _LOOKED_INTO):
        return
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


def _unwrapped(member: Any) -> Any:
    """The functions behind a static method, class method or property."""
    if isinstance(member, property):
        return (member.fget, member.fset)
    return member.__func__ if isinstance(member, staticmethod | classmethod) else member


def _wrapped_functions(value: Any) -> list[Any]:
    """The user's functions in an object that wraps them: jit, lru_cache, custom_vjp, ..."""
    if not _from_library(type(value)):
        found = [inspect.getattr_static(value, "__wrapped__", None)]
    else:
        names = ("__wrapped__", "fwd", "bwd", "jvp")
        try:
            found = [getattr(value, name, None) for name in names if callable(value)]
        except Exception:  # a module that is loaded when it is looked at, and is not there
            found = []
    return [each for each in found if isinstance(each, types.FunctionType)]


def _is_builtin(value: Any) -> bool:
    return isinstance(value, types.BuiltinFunctionType | operator.attrgetter)


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # its name is not bound yet
        return _UNBOUND


def closure_of(fn: Any) -> list[Any]:
    """What a function has from the functions around it."""
    found = map(_contents, getattr(fn, "__closure__", None) or ())
    return [None if each is _UNBOUND else each for each in found]


def _globals_of(fn: types.FunctionType) -> list[tuple[str, Any]]:
    scope = fn.__globals__
    return [(name, scope[name]) for name in _global_names(fn.__code__) if name in scope]


@functools.lru_cache(maxsize=4096)
def _global_names(code: types.CodeType) -> tuple[str, ...]:
    """The names of globals that a function, and the functions defined inside, read."""
    names = dict.fromkeys(
        str(each.argval)
        for each in dis.get_instructions(code)
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    )
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.update(dict.fromkeys(_global_names(constant)))
    return tuple(names)


def _imports_of(fn: types.FunctionType) -> list[types.ModuleType]:
    """The modules that a function imports itself, as far as they are there already."""
    package = fn.__globals__.get("__package__") or ""
    names = [
        importlib.util.resolve_name("." * level + name, package) if level and package else name
        for name, level in _imported_names(fn.__code__)
    ]
    return [sys.modules[name] for name in names if name in sys.modules]


@functools.lru_cache(maxsize=4096)
def _imported_names(code: types.CodeType) -> tuple[tuple[str, int], ...]:
    found: list[tuple[str, int]] = []
    constants: list[Any] = []
    for each in dis.get_instructions(code):
        if each.opname in ("LOAD_CONST", "LOAD_SMALL_INT"):
            constants.append(each.argval)
        elif each.opname == "IMPORT_NAME":
            levels = [x for x in constants[-2:] if isinstance(x, int)]
            found.append((str(each.argval), levels[0] if levels else 0))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found += _imported_names(constant)
    return tuple(found)


@functools.lru_cache(maxsize=4096)
def _assigned_names(code: types.CodeType) -> frozenset[str]:
    """The names of functions around it, and globals, that a function assigns or deletes."""
    found = {
        str(each.argval)
        for each in dis.get_instructions(code)
        if each.opname in ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF")
    }
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _assigned_names(constant)
    return frozenset(found)


@functools.lru_cache(maxsize=4096)
def _assigns_globals(code: types.CodeType) -> bool:
    found = any(
        each.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") for each in dis.get_instructions(code)
    )
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return found or any(map(_assigns_globals, inner))


@functools.lru_cache(maxsize=4096)
def _names_in(code: types.CodeType) -> tuple[str, ...]:
    """The names of globals and attributes in a function, and in the functions defined inside."""
    names = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.update(dict.fromkeys(_names_in(constant)))
        elif isinstance(constant, str) and constant.isidentifier():  # for getattr
            names[constant] = None
    if any(each.opname.startswith("FORMAT") for each in dis.get_instructions(code)):
        names["format"] = None
    return tuple(names)


@functools.lru_cache(maxsize=4096)
def _only_added_to(code: types.CodeType) -> frozenset[str]:
    """The names that a function, and those inside it, use only to append or add something."""
    added, used = set[str](), set[str]()
    instructions = list(dis.get_instructions(code))
    for this, following in zip(instructions, [*instructions[1:], None]):
        if this.opname in ("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME", "LOAD_CLASSDEREF"):
            adds = following is not None and following.opname in ("LOAD_METHOD", "LOAD_ATTR")
            adds = adds and following is not None and following.argval in ("append", "add")
            (added if adds else used).add(str(this.argval))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inside = _only_added_to(constant)
            added |= inside
            used |= set(constant.co_names + constant.co_freevars) - inside
    return frozenset(added - used)


def _from_library(value: Any) -> bool:
    """Whether a function, class or module is not the user's own."""
    package = _package_of(value)
    own = package in _own_packages and package not in _TAKEN_AS_THEY_ARE
    return _is_installed(package) and not (own and package not in sys.stdlib_module_names)


def _is_taken_as_it_is(kind: type) -> bool:
    """Whether objects of a class are not looked into."""
    package = _package_of(kind)
    return package in _TAKEN_AS_THEY_ARE or package in sys.stdlib_module_names


def _is_used_by_package(kind: type) -> bool:
    """Whether a class has a base from a package, whose code may read what the user's does not."""
    return any(_from_library(b) and _package_of(b) not in _NO_PACKAGES for b in kind.__mro__)


def _is_used_by_others(value: Any) -> bool:
    """Whether code that is not the user's may read attributes of an object."""
    if isinstance(value, _NAMESPACES):
        return False
    if isinstance(value, _LOOKED_INTO) or _is_used_by_package(type(value)):
        return True
    return not jax.tree_util.all_leaves([value])  # JAX takes it apart


def _package_of(value: Any) -> str:
    if isinstance(value, types.FunctionType):  # a wrapper may say that it is what it wraps
        name = value.__globals__.get("__name__")
    elif isinstance(value, types.ModuleType):
        name = value.__name__
    else:
        name = getattr(value, "__module__", None)
    return (name if isinstance(name, str) else "").partition(".")[0]


@functools.lru_cache(maxsize=4096)
def _is_installed(package: str) -> bool:
    """Whether a package comes with Python or is installed, and is not the program itself."""
    if package == "__main__" or not package:
        return False
    if package in _TAKEN_AS_THEY_ARE:
        return True
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    if not file:
        return package in sys.stdlib_module_names
    return file.startswith(_INSTALLED) or not _INSTALLED_IN.isdisjoint(Path(file).parts)


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
