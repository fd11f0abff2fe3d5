"""Many steps in one call: the program of one step as the body of a loop on the device.

Dispatching a program costs the same however little it does. For small steps the loop in Python is
most of the time; here it is a `lax.scan` over the stacked batches, with the variables as its state.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src import _tree
from replicax._src._arrays import is_number
from replicax._src._errors import OutOfRangeError
from replicax._src._typing import PyTree
from replicax._src.devices import device_of, put
from replicax._src.values import (
    DistributedValues,
    Mirrored,
    PerReplica,
    is_distributed_value,
    is_leaf,
)


@final
class EndOfData(OutOfRangeError, StopIteration):
    """A function asked an iterator for its next element, and there was none.

    TensorFlow raises `OutOfRangeError` there, and Python `StopIteration`.
    """


def loop_of(step: Callable[..., Any], carried: Sequence[int], last_only: bool) -> Any:
    """Returns a function like `step`, that takes a list of inputs and runs it on each.

    Args:
      step: takes lists `(written, read, inputs, rest)` and returns lists `(results, in_place,
        elsewhere)`.
      carried: for each value in `in_place + elsewhere`, where it goes for the next step: a position
        in `written + read`.
      last_only: whether the results are those of the last step, and not of all, stacked.
    """

    def run(
        written: list[Any], read: list[Any], many_inputs: list[list[Any]], rest: list[Any]
    ) -> Any:
        start, split = [*written, *read], len(written)

        def body(carry: PyTree, inputs: PyTree) -> Any:
            now = list(start)
            for position, value in zip(carried, carry[0], strict=True):
                now[position] = value
            results, in_place, elsewhere = step(now[:split], now[split:], inputs, rest)
            values = [*in_place, *elsewhere]
            return (values, results if last_only else None), None if last_only else results

        stacked = [jnp.stack(each) for each in zip(*many_inputs, strict=True)]
        results = None
        if last_only:
            shapes = jax.eval_shape(step, written, read, many_inputs[0], rest)[0]
            results = [jnp.zeros(each.shape, each.dtype) for each in shapes]
        carry = ([start[position] for position in carried], results)
        (values, results), all_results = jax.lax.scan(body, carry, stacked, length=len(many_inputs))
        return results if last_only else all_results, values[:split], values[split:]

    return run


def take_items(inputs: object, count: int | None) -> list[Any]:
    """Returns the next items of an iterable, or of an object with `get_next()`."""
    whole = isinstance(count, int | np.integer) and not isinstance(count, bool)
    if count is not None and (not whole or count < 1):
        raise ValueError(
            f"The number of steps must be a whole number of at least 1; got {count!r}."
        )
    if not isinstance(inputs, Iterable):
        if not hasattr(inputs, "get_next"):
            raise TypeError(
                f"The items to call the function on must be iterable; got {inputs!r}. Pass a list "
                "of batches, a data set or its iterator."
            )
        inputs = _from_get_next(inputs)
    return list(itertools.islice(inputs, count))


def _from_get_next(source: Any) -> Iterator[Any]:
    while True:
        try:
            yield source.get_next()
        except (OutOfRangeError, StopIteration):
            return


def joined(results: Sequence[tuple[Any, int]]) -> Any:
    """Returns the results of calls of one step or many as those of one call of all steps."""

    def join(*leaves: Any) -> Any:
        first = leaves[0]
        if is_distributed_value(first):
            wrap = Mirrored if isinstance(first, Mirrored) else PerReplica
            parts = zip(*(leaf.values for leaf in leaves), strict=True)
            return wrap([_concatenated(part, counts) for part in parts])
        if isinstance(first, jax.Array) or is_number(first):
            return _concatenated(leaves, counts)
        return leaves[-1]

    counts = [count for _, count in results]
    return _tree.map_together(join, [result for result, _ in results], is_leaf)


def _concatenated(parts: Sequence[Any], counts: Sequence[int]) -> Any:
    arrays = [jnp.asarray(part) for part in parts]
    home = device_of(arrays[0])
    with jax.default_device(home):
        rows = [
            put(array if count > 1 else array[None], home)
            for array, count in zip(arrays, counts, strict=True)
        ]
        if len({row.shape[1:] for row in rows}) > 1:
            shapes = ", ".join(str(row.shape[1:]) for row in rows)
            raise ValueError(
                f"The steps were made, but their results cannot be stacked: they have the shapes "
                f"{shapes}. Return results of one shape, a sum for example, or call the function "
                "step by step."
            )
        return jnp.concatenate(rows)


def stacked_nothing(value: Any, count: int) -> Any:
    """Returns a result without items, once for each of `count` steps; 0 for a single one."""
    if not count:
        return value
    if isinstance(value, DistributedValues):
        return type(value)([stacked_nothing(part, count) for part in value.values])
    return jnp.zeros((count, *value.shape), value.dtype)
