"""Values that are shown or written later: kept without waiting for them, read when it is time.

A step returns before it is computed. Whoever turns its loss into a number waits for it, and then
the devices wait for the next step: so that is done seldom, and for values that are there.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from replicax._src import _tree
from replicax._src._typing import Tracer
from replicax._src.context import is_compiling
from replicax._src.values import ArrayLike, DistributedValues, OneOfMany, PerReplica, is_leaf
from replicax._src.variable import Variable
from replicax._src.watching._once import number_of_workers


def _is_metric(value: Any) -> bool:
    return callable(getattr(value, "result", None)) and not isinstance(value, jax.Array)


def settled(value: Any) -> Any:
    """What a variable or metric says now: later changes of it do not reach the result."""
    if isinstance(value, Variable):
        return value.read_value()
    return value.result() if _is_metric(value) else value


def held(value: Any) -> Any:
    """`value`, to be settled when it is shown.

    With several workers that is done here: to read a metric is a collective, in which all of them
    take part, and only one of them shows anything.
    """
    return settled(value) if number_of_workers() > 1 else value


def parts_of(value: Any) -> list[Any]:
    """The arrays of a settled value: one for each replica of this process if those may differ."""
    if isinstance(value, PerReplica) and not isinstance(value, OneOfMany):
        return list(value.values)
    return [value._array() if isinstance(value, ArrayLike) else value]


def is_traced(value: Any) -> bool:
    """Whether there is no value yet, because a program that computes it is being made."""
    if isinstance(value, DistributedValues):
        return is_compiling() or value._is_traced
    return isinstance(value, Tracer)


def is_there(value: Any) -> bool:
    """Whether `value` can be read without waiting for a device."""
    return all(
        part.is_deleted() or _is_computed(part)
        for part in parts_of(settled(value))
        if isinstance(part, jax.Array)
    )


def _is_computed(array: Any) -> bool:
    return array.is_ready()  # not among the declared methods of jax.Array


def is_one_number(value: Any) -> bool:
    """Whether it is a number, or one for each replica; asks no device, and takes nothing apart."""
    if _is_metric(value):
        return True
    if isinstance(value, DistributedValues) and not isinstance(value, Variable):
        parts = [value._buffers.look] if value._values is None else value._values
        return all(is_one_number(part) for part in parts)
    shape = getattr(value, "shape", None)
    return (np.size(value) if shape is None else math.prod(shape)) == 1


def number_as_text(value: Any) -> str:
    """A value of `Progress.show`; of one that differs by replica, the smallest and largest."""
    parts = parts_of(settled(value))
    if any(isinstance(part, jax.Array) and part.is_deleted() for part in parts):
        return "?"  # donated to a program since
    if any(isinstance(part, str) for part in parts):
        return str(parts[0])
    numbers = sorted(np.asarray(part).reshape(()).item() for part in parts)
    texts = [_formatted(number) for number in (numbers[0], numbers[-1])]
    return texts[0] if texts[0] == texts[1] else " … ".join(texts)


def _formatted(number: Any) -> str:
    if not isinstance(number, float):
        return f"{number:,}" if type(number) is int else str(number)
    text = f"{number:#.4g}"  # with zeros at the end, so that it does not jump about
    return text.rstrip(".")


def rows_of(element: Any) -> int | None:
    """How many examples a batch has, on all workers; None if it holds no arrays.

    Arrays without dimensions among the others are those of a single example.
    """
    found: int | None = None
    for leaf in _tree.leaves_of(element, is_leaf):
        rows = _rows_of_leaf(leaf)
        if rows == 0 and not _has_dimensions(leaf):
            return 1
        if found is None:
            found = rows
    return found


def _has_dimensions(leaf: Any) -> bool:
    if isinstance(leaf, DistributedValues):
        leaf = leaf._component(0)
    return len(leaf.shape) > 0


def _rows_of_leaf(leaf: Any) -> int | None:
    """The first dimension, over all replicas; 0 without one; None for what is no array."""
    if not isinstance(leaf, DistributedValues):
        return _first_dimension(leaf)
    if leaf._values is None:  # as one array for all replicas; there is no need to take it apart
        rows: Any = [_first_dimension(leaf._buffers.look)] * leaf._count
    else:
        rows = [_first_dimension(part) for part in leaf._values]
    if isinstance(leaf, PerReplica):
        # What the replicas of other workers have is not known here; most often it is as much.
        return None if None in rows else sum(rows) * number_of_workers()
    return rows[0]


def _first_dimension(array: Any) -> int | None:
    shape = getattr(array, "shape", None)
    if shape is None:
        return None
    return int(shape[0]) if len(shape) else 0
