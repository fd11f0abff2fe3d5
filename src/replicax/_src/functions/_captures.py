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
standard library, of JAX, NumPy and the packages in `TAKEN_AS_THEY_ARE` are not looked into: their
state is in variables and arrays. `docs/captures.md` has the rule and a table.
"""

from __future__ import annotations

import array
import enum
import operator
import types
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from replicax._src._typing import Tracer
from replicax._src.context import ReplicaContext
from replicax._src.functions._code import (
    assigns_globals,
    contents_of,
    globals_of,
    imports_of,
    names_in,
    only_added_to,
    reads_any_global,
)
from replicax._src.functions._exchange import Exchange, is_array, node_of
from replicax._src.functions._held_by_values import (
    LOOKED_INTO,
    Origin,
    attributes_of,
    behind_proxy,
    cannot_be_read,
    code_of,
    content_of,
    is_used_by_others,
    items_of,
    numbers_in,
    unwrapped,
    wrapped_functions,
)
from replicax._src.functions._keys import ByIdentity, plain_key
from replicax._src.functions._late_numpy import LateNumPy
from replicax._src.functions._packages import (
    from_library,
    is_taken_as_it_is,
    is_used_by_package,
    own_packages,
    package_of,
)
from replicax._src.functions._retry import OnlyPython
from replicax._src.values import DistributedValues
from replicax._src.variable import Variable

# Nothing but what is in them tells two of these apart.
_BY_CONTENT = (dict, set, frozenset, slice, type({}.keys()), type({}.values()), type({}.items()))
_READS_ANYTHING = (getattr, hasattr, vars, dir, eval, exec, globals, locals)
_READERS = (operator.attrgetter, operator.methodcaller)
# With one of these in its code a function may read attributes that it does not name.
_DYNAMIC = frozenset(
    """getattr hasattr vars dir globals locals eval exec __dict__ __getattribute__ __getstate__
    attrgetter methodcaller getmembers getattr_static asdict astuple fields replace copy deepcopy
    import_module __import__ modules tree tree_util tree_map tree_flatten tree_leaves
    dumps""".split()
)
_WALKING = frozenset("tree tree_util tree_map tree_flatten tree_leaves map_structure".split())
_ASKING_FOR_TYPES = frozenset("ndarray type Hashable issubclass ArrayLike".split())
_NEEDING_ALL_METHODS = frozenset("type __class__ str repr format print".split())
_OF_NO_MATTER = frozenset(
    """__dict__ __weakref__ __doc__ __module__ __name__ __qualname__ __spec__ __loader__ __file__
    __cached__ __builtins__ __annotations__ __annotate__ __annotate_func__ __annotations_cache__
    __conditional_annotations__ __package__ __path__ __slots__
    __slotnames__ __firstlineno__ __static_attributes__""".split()
)
_OF_FUNCTIONS = ("__doc__", "__module__", "__name__", "__qualname__")
_ONLY_TO_MAKE_OR_SHOW = frozenset(
    """__init__ __new__ __post_init__ __init_subclass__ __del__ __repr__ __str__ __reduce__
    __getstate__ __setstate__ __copy__ __deepcopy__""".split()
)
_MOST_OBJECTS = 20_000  # beyond which a walk costs more than it saves
_names_met: dict[Any, frozenset[str]] = {}  # by the code of the function that a walk began with


class Captures:
    """One walk over what a function refers to.

    Attributes:
      arrays: those that can be exchanged, in the order of the walk.
      key: equal for functions that run the same program, whatever their arrays are.
      codes: the code of the user's functions, to remember what was learned of them.
      have_tracers: whether a value of an unfinished or earlier trace is among them.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        inputs: bool = True,
        numpy_inputs: bool = True,
        given: Sequence[Any] = (),
    ):
        """
        Args:
          fn: the function.
          inputs: whether arrays are to be inputs where they can be; else all are in the key.
          numpy_inputs: the same of NumPy arrays.
          given: objects among its arguments, which may have changed too.
        """
        self._fn = fn
        self._numpy_inputs = numpy_inputs
        self._rebuilt: list[tuple[Any, list[Any]]] = []
        self._kinds: dict[int, Origin] = {}  # by the id of the class
        self._fixed: set[int] = set()
        own_packages.add(package_of(fn))
        code = code_of(fn)
        self._names: set[str] = set(_names_met.get(code, ()))
        while True:
            known = len(self._names)
            self.arrays: list[Any] = []
            self.have_tracers = False
            self._names_here: set[str] = set()  # without those of earlier walks
            self._codes: dict[types.CodeType, None] = {}
            self._numbers: dict[tuple[int, Any], int] = {}  # by the object, and how it is reached
            self._alive: list[Any] = []  # some nodes flatten into new objects each time
            self._mutable: dict[bool, set[int]] = {True: set(), False: set()}  # by `movable`
            self._sees_all = not _DYNAMIC.isdisjoint(self._names)
            try:
                self.key = self._visit(fn, inputs)
                if given:
                    self.key = (self.key, *(self._visit(each, False) for each in given))
            except RecursionError:
                raise OnlyPython("it refers to objects that are nested too deeply") from None
            fixed = self._mutable[True] & self._mutable[False]
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
        """Returns the function with these in the places of its own arrays."""
        flattens = self._names_here.isdisjoint(_WALKING)
        new = {
            id(old): LateNumPy(each, old.dtype, flattens, type(old))
            if isinstance(old, np.ndarray)
            else each
            for old, each in zip(self.arrays, arrays, strict=True)
            if old is not each
        }
        self._rebuilt = []
        if not new:
            return self._fn
        try:
            exchange = Exchange(self._fn, new, any(map(assigns_globals, self._codes)))
            function = exchange.of(self._fn)
        except RecursionError:  # objects that refer to each other
            raise OnlyPython("it refers to arrays in structures that contain themselves") from None
        self._rebuilt = exchange.rebuilt
        return function

    def require_unchanged(self) -> None:
        """Gives up if the function changed a container that it was given an exchanged copy of."""
        for node, children in self._rebuilt:
            now = node_of(node)
            parts = () if now is None else now.children
            if len(parts) != len(children) or any(a is not b for a, b in zip(parts, children)):
                raise OnlyPython(f"it changes a {type(node).__name__} that it captures")

    # ------------------------------------------------------------------ the key

    def _visit(self, value: Any, movable: bool) -> Hashable:
        if type(value) in weakref.ProxyTypes:
            value, movable = behind_proxy(value), False
        try:
            _ = value.__class__  # `isinstance` asks for it, and a proxy may answer with an error
        except Exception as error:
            raise cannot_be_read(value, error) from None
        plain = plain_key(value)
        if plain is not None:
            is_own = isinstance(value, enum.Enum) and not from_library(type(value))
            return (plain, self._enum_key(value)) if is_own else plain
        movable = movable and id(value) not in self._fixed
        if isinstance(value, Tracer):
            self.have_tracers = True
            return ByIdentity(value)
        if is_array(value):
            return self._array_key(value, movable)
        if isinstance(value, Variable | types.CodeType):
            return ByIdentity(value)
        if isinstance(value, ReplicaContext):
            return "replica context"  # a new one each run, for the replica that the program is for
        if again := self._again(value, movable):
            return again
        if len(self._alive) > _MOST_OBJECTS:
            raise OnlyPython(f"it refers to more than {_MOST_OBJECTS} objects")
        if isinstance(value, types.FunctionType):
            return self._function_key(value, movable)
        if isinstance(value, types.ModuleType):
            return self._module_key(value)
        if isinstance(value, type):
            self._names_here.add(value.__name__)
            return self._class_key(value)
        node = node_of(value)
        if node is None:
            return self._object_key(value)
        if node.is_mutable:
            self._mutable[movable].add(id(value))
        if isinstance(value, list) and (numbers := numbers_in(value)) is not None:
            return (node.label, numbers)
        parts = tuple(self._visit(child, movable) for child in node.children)
        children = set(map(id, node.children))
        # What JAX does not take for a part: static fields of modules, for example.
        others = tuple(
            (name, self._visit(each, False))
            for name, each in list(getattr(value, "__dict__", {}).items())
            if id(each) not in children
        )
        is_users = self._whose(type(value)).is_users
        return (node.label, parts, others, self._type_key(type(value)) if is_users else None)

    def _enum_key(self, value: enum.Enum) -> Hashable:
        """Returns what a member of a user's enum holds: they can change as other objects can."""
        if again := self._again(value, False):
            return again
        return (self._visit(value._value_, False), self._object_key(value))

    def _again(self, value: object, how: object) -> Hashable:
        """Returns the key of a value that was met before; of another one, None."""
        known = self._numbers.get((id(value), how))
        if known is not None:
            return ("again", known)
        self._number(value, how)
        return None

    def _number(self, value: object, how: object) -> int:
        self._alive.append(value)
        return self._numbers.setdefault((id(value), how), len(self._numbers))

    def _array_key(self, value: object, movable: bool) -> Hashable:
        is_numpy = isinstance(value, np.ndarray)
        if not movable or (is_numpy and not self._numpy_inputs):
            return content_of(value) if is_numpy else ByIdentity(value)
        if (id(value), movable) not in self._numbers:
            self.arrays.append(value)
        number = self._number(value, movable)
        return ("array", str(value.dtype) if is_numpy else "", number)

    def _function_key(self, fn: types.FunctionType, movable: bool) -> Hashable:
        movable = movable and not from_library(fn)
        code = fn.__code__
        read: list[Hashable] = []
        for name, cell in zip(code.co_freevars, fn.__closure__ or ()):
            read.append(self._read_key(code, name, contents_of(cell), movable))
        read.append(self._visit(fn.__defaults__, movable))
        read.append(self._visit(fn.__kwdefaults__, movable))
        read += [(name, self._visit(each, False)) for name, each in list(vars(fn).items())]
        read += [getattr(fn, name) for name in _OF_FUNCTIONS if name in self._names]
        if from_library(fn):
            if fn.__name__ in _DYNAMIC:  # whatever the user calls it
                self._names.add(fn.__name__)
            return (ByIdentity(code), tuple(read))
        self._codes[code] = None
        self._names.update(names_in(code))
        self._names_here.update(names_in(code))
        for name, each in globals_of(fn):
            read.append((name, self._read_key(code, name, each, movable)))
        read += [self._visit(each, False) for each in imports_of(fn)]
        if reads_any_global(code):
            read.append(self._members_key(fn.__globals__, True))
        return (code, tuple(read))

    def _read_key(self, code: types.CodeType, name: str, value: object, movable: bool) -> Hashable:
        """Returns a key for a value with a name; a list that is only appended to may grow."""
        if type(value) in (list, set) and name in only_added_to(code):
            return ByIdentity(value) if type(value) is set else "a list to append to"
        return self._visit(value, movable)

    def _module_key(self, module: types.ModuleType) -> Hashable:
        if from_library(module):
            return ByIdentity(module)
        return (ByIdentity(module), self._members_key(vars(module), self._sees_all))

    def _members_key(
        self,
        members: Mapping[str, object],
        all_of_them: bool,
        without: frozenset[str] = frozenset(),
    ) -> Hashable:
        """Returns the attributes of a class or module that a function may read."""
        read: list[Hashable] = []
        for name, member in list(members.items()):
            is_read = all_of_them or name in self._names or name.startswith("__")
            is_of_no_matter = name in _OF_NO_MATTER and name not in self._names
            if not is_read or is_of_no_matter or name in without:
                continue
            if isinstance(member, classmethod):
                self._names.add("__class__")  # it has the class, and may make objects of it
            read.append((name, self._visit(unwrapped(member), False)))
        return tuple(read)

    def _type_key(self, value: type) -> Hashable:
        """Returns a key for the class of an object: how others are made is no matter."""
        if again := self._again(value, "type"):
            return again
        needed = self._sees_all or not self._names.isdisjoint(_NEEDING_ALL_METHODS)
        return self._class_key(value, frozenset() if needed else _ONLY_TO_MAKE_OR_SHOW)

    def _class_key(self, value: type, without: frozenset[str] = frozenset()) -> Hashable:
        """Returns a key for a class of the user's: its attributes and methods, with its bases'."""
        read: list[Any] = [ByIdentity(value)]
        if type(value) is not type:
            read.append(self._visit(type(value), False))
        sees_all = self._sees_all or is_used_by_package(value)
        for base in value.__mro__:
            if not from_library(base):
                read.append(self._members_key(vars(base), sees_all, without))
        return tuple(read)

    def _object_key(self, value: object) -> Hashable:
        """Returns a key for an object that cannot be exchanged: its identity, and what it holds."""
        kind, whose = type(value), self._whose(type(value))
        read: list[Hashable] = [kind if kind in _BY_CONTENT else ByIdentity(value)]
        if isinstance(value, np.ndarray | bytearray | memoryview | array.array):
            read.append(self._buffer_key(value))
        if isinstance(value, DistributedValues):
            parts = value.values
            return (*read, *(self._buffer_key(x) for x in parts if isinstance(x, np.ndarray)))
        if isinstance(value, types.BuiltinMethodType | types.MethodWrapperType):
            read.append(self._visit(value.__self__, False))
        if isinstance(value, weakref.ref):
            return (*read, self._visit(value(), False))
        if isinstance(value, np.flatiter):
            return (*read, self._visit(value.base, False))
        if kind in _READERS or any(value is each for each in _READS_ANYTHING):
            self._names.add("getattr")
        try:
            held = list(items_of(value))
            if not whose.is_taken or isinstance(value, LOOKED_INTO):
                sees_all = self._sees_all or is_used_by_others(value, whose)
                found = attributes_of(value)
                held += [(name, each) for name, each in found if sees_all or name in self._names]
        except Exception as error:  # of the user's own code, or another thread changes it
            raise cannot_be_read(value, error) from None
        read += [self._visit(each, False) for each in wrapped_functions(value, whose)]
        if not whose.is_taken:
            read.append(self._type_key(kind))
        read += [(self._visit(name, False), self._visit(each, False)) for name, each in held]
        if isinstance(value, set | frozenset):
            read += [self._visit(each, False) for each in list(value)]
        return tuple(read)

    def _whose(self, kind: type) -> Origin:
        found = self._kinds.get(id(kind))
        if found is None:
            found = self._kinds[id(kind)] = Origin(
                not from_library(kind), is_taken_as_it_is(kind), is_used_by_package(kind)
            )
        return found

    def _buffer_key(self, value: Any) -> Hashable:
        if isinstance(value, np.ndarray):
            if value.dtype.hasobject:
                return (value.shape, *(self._visit(each, False) for each in value.ravel().tolist()))
            return content_of(value)
        return bytes(value)
