"""What a function of `map` sees of the variables around it: their values when `map` was called.

As in TensorFlow, which traces it there, and as `jax.jit` keeps what it closes over. Python itself
would look at them when the function runs, after the loop that made it has ended:

    for label, name in enumerate(names):
        parts.append(TextLineDataset(name).map(lambda line: (line, label)))

Only numbers, texts and the like are kept so. Lists, arrays, models and counters are what they are
when the function runs, and so is what functions that it calls see.
"""

from __future__ import annotations

import builtins
import dis
import enum
import types
from collections.abc import Callable
from typing import Any

import numpy as np

_CONSTANTS = (bool, int, float, complex, str, bytes, range, frozenset, enum.Enum, np.generic)
_MODULE_FACTS = ("__builtins__", "__file__", "__name__", "__package__", "__spec__")
_SEE_ALL = {"eval", "exec", "globals", "locals", "vars", "dir"}


class Bound:
    """A function of the user's, bound; elsewhere it is bound anew."""

    def __init__(self, fn: Callable[..., Any], now: Callable[..., Any]):
        self._fn = fn
        self._now = now

    def __call__(self, *args: Any) -> Any:
        return self._now(*args)

    def __getattr__(self, name: str) -> Any:
        if name in ("_fn", "_now"):  # while it is unpickled
            raise AttributeError(name)
        return getattr(self._fn, name)

    def __reduce__(self) -> Any:
        return bound_now, (self._fn,)


def bound_now(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with the numbers and texts that it reads from outside as they are now."""
    if isinstance(fn, types.MethodType):
        now = _rebuilt(fn.__func__)
        return fn if now is None else Bound(fn, types.MethodType(now, fn.__self__))
    now = _rebuilt(fn)
    return fn if now is None else Bound(fn, now)


def _rebuilt(fn: Any) -> types.FunctionType | None:
    """The function anew; None if there is nothing to keep."""
    if not isinstance(fn, types.FunctionType):
        return None
    read, assigned = _names(fn.__code__)
    module = fn.__globals__
    kept = {name for name in read if _is_constant(module.get(name, module))}
    cells = fn.__closure__ or ()
    closure = tuple(
        _kept_cell(cell) if name not in assigned else cell
        for name, cell in zip(fn.__code__.co_freevars, cells)
    )
    same = all(new is old for new, old in zip(closure, cells))  # cells are equal if contents are
    if assigned.intersection(kept) or (not kept and same):
        return None
    around = _names_now(module, read, kept) if kept else module
    new = types.FunctionType(fn.__code__, around, fn.__name__, fn.__defaults__, closure)
    new.__kwdefaults__ = fn.__kwdefaults__
    return new


def _names_now(module: dict[str, Any], read: set[str], kept: set[str]) -> dict[str, Any]:
    """The module's names for a function that reads some of them."""
    others = [module[name] for name in read - kept if name in module]
    known = all(name in module or hasattr(builtins, name) for name in read)
    if known and _SEE_ALL.isdisjoint(read) and all(map(_is_module, others)):
        return {name: module[name] for name in (*read, *_MODULE_FACTS) if name in module}
    # What may be another object later is looked up when it is needed, which takes longer.
    return _Globals({name: module[name] for name in kept}, module)


def _is_module(value: Any) -> bool:
    return isinstance(value, types.ModuleType)


class _Globals(dict[str, Any]):
    """Some names of a module as they were, and the others as they are."""

    def __init__(self, kept: dict[str, Any], module: dict[str, Any]):
        super().__init__(kept)
        self._module = module

    def __missing__(self, name: str) -> Any:
        return self._module[name]


def _names(code: types.CodeType) -> tuple[set[str], set[str]]:
    """The names from outside that a function, or one inside it, reads, and those it assigns."""
    read: set[str] = set()
    assigned: set[str] = set()
    for each in dis.get_instructions(code):
        if each.opname == "LOAD_GLOBAL":
            read.add(each.argval)
        elif each.opname in ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF"):
            assigned.add(each.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            more_read, more_assigned = _names(constant)
            read |= more_read
            assigned |= more_assigned
    return read, assigned


def _kept_cell(cell: types.CellType) -> types.CellType:
    try:
        value = cell.cell_contents
    except ValueError:  # not assigned yet
        return cell
    return types.CellType(value) if _is_constant(value) else cell


def _is_constant(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    return isinstance(value, _CONSTANTS)
