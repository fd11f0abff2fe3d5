"""Averaging losses over the global batch: `rx.nn.compute_average_loss` and its companion.

Optimizers add gradients up over replicas. A loss divided by the *global* batch size on every
replica therefore gives the gradient of the mean over all examples.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from replicax._src._errors import WrongContextError
from replicax._src._typing import ArrayInput, Tracer
from replicax._src.context import get_strategy, has_strategy, in_cross_replica_context


@final
class _Convention(threading.local):
    as_mean: Callable[[jax.Array], jax.Array] | None = None  # where gradients are averaged


_convention = _Convention()


@contextlib.contextmanager
def losses_as_means(as_mean: Callable[[jax.Array], jax.Array]) -> Iterator[None]:
    """Within the block replicas have means of their own rows, which are averaged, not added up.

    `as_mean` makes such a mean of a part of the whole loss. In a `train_step` of Keras a loss may
    be either, and is to be the same.
    """
    before, _convention.as_mean = _convention.as_mean, as_mean
    try:
        yield
    finally:
        _convention.as_mean = before


def compute_average_loss(
    per_example_loss: ArrayInput,
    sample_weight: ArrayInput | None = None,
    global_batch_size: ArrayInput | None = None,
) -> jax.Array:
    """The sum of the per-example losses, divided by the global batch size.

    Args:
      per_example_loss: one loss for each example of this replica.
      sample_weight: optional weights of the examples.
      global_batch_size: the number of examples over all replicas; by default the number here times
        the number of replicas. Pass it where the last batch may be smaller.

    Returns:
      A scalar; 0 for an empty batch.
    """
    losses = _as_floats(per_example_loss, "per_example_loss")
    if sample_weight is not None:
        losses = losses * _broadcast_weight(_as_floats(sample_weight, "sample_weight"), losses)
    if losses.ndim == 0:
        raise ValueError(
            "`per_example_loss` is a scalar, but an average needs one loss per example. Leave out "
            "the jnp.mean or jnp.sum over the examples."
        )
    if global_batch_size is None:
        _require_replica("compute_average_loss", ", or pass global_batch_size")
        replicas = get_strategy().num_replicas_in_sync
        return _divided(losses, losses.shape[0] * (1 if _convention.as_mean else replicas))
    part = _divided(losses, _checked_batch_size(global_batch_size))
    return part if _convention.as_mean is None else _convention.as_mean(part)


def scale_regularization_loss(regularization_loss: ArrayInput) -> jax.Array:
    """The sum of the regularization losses, divided by the number of replicas.

    Every replica computes the same regularization loss, and gradients are added up over replicas.
    """
    _require_replica("scale_regularization_loss")
    total = jnp.sum(_as_floats(regularization_loss, "regularization_loss"))
    return total if _convention.as_mean else total / get_strategy().num_replicas_in_sync


def _divided(losses: jax.Array, size: Any) -> jax.Array:
    total = jnp.sum(losses)
    if isinstance(size, int):  # known beforehand, and two operations fewer under jax.grad
        return total / size if size else jnp.zeros_like(total)
    return jnp.where(size == 0, jnp.zeros_like(total), total / jnp.where(size == 0, 1, size))


def _require_replica(what: str, or_else: str = "") -> None:
    if has_strategy() and in_cross_replica_context():
        raise WrongContextError(
            f"{what} was called in cross-replica context, but each replica has a loss of its own. "
            f"Call it in the function that you pass to strategy.run{or_else}."
        )


def _as_floats(value: object, argument: str) -> jax.Array:
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"`{argument}` must be an array of numbers; got {value!r}: {error}"
        ) from None
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        if array.dtype == jnp.bool_:
            raise TypeError(f"`{argument}` must be numbers; got booleans. Use x.astype('float32').")
        array = array.astype(jnp.float32)
    return array


def _broadcast_weight(weight: jax.Array, losses: jax.Array) -> jax.Array:
    while weight.ndim > losses.ndim and weight.shape[-1] == 1:
        weight = weight[..., 0]
    while weight.ndim < losses.ndim and weight.ndim > 0:
        weight = weight[..., None]
    try:
        return jnp.broadcast_to(weight, losses.shape)
    except ValueError:
        raise ValueError(
            f"`sample_weight` of shape {weight.shape} does not fit `per_example_loss` of shape "
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
