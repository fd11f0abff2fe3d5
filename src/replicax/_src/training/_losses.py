"""Averaging losses over the global batch: `rx.nn.share_of_mean` and its companions.

Optimizers add gradients up over replicas. A loss divided by the number of rows of *all* replicas
therefore gives the gradient of the mean over all rows.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src._errors import WrongContextError
from replicax._src._thread_value import ThreadValue
from replicax._src._typing import ArrayInput, Tracer
from replicax._src.collectives import ReduceOp
from replicax._src.context import (
    ReplicaContext,
    get_replica_context,
    get_strategy,
    has_strategy,
    in_cross_replica_context,
    world,
)

# Whether a loss here is given a part of the replica's rows, as `rx.accumulate_gradients` does.
on_micro_batch: contextvars.ContextVar[bool] = contextvars.ContextVar("on_micro_batch")


def share_of_mean(values: ArrayInput, sample_weight: ArrayInput | None = None) -> jax.Array:
    """Returns this replica's share of the mean over the rows of *all* replicas.

    The shares add up to the mean that one device computes of all rows, and so do their gradients,
    which optimizers sum. This also holds if replicas have different numbers of rows or none, for a
    smaller last batch, and with several workers. Report the loss with
    `strategy.reduce("SUM", losses)`, and add other terms as shares too:
    `rx.nn.scale_regularization_loss`.

    >>> import replicax as rx
    >>> strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> rows = rx.data.Dataset.from_tensor_slices([1.0, 2.0, 6.0]).batch(3)
    >>> (batch,) = strategy.experimental_distribute_dataset(rows)  # two rows and one
    >>> shares = strategy.run(rx.nn.share_of_mean, args=(batch,))
    >>> strategy.reduce("SUM", shares, axis=None)
    Array(3., dtype=float32)

    The replicas count their rows together, so all of them must call it, in the same order. In a
    compiled function with equally many rows on all replicas the number is known, and nothing is
    sent.

    Unlike `compute_average_loss`, it divides by the number of items, of all dimensions, and with
    weights by their sum, as `jnp.average` and `rx.metrics.Mean` do.

    Args:
      values: an array with the rows of this replica along the first dimension.
      sample_weight: weights of the rows or of all items, or a mask of booleans.

    Returns:
      A scalar of the dtype of `values`; 0 if no replica has rows, or all weights are 0.
    """
    context = _replica_context("share_of_mean")
    if on_micro_batch.get(False):
        raise WrongContextError(
            "share_of_mean was called in the loss of rx.accumulate_gradients, which gets a part of "
            "the replica's rows at a time, so that it would be the mean of the part. Use "
            "rx.nn.compute_average_loss(losses, global_batch_size=...) there."
        )
    array = _require_rows(_as_floats(values, "values"), "values")
    sums = jnp.promote_types(array.dtype, jnp.float32)  # as jnp.mean adds halves up
    add_up = functools.partial(context.all_reduce, ReduceOp.SUM)
    if sample_weight is None:
        total = jnp.sum(array, dtype=sums)
        divisor = world().replicas.over_all(array.size, add_up)
    else:
        weight = _as_floats(sample_weight, "sample_weight", allow_masks=True)
        weight = _broadcast_weight(weight, array, "values").astype(sums)
        total, divisor = jnp.sum(array * weight), add_up(jnp.sum(weight))
    return _as_share(_divided(total, divisor).astype(array.dtype))


_as_mean = ThreadValue[Callable[[jax.Array], jax.Array] | None](None)  # if gradients are averaged


def losses_as_means(as_mean: Callable[[jax.Array], jax.Array]) -> AbstractContextManager[Any]:
    """Within the block replicas have means of their own rows, which are averaged, not added up.

    `as_mean` makes such a mean of a part of the whole loss. In a `train_step` of Keras a loss may
    be either, and is to be the same.
    """
    return _as_mean.set(as_mean)


def compute_average_loss(
    per_example_loss: ArrayInput,
    sample_weight: ArrayInput | None = None,
    global_batch_size: ArrayInput | None = None,
) -> jax.Array:
    """Returns the sum of the per-example losses, divided by the global batch size.

    Args:
      per_example_loss: one loss for each example of this replica.
      sample_weight: optional weights of the examples.
      global_batch_size: the number of examples over all replicas; by default the number here times
        the number of replicas, which is wrong where replicas have different numbers of them. A
        batch that is smaller than the number given counts less, as in TensorFlow;
        `share_of_mean` counts the rows.

    Returns:
      A scalar of the dtype of the losses; 0 for an empty batch.
    """
    losses = _as_floats(per_example_loss, "per_example_loss")
    if sample_weight is not None:
        weight = _as_floats(sample_weight, "sample_weight")
        weighted = losses * _broadcast_weight(weight, losses, "per_example_loss")
        losses = weighted.astype(losses.dtype)  # multiplied in the wider of the two
    _require_rows(losses, "per_example_loss")
    if global_batch_size is None:
        _require_replica("compute_average_loss", ", or pass global_batch_size")
        replicas = 1 if _as_mean.value else get_strategy().num_replicas_in_sync
        return _divided(jnp.sum(losses), losses.shape[0] * replicas)
    return _as_share(_divided(jnp.sum(losses), _checked_batch_size(global_batch_size)))


def scale_regularization_loss(regularization_loss: ArrayInput) -> jax.Array:
    """Returns the sum of the regularization losses, divided by the number of replicas.

    Every replica computes the same regularization loss, and gradients are added up over replicas.
    """
    _require_replica("scale_regularization_loss")
    total = jnp.sum(_as_floats(regularization_loss, "regularization_loss"))
    return total if _as_mean.value else total / get_strategy().num_replicas_in_sync


def _as_share(share: jax.Array) -> jax.Array:
    """Returns a part of the whole loss, as the optimizer here combines the parts."""
    return share if _as_mean.value is None else _as_mean.value(share)


def _divided(total: jax.Array, divisor: Any) -> jax.Array:
    """Returns the quotient; 0, with no gradient, where the divisor is 0."""
    if isinstance(divisor, int):  # known beforehand, and two operations fewer under jax.grad
        return total / divisor if divisor else jnp.zeros_like(total)
    is_zero = divisor == 0
    return jnp.where(is_zero, jnp.zeros_like(total), total / jnp.where(is_zero, 1, divisor))


def _require_rows(array: jax.Array, argument: str) -> jax.Array:
    if array.ndim == 0:
        raise ValueError(
            f"`{argument}` is a scalar, but an average needs one number per example. Leave out "
            "the jnp.mean or jnp.sum over the examples."
        )
    return array


def _replica_context(what: str) -> ReplicaContext:
    _require_replica(what)
    context = get_replica_context()
    assert context is not None
    return context


def _require_replica(what: str, or_else: str = "") -> None:
    if has_strategy() and in_cross_replica_context():
        raise WrongContextError(
            f"{what} was called in cross-replica context, but each replica has a loss of its own. "
            f"Call it in the function that you pass to strategy.run{or_else}."
        )


def _as_floats(value: object, argument: str, allow_masks: bool = False) -> jax.Array:
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"`{argument}` must be an array of numbers; got {value!r}: {error}"
        ) from None
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        if array.dtype == jnp.bool_ and not allow_masks:
            raise TypeError(f"`{argument}` must be numbers; got booleans. Use x.astype('float32').")
        array = array.astype(jnp.float32)
    return array


def _broadcast_weight(weight: jax.Array, losses: jax.Array, of: str) -> jax.Array:
    while weight.ndim > losses.ndim and weight.shape[-1] == 1:
        weight = weight[..., 0]
    while weight.ndim < losses.ndim and weight.ndim > 0:
        weight = weight[..., None]
    try:
        return jnp.broadcast_to(weight, losses.shape)
    except ValueError:
        raise ValueError(
            f"`sample_weight` of shape {weight.shape} does not fit `{of}` of shape "
            f"{losses.shape}. Pass one weight per example."
        ) from None


def _checked_batch_size(size: object) -> Any:
    if isinstance(size, Tracer):
        return size
    array = np.asarray(size)
    if array.shape != ():
        raise ValueError(
            f"`global_batch_size` must be one number; got an array of shape {array.shape}."
        )
    if not np.issubdtype(array.dtype, np.integer):
        raise TypeError(f"`global_batch_size` must be a whole number; got {size!r}.")
    if int(array) < 0:
        raise ValueError(f"`global_batch_size` must not be negative; got {size!r}.")
    return int(array)
