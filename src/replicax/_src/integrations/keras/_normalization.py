"""Batch normalization: moments of the rows of all replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from keras.src import backend
from keras.src.layers import BatchNormalization

from replicax._src.context import current_replica
from replicax._src.integrations.keras._variables import Original


def moments(
    original: Original,
    x: jax.Array,
    axes: Sequence[int],
    keepdims: bool = False,
    synchronized: bool = False,
) -> Any:
    """Mean and variance, of the rows of all replicas if asked for."""
    context = current_replica() if synchronized else None
    if context is None:
        return original(x, axes, keepdims, False)
    dtype = x.dtype
    exact = x.astype(jnp.float32) if dtype in (jnp.float16, jnp.bfloat16) else x
    total = jnp.sum(exact, axes, keepdims=True)
    total, count = context.all_reduce("SUM", (total, jnp.asarray(x.size / total.size, total.dtype)))
    mean = total / count
    # In two passes, as on one device: the difference of mean squares would lose digits.
    squares = jnp.sum(jnp.square(exact - mean), axes, keepdims=True)
    variance = context.all_reduce("SUM", squares) / count
    if not keepdims:
        mean, variance = jnp.squeeze(mean, axes), jnp.squeeze(variance, axes)
    return mean.astype(dtype), variance.astype(dtype)


def masked_moments(
    original: Original, layer: BatchNormalization, inputs: jax.Array, mask: ArrayLike | None
) -> Any:
    """Returns those of a `BatchNormalization` whose input has a mask: of the rows that count."""
    context = current_replica() if layer.synchronized and mask is not None else None
    if context is None:
        return original(layer, inputs, mask)
    axes = layer._reduction_axes
    counts = jnp.broadcast_to(jnp.asarray(mask)[..., None], inputs.shape).astype(inputs.dtype)

    def mean_of_all(values: jax.Array) -> Any:
        sums = [jnp.sum(each * counts, axes, keepdims=True) for each in (values, 1)]
        total, count = context.all_reduce("SUM", sums)
        return total / (count + backend.epsilon())

    mean = mean_of_all(inputs)
    variance = mean_of_all(jnp.square(inputs - mean))
    return jnp.squeeze(mean), jnp.squeeze(variance)


def normalized(
    original: Original,
    layer: BatchNormalization,
    inputs: jax.Array,
    training: bool | None = None,
    mask: ArrayLike | None = None,
) -> Any:
    """Calls a `BatchNormalization`. Without rows there is nothing to learn from for a replica.

    Where replicas normalize together, it learns from the rows of the others.
    """
    alone = current_replica() is None or not layer.synchronized
    if alone and 0 in jnp.shape(inputs):
        training = False
    return original(layer, inputs, training=training, mask=mask)
