"""Arguments of strategies' methods: what is taken, and what the errors advise."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from replicax._src import _tree
from replicax._src._typing import PyTree
from replicax._src.values import PerReplica, is_leaf

USE_RUN = "Return the value from the replica function and do this after strategy.run."
USE_ALL_REDUCE = (
    "Inside strategy.run use rx.distribute.get_replica_context().all_reduce('SUM', x), or return x "
    "from the replica function and reduce it after strategy.run."
)
USE_MERGE_CALL = (
    "Inside strategy.run, switch with rx.distribute.get_replica_context().merge_call(merge_fn)."
)
_MAKES_AN_OBJECT = {
    inspect.CO_COROUTINE: ("an async function", "a coroutine"),
    inspect.CO_GENERATOR: ("a generator function", "a generator"),
    inspect.CO_ASYNC_GENERATOR: ("an async generator function", "an async generator"),
}
_AXIS_ADVICE = {
    "reduce": "Use axis=None to combine over replicas only.",
    "all_gather": "Give scalars a dimension with x[None], or use all_reduce.",
}


def checked_call(
    fn: object, args: object, kwargs: object, what: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments of a function to run on each replica, checked."""
    if not callable(fn):
        raise TypeError(
            f"{what} takes the function to run on each replica; got {_tree.describe(fn)}. Pass the "
            f"function itself, without calling it: {what}(step, args=(x,))."
        )
    require_plain_function(fn, what)
    return as_arguments(args, kwargs, what)


def require_plain_function(fn: object, what: str) -> None:
    """Refuses functions whose call only makes an object, and runs nothing of them."""
    plain = fn
    while isinstance(plain, functools.partial):
        plain = plain.func
    code = getattr(plain, "__code__", None) or getattr(type(plain).__call__, "__code__", None)
    flags = 0 if code is None else code.co_flags
    for flag, (kind, result) in _MAKES_AN_OBJECT.items():
        if flags & flag:
            raise TypeError(
                f"{what} was given {kind}, {fn!r}: a call of it makes {result} and runs nothing. "
                "Pass a plain `def` function that returns its results."
            )


def as_arguments(args: object, kwargs: object, what: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not isinstance(args, tuple | list):
        raise TypeError(
            f"{what}: `args` must be a tuple or list of arguments; got {_tree.describe(args)}. For "
            "one argument write args=(x,), with the comma."
        )
    if kwargs is not None and not isinstance(kwargs, dict):
        raise TypeError(
            f"{what}: `kwargs` must be a dict of keyword arguments; got {_tree.describe(kwargs)}."
        )
    for key in kwargs or {}:
        if not isinstance(key, str):
            raise TypeError(
                f"{what}: the keys of `kwargs` are the names of arguments; got {key!r}. Pass "
                "positional arguments as args=(x,)."
            )
    return tuple(args), dict(kwargs or {})


def as_pairs(pairs: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    found: list[Any] = list(pairs) if isinstance(pairs, Iterable) else [pairs]
    for pair in found:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(
                "batch_reduce_to takes (value, destinations) pairs, for example [(gradient, "
                f"variable), ...]; got {_tree.describe(pair)}."
            )
    return [(value, destinations) for value, destinations in found]


def refuse_per_replica(structure: PyTree) -> None:
    if any(isinstance(leaf, PerReplica) for leaf in _tree.leaves_of(structure, is_leaf)):
        raise ValueError(
            "extended.update was given a PerReplica argument, but every copy of a variable must be "
            "updated in the same way. Combine it first: extended.reduce_to('SUM', value, variable)."
        )


def check_axes(array: jax.Array, axis: int | Sequence[int], what: str) -> None:
    axes: list[Any] = list(axis) if isinstance(axis, tuple | list) else [axis]
    for each in axes:
        if not isinstance(each, int | np.integer) or isinstance(each, bool):
            more = ", a tuple of integers, or None for none" if what == "reduce" else ""
            raise TypeError(f"{what}: `axis` must be an integer{more}; got {axis!r}.")
        if not -array.ndim <= each < array.ndim:
            raise ValueError(
                f"{what}: axis {each} is out of range for a value of shape {tuple(array.shape)}, "
                f"which has {array.ndim} dimension(s). " + _AXIS_ADVICE.get(what, "")
            )
    if len({each % array.ndim for each in axes}) < len(axes):
        raise ValueError(f"{what}: axis {axis} names a dimension twice. Name each once.")
