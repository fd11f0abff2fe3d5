"""A training step of `sharded.py` with what it works on: ours, and those by hand."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from _sharded_memory import peak_of
from _step_losses import loss_and_statistics
from _step_models import Model, initial_weights, replica_batches
from _step_variants import adam

import replicax as rx


class Variant(ABC):
    """A way to write the step."""

    @abstractmethod
    def step(self) -> jax.Array:
        """Launches one step and returns its loss over the whole batch."""

    @abstractmethod
    def compiled_peak(self) -> int:
        """The most bytes that a step needs on one device, as the compiler says."""


class OfReplicax(Variant):
    """Ours, written as a user would: the strategy alone knows how state is laid out."""

    def __init__(self, model: Model, strategy: rx.distribute.Strategy):
        with strategy.scope():
            weights = [rx.Variable(weight) for weight in initial_weights(model)]
            optimizer = rx.Optimizer(adam())
            optimizer.build(weights)

        def replica_step(inputs, labels):
            inputs = self.laid_out(inputs)
            loss, gradients = rx.value_and_grad(
                lambda: loss_and_statistics(model, weights, inputs, labels)[0], weights
            )
            optimizer.apply_gradients(zip(gradients, weights, strict=True))
            return loss

        @rx.function
        def train_step(batch):
            losses = strategy.run(replica_step, args=batch)
            return strategy.reduce("SUM", losses, axis=None)

        self.strategy, self.function = strategy, train_step
        batches = replica_batches(model, strategy.num_replicas_in_sync)

        def part(index: int):
            return strategy.experimental_distribute_values_from_function(
                lambda context: jnp.asarray(batches[context.replica_id_in_sync_group][index])
            )

        self.batch = part(0), part(1)

    def laid_out(self, inputs: jax.Array) -> jax.Array:
        """The inputs of a replica, over its logical devices."""
        return inputs

    def step(self) -> jax.Array:
        return self.function(self.batch)

    def compiled_peak(self) -> int:
        report = self.function.explain(self.batch).report
        assert report is not None and report.peak_bytes is not None
        return report.peak_bytes


class ByHand(Variant):
    """Plain JAX: the step is handed its state, which is donated, and a batch."""

    state: Any
    batch: tuple[jax.Array, jax.Array]
    function: Callable[..., Any]

    def step(self) -> jax.Array:
        loss, self.state = self.function(self.state, *self.batch)
        return loss

    def compiled_peak(self) -> int:
        program: Any = self.function
        return peak_of(program.lower(self.state, *self.batch).compile())


def device_names(devices: list[Any]) -> list[str]:
    return [f"{device.platform.upper()}:{device.id}" for device in devices]
