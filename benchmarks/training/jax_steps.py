"""One training step with Adam: with replicax, and what the ways to write it by hand share.

A step holds its state, and is launched without waiting for it.
"""

import collections
import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import replicax as rx
from benchmarks.harness.sides import Side, Work, check_equal
from benchmarks.training.losses import loss_and_statistics, moved
from benchmarks.training.models import (
    EPSILON,
    LEARNING_RATE,
    MODELS,
    Model,
    initial_weights,
    replica_batches,
)
from replicax._src._typing import Device

AXIS = "data"
IN_FLIGHT = 8


def adam() -> optax.GradientTransformation:
    """Returns the optimizer of all steps."""
    return optax.adam(LEARNING_RATE, eps=EPSILON)


def use_cpu_devices(count: int) -> None:
    """Makes JAX have so many virtual CPU devices, before it is used."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", count)


def mirrored(devices: list[Device], **options: Any) -> rx.distribute.MirroredStrategy:
    """Returns a strategy over the devices."""
    names = [f"{device.platform.upper()}:{device.id}" for device in devices]
    return rx.distribute.MirroredStrategy(names, **options)


class Step(ABC):
    """A way to write the step."""

    @abstractmethod
    def launch(self) -> jax.Array:
        """Launches one step and returns its loss over the whole batch."""

    @abstractmethod
    def compiled_peak(self) -> int:
        """Returns the most bytes that a step needs on one device, as the compiler says."""

    def averages(self) -> list[np.ndarray]:
        """Returns the moving averages of batch norm, averaged over the replicas."""
        return []


class Replicax(Step):
    """Ours, written as a user would: the strategy alone knows where state and batches are.

    Args:
      model: that is trained.
      strategy: that distributes it.
      averages: whether moving averages of batch norm are kept.
    """

    def __init__(self, model: Model, strategy: rx.distribute.Strategy, averages: bool = False):
        self.strategy = strategy
        with strategy.scope():
            weights = [rx.Variable(weight) for weight in initial_weights(model)]
            self._averages = [
                rx.Variable(
                    average,
                    trainable=False,
                    synchronization=rx.VariableSynchronization.ON_READ,
                    aggregation=rx.VariableAggregation.MEAN,
                )
                for average in (model.net.averages() if averages else [])
            ]
            optimizer = rx.Optimizer(adam())
            optimizer.build(weights)

        def replica_step(inputs, labels):
            inputs = self.laid_out(inputs)
            (loss, statistics), gradients = rx.value_and_grad(
                lambda: loss_and_statistics(model, weights, inputs, labels), weights, has_aux=True
            )
            optimizer.apply_gradients(zip(gradients, weights, strict=True))
            for average, statistic in zip(self._averages, statistics):
                average.assign(moved(average, statistic[0]))
            return loss

        @rx.function
        def replicax_step(batch):
            losses = strategy.run(replica_step, args=batch)
            return strategy.reduce("SUM", losses, axis=None)

        self.function = replicax_step
        self.batch = distributed_batch(strategy, model)

    def laid_out(self, inputs: jax.Array) -> jax.Array:
        """Returns the inputs of a replica, as they are over its logical devices."""
        return inputs

    def launch(self) -> jax.Array:
        return self.function(self.batch)

    def compiled_peak(self) -> int:
        report = self.function.explain(self.batch).report
        assert report is not None and report.peak_bytes is not None
        return report.peak_bytes

    def averages(self) -> list[np.ndarray]:
        return [average.numpy() for average in self._averages]


def distributed_batch(strategy: rx.distribute.Strategy, model: Model) -> tuple[Any, Any]:
    """Returns the inputs and the labels, distributed over the replicas."""
    batches = replica_batches(model, strategy.num_replicas_in_sync)

    def part(index: int) -> Any:
        return strategy.experimental_distribute_values_from_function(
            lambda context: jnp.asarray(batches[context.replica_id_in_sync_group][index])
        )

    return part(0), part(1)


class PlainJax(Step):
    """By hand: the step is a program that takes its state, which is donated, and a batch."""

    transformation = adam()
    state: Any
    batch: tuple[jax.Array, jax.Array]
    function: Any

    def updated(self, gradients: Any, weights: Any, state: Any) -> tuple[Any, Any]:
        """Returns the weights and the optimizer's state after an update."""
        updates, state = self.transformation.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state

    def launch(self) -> jax.Array:
        loss, self.state = self.function(self.state, *self.batch)
        return loss

    def compiled_peak(self) -> int:
        memory = self.function.lower(self.state, *self.batch).compile().memory_analysis()
        return (
            memory.argument_size_in_bytes
            + memory.output_size_in_bytes
            + memory.temp_size_in_bytes
            - memory.alias_size_in_bytes  # donated buffers count once
        )


class Replicated(PlainJax):
    """What the ways have in common in which every device has all state, and a part of the batch."""

    def __init__(self, model: Model, devices: list[Device]):
        self.model = model
        self.mesh = Mesh(np.array(devices), (AXIS,))
        self.whole, self.split = (NamedSharding(self.mesh, spec) for spec in (P(), P(AXIS)))
        weights = [jnp.asarray(weight) for weight in initial_weights(model)]
        averages = [np.repeat(each[None], len(devices), 0) for each in model.net.averages()]
        # A copy: Adam's two moments must not share a buffer with anything, to be donated.
        copies = jax.tree.map(jnp.copy, (weights, self.transformation.init(weights)))
        placed = jax.device_put(copies, self.whole)
        self.state = (*placed, jax.device_put(averages, self.split))
        self.batch = jax.device_put(replica_batches(model, 1)[0], self.split)
        self.function = self.compiled()

    @abstractmethod
    def compiled(self) -> Callable[..., Any]:
        """Returns the program."""

    def gradients(
        self, weights: Any, inputs: jax.Array, labels: jax.Array, groups: int
    ) -> tuple[jax.Array, list[jax.Array], Any]:
        """Returns the loss, the statistics for moving averages, and the gradients."""

        def loss_of(weights):
            return loss_and_statistics(self.model, weights, inputs, labels, groups)

        (loss, statistics), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights)
        return loss, statistics, gradients

    def averages(self) -> list[np.ndarray]:
        return [np.mean(each, axis=0) for each in self.state[2]]


class ByHand(Replicated):
    """`shard_map` with one `psum` for each gradient."""

    def compiled(self) -> Callable[..., Any]:
        def by_hand_step(all_state, inputs, labels):
            return self.replica_step(all_state, inputs, labels)

        return self.over_replicas(by_hand_step, P(AXIS))

    def replica_step(self, all_state: Any, inputs: jax.Array, labels: jax.Array) -> Any:
        """Returns the loss and the state after a step, in the program of a replica."""
        weights, state, averages = all_state
        loss, statistics, gradients = self.gradients(weights, inputs, labels, groups=1)
        gradients = jax.tree.map(lambda gradient: jax.lax.psum(gradient, AXIS), gradients)
        weights, state = self.updated(gradients, weights, state)
        averages = jax.tree.map(moved, averages, statistics)
        return jax.lax.psum(loss, AXIS), (weights, state, averages)

    def over_replicas(self, fn: Callable[..., Any], batches: P) -> Callable[..., Any]:
        """Returns the program of all replicas that takes the state, and batches laid out so."""
        specs = (P(), P(), P(AXIS))
        mapped = jax.shard_map(
            fn,
            mesh=self.mesh,
            in_specs=(specs, batches, batches),
            out_specs=(P(), specs),
            check_vma=False,
        )
        return jax.jit(mapped, donate_argnums=0)


class Sharded(Replicated):
    """`jax.jit` of the step for the whole batch, which is sharded: the compiler does the rest."""

    def compiled(self) -> Callable[..., Any]:
        def sharded_step(all_state, inputs, labels):
            weights, state, averages = all_state
            found = self.gradients(weights, inputs, labels, groups=self.mesh.size)
            loss, statistics, gradients = found
            weights, state = self.updated(gradients, weights, state)
            return loss, (weights, state, jax.tree.map(moved, averages, statistics))

        layout = (self.whole, (self.whole, self.whole, self.split))
        return jax.jit(sharded_step, donate_argnums=0, out_shardings=layout)


class JaxStep(Side):
    """A step on the devices of this process.

    Args:
      way: how it is written: "replicax", "by_hand" or "sharded".
    """

    version = jax.__version__
    step: Step

    def __init__(self, way: str):
        self.way = way

    def prepare(self, name: str, devices: int) -> Work:
        model, found = MODELS[name], jax.devices()[:devices]
        if self.way == "replicax":
            self.step = Replicax(model, mirrored(found), averages=True)
        else:
            self.step = {"by_hand": ByHand, "sharded": Sharded}[self.way](model, found)
        return launching(self.step.launch)

    def start(self, case: Sequence[Any], count: int) -> list[float]:
        """Returns the losses; moving averages must be those of the step by hand too."""
        losses = super().start(case, count)
        if self.way != "by_hand" and (averages := self.step.averages()):
            reference = JaxStep("by_hand")
            reference.start(case, count)
            for mine, expected in zip(averages, reference.step.averages()):
                check_equal(f"the moving averages of {self.way}", mine, expected, 1e-4)
        return losses

    def memory(self, name: str, devices: int, steps: int) -> dict[str, int]:
        """Returns the bytes of all live arrays after 2 steps and after `steps`, and the peak.

        The peak is the most that a step needs at one time on one device: on the CPU what the
        compiler says, on a GPU what the allocator saw.
        """
        work = self.prepare(name, devices)
        live = []
        for count in (2, steps - 2):
            work(count)
            live.append(sum(bytes_on_devices().values()))
        if jax.default_backend() == "cpu":
            peak = self.step.compiled_peak()
        else:
            peak = jax.devices()[0].memory_stats()["peak_bytes_in_use"]
        return {"early": live[0], "late": live[1], "peak": peak}


def launching(launch: Callable[[], Any]) -> Work:
    """Returns the work of launching so many steps with a few in flight, until all are done.

    It returns the last losses.
    """

    def work(count: int) -> list[Any]:
        flying: collections.deque[Any] = collections.deque()
        next_one = few_in_flight(launch, flying)
        for _ in range(count):
            next_one()
        wait_for_all()
        return list(flying)

    return work


def few_in_flight(launch: Callable[[], Any], flying: collections.deque[Any]) -> Callable[[], Any]:
    """Returns `launch`, which first waits for what is launched if that is more than a few.

    Not with all in flight: on virtual CPU devices the collectives of some 30 programs, each for 8
    devices, can take all threads and wait for each other forever. It keeps the results in `flying`.
    """

    def launched() -> Any:
        flying.append(launch())
        if len(flying) > IN_FLIGHT:
            jax.block_until_ready(flying.popleft())
        return flying[-1]

    return launched


def wait_for_all() -> None:
    """Waits for every array there is, so for every step that was launched."""
    jax.block_until_ready(jax.live_arrays())


def bytes_on_devices() -> dict[Device, int]:
    """Returns the bytes of live arrays on each device; buffers that arrays share count once."""
    gc.collect()
    sizes: dict[Device, int] = collections.defaultdict(int)
    seen: set[tuple[Device, int]] = set()
    for array in jax.block_until_ready(jax.live_arrays()):
        for shard in array.addressable_shards:
            buffer = shard.device, shard.data.unsafe_buffer_pointer()
            if buffer not in seen:
                seen.add(buffer)
                sizes[shard.device] += shard.data.nbytes
    return sizes
