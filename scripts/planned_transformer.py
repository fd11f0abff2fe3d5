"""A transformer to plan with: a step of training, for any strategy and of any size.

It is what a user would write: parameters in `float32`, products in `bfloat16`, layers under
`jax.checkpoint`, and Adam. As a script it can be followed:

    replicax plan scripts/planned_transformer.py --on v5e:16x16 -- 8b everything
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx


class Size(NamedTuple):
    """How large a transformer is; `rows` and `length` are of each replica's share of a batch.

    `is_stacked`: whether the layers are the rows of one variable each, for `jax.lax.scan`.
    """

    layers: int
    width: int
    inner: int
    heads: int
    letters: int
    rows: int
    length: int
    is_stacked: bool = False

    @property
    def parameters(self) -> int:
        layer = 4 * self.width**2 + 3 * self.width * self.inner
        return self.layers * layer + 2 * self.letters * self.width


SIZES = {
    "small": Size(2, 512, 1536, 8, 4096, 4, 128),
    "1b": Size(20, 2048, 5632, 16, 32768, 8, 1024),
    "8b": Size(8, 8192, 28672, 64, 32768, 1, 2048),
    "8b-stacked": Size(32, 4096, 14336, 32, 128256, 1, 2048, is_stacked=True),
}


def weights_of(size: Size) -> dict[str, Any]:
    """The first values of the parameters; those of a layer are variables of their own."""
    width, inner = size.width, size.inner
    layer = {
        "attention_in": (width, 3 * width),
        "attention_out": (width, width),
        "gate": (width, inner),
        "in": (width, inner),
        "out": (inner, width),
    }
    ends = {"letters": (size.letters, width), "scores": (width, size.letters)}

    def normal(shapes: dict[str, tuple[int, ...]], key: jax.Array) -> dict[str, jax.Array]:
        keys = jax.random.split(key, len(shapes))
        return {
            name: jax.random.normal(key, shape) * shape[-2] ** -0.5
            for key, (name, shape) in zip(keys, shapes.items(), strict=True)
        }

    keys = jax.random.split(jax.random.key(0), size.layers + 1)
    if size.is_stacked:
        stacked = {name: (size.layers, *shape) for name, shape in layer.items()}
        return {"ends": normal(ends, keys[0]), "layers": [normal(stacked, keys[1])]}
    layers = [normal(layer, key) for key in keys[1:]]
    return {"ends": normal(ends, keys[0]), "layers": layers}


def loss_of(weights: dict[str, Any], tokens: jax.Array, size: Size) -> jax.Array:
    """The loss of predicting each token from those before it.

    A layer is computed again for its gradients, and reads its parameters inside: where these are in
    parts, they are put together for each layer, and not all at once.
    """
    x, y = tokens[:, :-1], tokens[:, 1:]
    ends = weights["ends"]
    hidden = _half(ends["letters"])[x]
    if size.is_stacked:
        stacked = {name: _half(each) for name, each in weights["layers"][0].items()}

        @jax.checkpoint
        def layer_of(hidden: jax.Array, row: dict[str, jax.Array]) -> tuple[jax.Array, None]:
            return _layer(row, size.heads, hidden), None

        hidden, _ = jax.lax.scan(layer_of, hidden, stacked)
    else:
        for layer in weights["layers"]:
            hidden = jax.checkpoint(functools.partial(_layer, layer, size.heads))(hidden)

    @jax.checkpoint
    def loss(hidden: jax.Array) -> jax.Array:
        scores = (jax.nn.standardize(hidden) @ _half(ends["scores"])).astype(jnp.float32)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(scores, y))

    return loss(hidden)


def _layer(weights: dict[str, Any], heads: int, hidden: jax.Array) -> jax.Array:
    normal = jax.nn.standardize(hidden)
    parts = jnp.split(normal @ _half(weights["attention_in"]), 3, axis=-1)
    inputs = [each.reshape(*hidden.shape[:2], heads, -1) for each in parts]
    attended = jax.nn.dot_product_attention(*inputs, is_causal=True)
    hidden = hidden + attended.reshape(hidden.shape) @ _half(weights["attention_out"])
    normal = jax.nn.standardize(hidden)
    inner = jax.nn.silu(normal @ _half(weights["gate"])) * (normal @ _half(weights["in"]))
    return hidden + inner @ _half(weights["out"])


def _half(weight: Any) -> jax.Array:
    return jnp.asarray(weight).astype(jnp.bfloat16)


class Training(NamedTuple):
    """What there is to a training."""

    step: Any
    variables: list[rx.Variable]
    batch: Callable[[], Any]


def training(strategy: rx.distribute.Strategy, size: Size) -> Training:
    """A step of training on all replicas, the parameters, and what makes a batch."""
    with strategy.scope():
        weights = rx.variables(weights_of(size))
        variables = [weights["ends"]["letters"], weights["ends"]["scores"]]
        variables += [each for layer in weights["layers"] for each in layer.values()]
        optimizer = rx.Optimizer(optax.adam(1e-4))
        optimizer.build(variables)

    def replica_step(tokens: jax.Array) -> jax.Array:
        def loss_fn() -> jax.Array:
            return loss_of(weights, tokens, size) / strategy.num_replicas_in_sync

        loss, gradients = rx.value_and_grad(loss_fn, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
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

    return Training(train_step, variables, batch)


def main() -> None:
    """One step of training; for `replicax plan`."""
    name, layout = sys.argv[1:3] if len(sys.argv) > 2 else ("small", "nothing")
    state = rx.distribute.StateLayout(over_replicas=layout)
    found = training(rx.distribute.MirroredStrategy(state_layout=state), SIZES[name])
    print(f"loss {float(found.step(found.batch())):.3f}")


if __name__ == "__main__":
    main()
