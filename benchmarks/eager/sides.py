"""An eager training step: of replicax, and JAX's own part of it."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

import replicax as rx
from benchmarks.harness.sides import Side, Work
from benchmarks.training.jax_steps import adam, distributed_batch, mirrored
from benchmarks.training.losses import cross_entropy
from benchmarks.training.models import CLASSES, MODELS, Model, initial_weights, replica_batches


def one_hot_losses(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return -jnp.sum(jax.nn.log_softmax(logits) * jax.nn.one_hot(labels, CLASSES), axis=-1)


# Two ways to write a loss, which JAX runs eagerly at different speed.
IDIOMS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "nn": (jax.nn.relu, cross_entropy),
    "jnp": (lambda x: jnp.maximum(x, 0), one_hot_losses),
}


def make_loss(model: Model, idiom: str) -> Callable[..., Any]:
    """Returns the loss of arrays or of Variables, as a share of the whole batch's mean."""
    activation, example_losses = IDIOMS[idiom]

    def loss(weights: Sequence[Any], inputs: jax.Array, labels: jax.Array) -> jax.Array:
        hidden = inputs
        for kernel, bias in zip(weights[:-2:2], weights[1:-2:2], strict=True):
            hidden = activation(hidden @ kernel + bias)
        logits = hidden @ weights[-2] + weights[-1]
        return jnp.sum(example_losses(logits, labels)) / model.batch

    return loss


class Limit(Side):
    """JAX's own eager cost: gradients per replica, one after the other, with no update."""

    def __init__(self, idiom: str):
        self.idiom = idiom

    def prepare(self, name: str, replicas: int) -> Work:
        loss = make_loss(MODELS[name], self.idiom)
        devices = jax.devices()[:replicas]
        weights = initial_weights(MODELS[name])
        placed = [
            jax.device_put((weights, *batch), device)
            for device, batch in zip(devices, replica_batches(MODELS[name], replicas), strict=True)
        ]

        def step() -> float:
            results = []
            for device, given in zip(devices, placed, strict=True):
                with jax.default_device(device):
                    results.append(jax.value_and_grad(loss)(*given))
            jax.block_until_ready(results)
            return sum(float(value) for value, _ in results)

        return lambda count: [step() for _ in range(count)]


class EagerReplicax(Side):
    """A whole training step of ours, written as a user would."""

    def __init__(self, idiom: str, compiled: bool):
        self.idiom, self.compiled = idiom, compiled

    def prepare(self, name: str, replicas: int) -> Work:
        model = MODELS[name]
        loss = make_loss(model, self.idiom)
        strategy = mirrored(jax.devices()[:replicas])
        with strategy.scope():
            variables = [rx.Variable(weight) for weight in initial_weights(model)]
            optimizer = rx.Optimizer(adam())
            optimizer.build(variables)

        def replica_step(inputs, labels):
            value, gradients = rx.value_and_grad(
                lambda: loss(variables, inputs, labels), variables, compile=self.compiled
            )
            optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return value

        batch = distributed_batch(strategy, model)

        def step() -> float:
            values = strategy.run(replica_step, args=batch)
            total = sum(float(value) for value in strategy.experimental_local_results(values))
            # The update is one program per device: when one variable is there, all are.
            jax.block_until_ready(variables[0].read_value())
            return total

        return lambda count: [step() for _ in range(count)]
