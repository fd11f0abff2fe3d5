"""Gradient accumulation: a batch that does not fit, in parts, with the gradient of the whole."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from replicax._src import _tree
from replicax._src._typing import PyTree
from replicax._src.training._gradients import value_and_grad
from replicax._src.training._losses import on_micro_batch


def accumulate_gradients(
    loss_fn: Callable[[Any], Any],
    variables: PyTree,
    batch: PyTree,
    steps: int,
    reduction: str = "SUM",
    compile: bool = False,
) -> tuple[jax.Array, Any]:
    """Returns the loss and gradients of `loss_fn(batch)`, computed in `steps` micro-batches.

    Only one micro-batch's activations are alive at a time, and the gradients cross the replicas
    once, when an optimizer applies them.

    >>> import jax.numpy as jnp, replicax as rx
    >>> w = rx.Variable(2.0)
    >>> batch = jnp.array([1.0, 2.0, 3.0])
    >>> rx.accumulate_gradients(lambda x: jnp.sum(w * x), [w], batch, steps=2)
    (Array(12., dtype=float32), [Array(6., dtype=float32)])

    Args:
      loss_fn: takes a micro-batch and returns a scalar loss.
      variables: as for `value_and_grad`.
      batch: a nested structure of arrays with the examples along the first dimension.
      steps: how many micro-batches; the rows are dealt out evenly, the first get one more. A batch
        with fewer rows is computed in as many parts as it has.
      reduction: "SUM" if the loss adds up over examples, as `rx.nn.compute_average_loss` with a
        `global_batch_size` does; "MEAN" if it averages over the rows it is given.
      compile: as for `value_and_grad`.

    Returns:
      `(loss, gradients)`, equal to those of the whole batch.
    """
    if not callable(loss_fn):
        raise TypeError(f"`loss_fn` must be a function of a micro-batch; got {loss_fn!r}.")
    rows = _number_of_rows(batch)
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise ValueError(f"`steps` must be a whole number of at least 1; got {steps!r}.")
    steps_wanted = steps
    steps = min(steps, max(rows, 1))  # a short last batch has fewer parts
    if not isinstance(reduction, str) or reduction.upper() not in ("SUM", "MEAN"):
        raise ValueError(f"`reduction` must be 'SUM' or 'MEAN'; got {reduction!r}.")
    total: Any = None
    start = 0
    for index in range(steps):
        stop = start + rows // steps + (index < rows % steps)
        part = _tree.map_structure(lambda x, a=start, b=stop: x[a:b], batch)
        outer = on_micro_batch.set(steps_wanted > 1)
        try:
            loss, gradients = value_and_grad(
                functools.partial(loss_fn, part), variables, compile=compile
            )
        finally:
            on_micro_batch.reset(outer)
        weight = (stop - start) / max(rows, 1) if reduction.upper() == "MEAN" else 1.0
        scaled = _tree.map_structure(lambda x, w=weight: _scaled(x, w), (loss, gradients))
        total = scaled if total is None else _tree.map_together(_added, [total, scaled])
        start = stop
    return total


def _scaled(value: Any, weight: float) -> Any:
    return value if value is None or weight == 1.0 else value * weight


def _added(total: Any, value: Any) -> Any:
    if total is None or value is None:  # the loss did not read this variable in some micro-batch
        return value if total is None else total
    return total + value


def _number_of_rows(batch: PyTree) -> int:
    leaves, _ = _tree.flatten(batch)
    sizes = {jnp.shape(leaf)[0] if jnp.ndim(leaf) else None for leaf in leaves}
    if len(sizes) != 1 or None in sizes:
        shapes = [tuple(jnp.shape(leaf)) for leaf in leaves]
        raise ValueError(
            "`batch` must hold arrays with the same number of rows along their first dimension; "
            f"got shapes {shapes}."
        )
    return sizes.pop() or 0
