"""What progress, summaries and profiles share: values that are read later, and who shows them.

A step returns before it is computed. Turning its loss into a number waits for it, and then the
devices wait for the next step: so that is done seldom, and for values that are there.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from replicax._src import _tree
from replicax._src._typing import PyTree, Tracer
from replicax._src.cluster import current_membership
from replicax._src.context import get_replica_context, is_compiling
from replicax._src.values import (
    DistributedValues,
    OneOfMany,
    PerReplica,
    component,
    component_looks,
    is_being_computed,
    is_leaf,
)
from replicax._src.variable import Variable


def number_of_workers() -> int:
    """Returns how many processes are at work on this; 1 before they have joined."""
    membership = current_membership()
    return 1 if membership is None else membership.workers


def worker_number() -> int:
    """Returns which of them this is."""
    membership = current_membership()
    return 0 if membership is None else membership.worker


def speaks_for_the_job() -> bool:
    """Returns whether this is the first worker, and in replica context its first replica."""
    context = get_replica_context()
    return worker_number() == 0 and (context is None or context.replica_id_in_sync_group == 0)


def _is_metric(value: object) -> bool:
    return callable(getattr(value, "result", None)) and not isinstance(value, jax.Array)


def settled(value: Any) -> Any:
    """Returns what a variable or metric says now: later changes of it do not reach the result."""
    if isinstance(value, Variable):
        return value.read_value()
    return value.result() if _is_metric(value) else value


def held(value: object) -> object:
    """Returns `value`, to be settled when it is shown.

    With several workers it is settled here: reading a metric is a collective, in which all of them
    take part, and only one of them shows anything.
    """
    return settled(value) if number_of_workers() > 1 else value


def parts_of(value: object) -> list[Any]:
    """Returns the arrays of a settled value: one for each replica here if those may differ."""
    if isinstance(value, PerReplica) and not isinstance(value, OneOfMany):
        return list(value.values)
    return [component(value, 0) if isinstance(value, DistributedValues) else value]


def is_traced(value: object) -> bool:
    """Returns whether there is no value yet, because its program is being made."""
    if isinstance(value, DistributedValues):
        return is_compiling() or is_being_computed(value)
    return isinstance(value, Tracer)


def is_there(value: object) -> bool:
    """Returns whether `value` can be read without waiting for a device."""
    arrays: list[Any] = [part for part in parts_of(settled(value)) if isinstance(part, jax.Array)]
    # `is_ready` is not among the declared methods of jax.Array.
    return all(array.is_deleted() or array.is_ready() for array in arrays)


def is_one_number(value: Any) -> bool:
    """Returns whether it is a number, or one for each replica; asks no device."""
    if _is_metric(value):
        return True
    if isinstance(value, DistributedValues) and not isinstance(value, Variable):
        return all(is_one_number(part) for part in component_looks(value))
    shape = getattr(value, "shape", None)
    return (np.size(value) if shape is None else math.prod(shape)) == 1


def number_as_text(value: object) -> str:
    """Returns a number as it is shown; of one that differs by replica, the smallest and largest."""
    parts = parts_of(settled(value))
    if any(isinstance(part, jax.Array) and part.is_deleted() for part in parts):
        return "?"  # donated to a program since
    if any(isinstance(part, str) for part in parts):
        return str(parts[0])
    numbers = sorted(np.asarray(part).reshape(()).item() for part in parts)
    texts = [_formatted(number) for number in (numbers[0], numbers[-1])]
    return texts[0] if texts[0] == texts[1] else " … ".join(texts)


def _formatted(number: object) -> str:
    if isinstance(number, float):
        return f"{number:#.4g}".rstrip(".")  # with zeros at the end, so that it does not jump about
    return f"{number:,}" if type(number) is int else str(number)


def rows_of(element: PyTree) -> int | None:
    """Returns how many examples a batch has, on all workers; None if it holds no arrays.

    Arrays without dimensions among the others are those of a single example.
    """
    found: int | None = None
    for leaf in _tree.leaves_of(element, is_leaf):
        looks = component_looks(leaf) if isinstance(leaf, DistributedValues) else [leaf]
        shapes: list[Any] = [getattr(look, "shape", None) for look in looks]
        if None in shapes:
            continue
        if not shapes[0]:
            return 1
        if found is None:
            rows = [int(shape[0]) for shape in shapes]
            # What the replicas of other workers have is not known here; most often it is as much.
            found = sum(rows) * number_of_workers() if isinstance(leaf, PerReplica) else rows[0]
    return found
