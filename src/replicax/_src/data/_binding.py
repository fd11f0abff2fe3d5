"""What a function of `map` sees of the variables around it: their values when `map` was called.

As in TensorFlow, which traces it there, and as `jax.jit` keeps what it closes over. Python itself
would look at them when the function runs, after the loop that made it has ended:

    for label, name in enumerate(names):
        parts.append(TextLineDataset(name).map(lambda line: (line, label)))

One rule: what cannot change is what it was when `map` was called, and what can change is itself.
Numbers, texts, tuples of those, and functions of the same module cannot change; the functions see
what is around them by the same rule. Lists, arrays, models and modules can. So can a variable that
one of these functions assigns to (`global`, `nonlocal`), and one that has no value yet. A function
with a `global` that it assigns to sees all of its module as it is.
"""

from __future__ import annotations

import builtins
import dis
import enum
import functools
import types
from collections.abc import Callable
from typing import Any, TypeGuard, TypeVar, final

import numpy as np

from replicax._src.data._elements import Element

T = TypeVar("T")
_CONSTANTS = (bool, int, float, complex, str, bytes, range, frozenset, enum.Enum, np.generic)
_MODULE_FACTS = ("__builtins__", "__file__", "__name__", "__package__", "__spec__")
_SEE_ALL = {"eval", "exec", "globals", "locals", "vars", "dir"}


@final
class Bound:
    """A user's function, bound; in another process it is bound again."""

    def __init__(self, fn: Callable[..., Any], now: Callable[..., Any]):
        self._fn = fn
        self._now = now

    def __call__(self, *args: Element) -> Any:
        return self._now(*args)

    def __getattr__(self, name: str) -> Any:
        if name in ("_fn", "_now"):  # while it is unpickled
            raise AttributeError(name)
        return getattr(self._fn, name)

    def __reduce__(self) -> Any:
        return bound_now, (self._fn,)


def bound_now(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function, which sees the variables around it as they are now."""
    inner = fn.__func__ if isinstance(fn, types.MethodType) else fn
    if not isinstance(inner, types.FunctionType):
        return fn
    now = _Snapshot(inner).version_of(inner)
    if now is inner:
        return fn
    return Bound(
        fn, types.MethodType(now, fn.__self__) if isinstance(fn, types.MethodType) else now
    )


@final
class _Snapshot:
    """What a function, and those of its module that it reaches, see at one moment."""

    def __init__(self, fn: types.FunctionType):
        self._module = fn.__globals__
        self._read: dict[types.FunctionType, set[str]] = {}
        self._assigned: set[str] = set()  # names of the module
        self._assigning: set[types.FunctionType] = set()  # by whom
        self._assigned_cells: set[int] = set()
        self._new: dict[types.FunctionType, types.FunctionType] = {}
        self._explore(fn)

    def _explore(self, fn: types.FunctionType) -> None:
        waiting = [fn]
        while waiting:
            fn = waiting.pop()
            if fn in self._read:
                continue
            self._read[fn], names, free_names = _names(fn.__code__)
            self._assigned |= names
            if names:
                self._assigning.add(fn)
            cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or ()))
            self._assigned_cells |= {id(cells[name]) for name in free_names if name in cells}
            seen = [self._module.get(name) for name in self._read[fn]]
            seen += [cell.cell_contents for cell in cells.values() if _is_filled(cell)]
            seen += [*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()]
            waiting += [each for each in seen if self._is_ours(each)]

    def _is_ours(self, value: object) -> TypeGuard[types.FunctionType]:
        return isinstance(value, types.FunctionType) and value.__globals__ is self._module

    def _is_fixed(self, value: object) -> bool:
        return _is_constant(value) or self._is_ours(value)

    def version_of(self, value: T) -> T:
        """Returns a function that sees what is now, for one of ours; other values as they are."""
        if not self._is_ours(value):
            return value
        if value not in self._new:
            self._make(value)
        return self._new[value]

    def _make(self, fn: types.FunctionType) -> None:
        module, read = self._module, self._read[fn]
        kept = {name for name in read - self._assigned if self._is_fixed(module.get(name, module))}
        if fn in self._assigning:  # in other globals, its module would not see what it assigns
            kept = set()
        cells = fn.__closure__ or ()
        fixed = [self._has_fixed(cell) for cell in cells]
        defaults = [*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()]
        if not kept and not any(fixed) and not any(map(self._is_ours, defaults)):
            self._new[fn] = fn
            return
        closure = tuple(types.CellType() if new else cell for new, cell in zip(fixed, cells))
        around = _names_now(module, read, kept) if kept else module
        new = types.FunctionType(fn.__code__, around, fn.__name__, fn.__defaults__, closure)
        self._new[fn] = new  # before what it sees is filled in: it may see itself
        new.__dict__ = fn.__dict__  # attributes of a function can change
        new.__qualname__, new.__module__, new.__doc__ = fn.__qualname__, fn.__module__, fn.__doc__
        new.__defaults__ = fn.__defaults__ and tuple(map(self.version_of, fn.__defaults__))
        named = fn.__kwdefaults__
        new.__kwdefaults__ = named and {key: self.version_of(each) for key, each in named.items()}
        for name in kept:
            around[name] = self.version_of(module[name])
        for cell, old in zip(closure, cells):
            if cell is not old:
                cell.cell_contents = self.version_of(old.cell_contents)

    def _has_fixed(self, cell: types.CellType) -> bool:
        return (
            id(cell) not in self._assigned_cells
            and _is_filled(cell)
            and self._is_fixed(cell.cell_contents)
        )


def _is_filled(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:  # not assigned yet
        return False
    return True


def _names_now(module: dict[str, Any], read: set[str], kept: set[str]) -> dict[str, Any]:
    """Returns the module's names for a function that reads some of them."""
    others = [module[name] for name in read - kept if name in module]
    known = all(name in module or hasattr(builtins, name) for name in read)
    if (
        known
        and _SEE_ALL.isdisjoint(read)
        and all(isinstance(each, types.ModuleType) for each in others)
    ):
        return {name: module[name] for name in (*read, *_MODULE_FACTS) if name in module}
    # What may be another object later is looked up when it is needed, which takes longer.
    return _Globals({name: module[name] for name in kept}, module)


@final
class _Globals(dict[str, Any]):
    """Some names of a module as they were, and the others as they are."""

    def __init__(self, kept: dict[str, Any], module: dict[str, Any]):
        super().__init__(kept)
        self._module = module

    def __missing__(self, name: str) -> Any:
        return self._module[name]


def _names(code: types.CodeType) -> tuple[set[str], set[str], set[str]]:
    """Returns what a function, or one inside it, reads and assigns.

    Returns: the names of the module that it reads, those that it assigns, and the names of cells
    that it assigns.
    """
    read: set[str] = set()
    assigned: set[str] = set()
    cells: set[str] = set()
    for each in dis.get_instructions(code):
        if each.opname == "LOAD_GLOBAL":
            read.add(each.argval)
        elif each.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            assigned.add(each.argval)
        elif each.opname in ("STORE_DEREF", "DELETE_DEREF"):
            cells.add(each.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            more_read, more_assigned, more_cells = _names(constant)
            read |= more_read
            assigned |= more_assigned
            cells |= more_cells
    return read, assigned, cells


def _is_constant(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    return isinstance(value, _CONSTANTS)


_MOST_FUNCTIONS = 200  # to look at, behind one
_LIBRARIES = frozenset(("jax", "keras", "numpy", "replicax"))


def names_any(fn: object, wanted: frozenset[str]) -> bool:
    """Returns whether a function, or one that it reaches by name, is or names one of these."""
    waiting, seen = [fn], set[int]()
    while waiting and len(seen) < _MOST_FUNCTIONS:
        each = waiting.pop()
        if isinstance(each, Bound):
            each = each._fn
        if isinstance(each, functools.partial):
            waiting += [each.func, *each.args, *each.keywords.values()]
            continue
        each = getattr(each, "__func__", each)
        if not isinstance(each, types.FunctionType):
            each = vars(type(each)).get("__call__")  # of an object that can be called
        if not isinstance(each, types.FunctionType) or id(each) in seen:
            continue
        seen.add(id(each))
        names = _all_names(each.__code__)
        if each.__name__ in wanted or not wanted.isdisjoint(names):
            return True
        if str(each.__module__).partition(".")[0] not in _LIBRARIES:
            waiting += [each.__globals__[name] for name in names if name in each.__globals__]
            waiting += [cell.cell_contents for cell in each.__closure__ or () if _is_filled(cell)]
    return False


def _all_names(code: types.CodeType) -> set[str]:
    """Returns the names of variables and attributes in a function and those inside it."""
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return {*code.co_names, *code.co_freevars}.union(*map(_all_names, inner))
