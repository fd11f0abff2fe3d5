"""A transformer to plan with: a step of training, for any strategy and of any size.

It is what a user would write: parameters in `float32`, products in `bfloat16`, layers in a
`jax.lax.scan` with `jax.checkpoint`, and Adam. As a script it can be followed:

    replicax plan scripts/planned_transformer.py --on v5e:16x16 -- 8b everything
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx


class Size(NamedTuple):
    """How large a transformer is; `rows` and `length` are of each replica's share of a batch."""

    layers: int
    width: int
    inner: int
    heads: int
    letters: int
    rows: int
    length: int

    @property
    def parameters(self) -> int:
        layer = 4 * self.width**2 + 3 * self.width * self.inner
        return self.layers * layer + 2 * self.letters * self.width


SIZES = {
    "small": Size(4, 512, 1536, 8, 8192, 4, 256),
    "1b": Size(20, 2048, 5632, 16, 32768, 8, 1024),
    "8b": Size(32, 4096, 14336, 32, 128256, 1, 2048),
}


def weights_of(size: Size) -> dict[str, jax.Array]:
    """The first values of the parameters; layers are stacked."""
    shapes = {
        "attention_in": (size.layers, size.width, 3 * size.width),
        "attention_out": (size.layers, size.width, size.width),
        "gate": (size.layers, size.width, size.inner),
        "in": (size.layers, size.width, size.inner),
        "out": (size.layers, size.inner, size.width),
        "letters": (size.letters, size.width),
        "scores": (size.width, size.letters),
    }
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return {
        name: jax.random.normal(key, shape) * shape[-2] ** -0.5
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


def loss_of(weights: dict[str, jax.Array], tokens: jax.Array, size: Size) -> jax.Array:
    """The loss of predicting each token from those before it."""
    half = {name: weight.astype(jnp.bfloat16) for name, weight in weights.items()}
    layers = {name: half[name] for name in ("attention_in", "attention_out", "gate", "in", "out")}
    x, y = tokens[:, :-1], tokens[:, 1:]
    hidden = half["letters"][x]

    @jax.checkpoint
    def layer(hidden: jax.Array, weights: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        normal = jax.nn.standardize(hidden)
        parts = jnp.split(normal @ weights["attention_in"], 3, axis=-1)
        heads = [each.reshape(*x.shape, size.heads, -1) for each in parts]
        attended = jax.nn.dot_product_attention(*heads, is_causal=True)
        hidden = hidden + attended.reshape(hidden.shape) @ weights["attention_out"]
        normal = jax.nn.standardize(hidden)
        inner = jax.nn.silu(normal @ weights["gate"]) * (normal @ weights["in"])
        return hidden + inner @ weights["out"], None

    hidden, _ = jax.lax.scan(layer, hidden, layers)
    scores = (jax.nn.standardize(hidden) @ half["scores"]).astype(jnp.float32)
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(scores, y))


class Training(NamedTuple):
    """What there is to a training."""

    step: Any
    variables: dict[str, rx.Variable]
    batch: Callable[[], Any]


def training(strategy: rx.distribute.Strategy, size: Size) -> Training:
    """A step of training on all replicas, the parameters, and what makes a batch."""
    with strategy.scope():
        weights = rx.variables(weights_of(size))
        optimizer = rx.Optimizer(optax.adam(1e-4))
        optimizer.build(weights)

    def replica_step(tokens: jax.Array) -> jax.Array:
        def loss_fn() -> jax.Array:
            return loss_of(rx.arrays(weights), tokens, size) / strategy.num_replicas_in_sync

        loss, gradients = rx.value_and_grad(loss_fn, weights)
        optimizer.apply_gradients(zip(gradients.values(), weights.values(), strict=True))
        return loss

    @rx.function
    def train_step(tokens: Any) -> Any:
        losses = strategy.run(replica_step, args=(tokens,))
        return strategy.reduce("SUM", losses, axis=None)

    def batch() -> Any:
        rows = size.rows * strategy.num_replicas_in_sync
        tokens = np.broadcast_to(np.int32(1), (rows, size.length + 1))
        data = rx.data.Dataset.from_tensors(tokens)
        return next(iter(strategy.experimental_distribute_dataset(data)))

    return Training(train_step, weights, batch)


def main() -> None:
    """One step of training; for `replicax plan`."""
    name, layout = sys.argv[1:3] if len(sys.argv) > 2 else ("small", "nothing")
    state = rx.distribute.StateLayout(over_replicas=layout)
    found = training(rx.distribute.MirroredStrategy(state_layout=state), SIZES[name])
    print(f"loss {float(found.step(found.batch())):.3f}")


if __name__ == "__main__":
    main()
