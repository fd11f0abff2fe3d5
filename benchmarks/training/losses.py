"""The losses of the models in plain JAX, for arrays and for `rx.Variable`s alike."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from benchmarks.training.models import MOMENTUM, Conv, Dense, Model, Transformer

cross_entropy = optax.softmax_cross_entropy_with_integer_labels


def loss_and_statistics(
    model: Model, weights: Sequence[Any], inputs: jax.Array, labels: jax.Array, groups: int = 1
) -> tuple[jax.Array, list[jax.Array]]:
    """Returns the loss as a share of the whole batch's mean, and statistics for moving averages.

    Batch norm looks at each of `groups` equal parts of the inputs by itself: one program for all
    replicas has a group for each, and a replica's own program has one. A statistic has a row for
    each group.
    """
    net = model.net
    if isinstance(net, Dense):
        losses, statistics = dense_losses(weights, inputs, labels), []
    elif isinstance(net, Conv):
        losses, statistics = conv_losses(weights, inputs, labels, groups)
    else:
        losses, statistics = transformer_losses(net, weights, inputs, labels), []
    return jnp.sum(losses) / model.batch, statistics


def moved(average: Any, statistic: jax.Array) -> jax.Array:
    return MOMENTUM * average + (1 - MOMENTUM) * statistic


def dense_losses(weights: Sequence[Any], inputs: jax.Array, labels: jax.Array) -> jax.Array:
    hidden = inputs
    for kernel, bias in zip(weights[:-2:2], weights[1:-2:2], strict=True):
        hidden = jax.nn.relu(hidden @ kernel + bias)
    return cross_entropy(hidden @ weights[-2] + weights[-1], labels)


def conv_losses(
    weights: Sequence[Any], inputs: jax.Array, labels: jax.Array, groups: int
) -> tuple[jax.Array, list[jax.Array]]:
    hidden, statistics = inputs, []
    for layer in range(0, len(weights) - 2, 3):
        kernel, gain, offset = weights[layer : layer + 3]
        hidden = jax.lax.conv_general_dilated(
            hidden,
            jnp.asarray(kernel),
            (2, 2) if layer else (1, 1),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        grouped = hidden.reshape(groups, -1, *hidden.shape[1:])
        mean = jnp.mean(grouped, axis=(1, 2, 3), keepdims=True)
        variance = jnp.var(grouped, axis=(1, 2, 3), keepdims=True)
        normal = ((grouped - mean) * jax.lax.rsqrt(variance + 1e-3)).reshape(hidden.shape)
        hidden = jax.nn.relu(normal * gain + offset)
        statistics += [each.reshape(groups, -1) for each in (mean, variance)]
    logits = jnp.mean(hidden, axis=(1, 2)) @ weights[-2] + weights[-1]
    return cross_entropy(logits, labels), statistics


def transformer_losses(
    net: Transformer, weights: Sequence[Any], inputs: jax.Array, labels: jax.Array
) -> jax.Array:
    dtype = jnp.dtype(net.dtype)
    given = iter(weights)

    def take() -> jax.Array:
        return jnp.asarray(next(given)).astype(dtype)

    def normal(x: jax.Array) -> jax.Array:
        x32 = x.astype(jnp.float32)
        x32 = x32 - jnp.mean(x32, axis=-1, keepdims=True)
        scale = jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + 1e-5)
        return (x32 * scale).astype(dtype) * take() + take()

    embedding, positions = take(), take()
    # A row for each token: plain matrix products are faster than batched ones.
    stream = (embedding[inputs] + positions).reshape(-1, net.width)
    heads = (*inputs.shape, 3 * net.heads, net.width // net.heads)
    for _ in range(net.layers):
        query, key, value = jnp.split((normal(stream) @ take()).reshape(heads), 3, axis=2)
        mixed = jax.nn.dot_product_attention(query, key, value, is_causal=True)
        stream = stream + mixed.reshape(stream.shape) @ take()
        hidden = jax.nn.relu(normal(stream) @ take() + take())
        stream = stream + hidden @ take() + take()
    logits = (normal(stream) @ embedding.T).astype(jnp.float32)
    losses = cross_entropy(logits, labels.reshape(-1))
    return jnp.mean(losses.reshape(labels.shape), axis=-1)
