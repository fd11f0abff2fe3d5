"""One training step of `step.py`, written three ways: with replicax, by hand, and with sharded jit.

Each variant holds its state and launches a step without waiting for it.
"""

import collections
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from _step_losses import loss_and_statistics, moved
from _step_models import EPSILON, LEARNING_RATE, Model, initial_weights, replica_batches
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import replicax as rx

AXIS = "data"
IN_FLIGHT = 8


def adam() -> optax.GradientTransformation:
    return optax.adam(LEARNING_RATE, eps=EPSILON)


class Variant(ABC):
    """A way to write the step."""

    # The name of its compiled program.
    program: str

    @abstractmethod
    def step(self) -> jax.Array:
        """Launches one step and returns its loss over the whole batch."""

    @abstractmethod
    def averages(self) -> list[np.ndarray]:
        """The moving averages of batch norm, averaged over the replicas."""


class Replicax(Variant):
    """Ours, written as a user would."""

    program = "replicax_step"

    def __init__(self, model: Model, devices: list[Any]):
        names = [f"{device.platform.upper()}:{device.id}" for device in devices]
        self.strategy = strategy = rx.distribute.MirroredStrategy(names)
        with strategy.scope():
            weights = [rx.Variable(weight) for weight in initial_weights(model)]
            self._averages = averages = [
                rx.Variable(
                    average,
                    trainable=False,
                    synchronization=rx.VariableSynchronization.ON_READ,
                    aggregation=rx.VariableAggregation.MEAN,
                )
                for average in model.net.averages()
            ]
            optimizer = rx.Optimizer(adam())
            optimizer.build(weights)

        def replica_step(inputs, labels):
            (loss, statistics), gradients = rx.value_and_grad(
                lambda: loss_and_statistics(model, weights, inputs, labels), weights, has_aux=True
            )
            optimizer.apply_gradients(zip(gradients, weights, strict=True))
            for average, statistic in zip(averages, statistics, strict=True):
                average.assign(moved(average, statistic[0]))
            return loss

        @rx.function
        def replicax_step(batch):
            losses = strategy.run(replica_step, args=batch)
            return strategy.reduce("SUM", losses, axis=None)

        self.function = replicax_step
        batches = replica_batches(model, len(devices))

        def part(index: int):
            return strategy.experimental_distribute_values_from_function(
                lambda context: jnp.asarray(batches[context.replica_id_in_sync_group][index])
            )

        self.batch = part(0), part(1)

    def step(self) -> jax.Array:
        return self.function(self.batch)

    def averages(self) -> list[np.ndarray]:
        return [average.numpy() for average in self._averages]


class OfArrays(Variant):
    """What the two ways of plain JAX share: the state is arrays that the step is handed."""

    def __init__(self, model: Model, devices: list[Any]):
        self.model = model
        self.mesh = Mesh(np.array(devices), (AXIS,))
        self.whole, self.split = (NamedSharding(self.mesh, spec) for spec in (P(), P(AXIS)))
        self.transformation = adam()
        weights = [jnp.asarray(weight) for weight in initial_weights(model)]
        state = self.transformation.init(weights)
        rows = len(devices)
        averages = [np.repeat(each[None], rows, 0) for each in model.net.averages()]
        parts = replica_batches(model, 1)[0]
        # A copy: Adam's two moments must not share a buffer with anything, to be donated.
        weights, state = jax.tree.map(jnp.copy, (weights, state))
        self.state = (
            *jax.device_put((weights, state), self.whole),
            jax.device_put(averages, self.split),
        )
        self.batch = jax.device_put(parts, self.split)
        self.function = self.compiled()

    @abstractmethod
    def compiled(self) -> Callable[..., Any]:
        """The step as a program that takes the state and a batch; the state is donated."""

    def updated(self, gradients: Any, weights: Any, state: Any) -> tuple[Any, Any]:
        updates, state = self.transformation.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state

    def step(self) -> jax.Array:
        loss, self.state = self.function(self.state, *self.batch)
        return loss

    def averages(self) -> list[np.ndarray]:
        return [np.mean(each, axis=0) for each in self.state[2]]


class ByHand(OfArrays):
    """`shard_map` with one `psum` for each gradient."""

    program = "by_hand_step"

    def compiled(self) -> Callable[..., Any]:
        def by_hand_step(all_state, inputs, labels):
            weights, state, averages = all_state

            def loss_of(weights):
                return loss_and_statistics(self.model, weights, inputs, labels)

            (loss, statistics), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights)
            gradients = jax.tree.map(lambda gradient: jax.lax.psum(gradient, AXIS), gradients)
            weights, state = self.updated(gradients, weights, state)
            averages = jax.tree.map(moved, averages, statistics)
            return jax.lax.psum(loss, AXIS), (weights, state, averages)

        specs = (P(), P(), P(AXIS))
        mapped = jax.shard_map(
            by_hand_step,
            mesh=self.mesh,
            in_specs=(specs, P(AXIS), P(AXIS)),
            out_specs=(P(), specs),
            check_vma=False,
        )
        return jax.jit(mapped, donate_argnums=0)


class Sharded(OfArrays):
    """`jax.jit` of the step for the whole batch, which is sharded: the compiler does the rest."""

    program = "sharded_step"

    def compiled(self) -> Callable[..., Any]:
        groups = self.mesh.size

        def sharded_step(all_state, inputs, labels):
            weights, state, averages = all_state

            def loss_of(weights):
                return loss_and_statistics(self.model, weights, inputs, labels, groups)

            (loss, statistics), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights)
            weights, state = self.updated(gradients, weights, state)
            return loss, (weights, state, jax.tree.map(moved, averages, statistics))

        layout = (self.whole, (self.whole, self.whole, self.split))
        return jax.jit(sharded_step, donate_argnums=0, out_shardings=layout)


VARIANTS: dict[str, type[Variant]] = {
    "replicax": Replicax,
    "by hand": ByHand,
    "sharded": Sharded,
}


def launch_many(launch: Callable[[], Any], count: int) -> None:
    """Launches steps with a few in flight, and waits until all are done.

    Not with all in flight: on virtual CPU devices the collectives of some 30 programs, each for 8
    devices, can take all threads and wait for each other for ever.
    """
    flying: collections.deque[Any] = collections.deque()
    for _ in range(count):
        flying.append(launch())
        if len(flying) > IN_FLIGHT:
            jax.block_until_ready(flying.popleft())
    wait_for_all()


def wait_for_all() -> None:
    """Waits for every array there is, so for every step that was launched."""
    jax.block_until_ready(jax.live_arrays())
