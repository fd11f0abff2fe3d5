"""Epochs of training loops as users write them: a data set, a compiled step, a metric."""

import functools
import importlib
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.monitoring
import numpy as np

import replicax as rx
from benchmarks.harness.sides import Side, Work
from benchmarks.training.jax_steps import adam, mirrored, use_cpu_devices
from benchmarks.training.losses import dense_losses, transformer_losses
from benchmarks.training.models import CLASSES, Dense, Transformer

BATCH = 128
_COMPILATION = "/jax/core/compile/backend_compile_duration"
KERAS_MODEL = "convolutions, Keras"
_IMAGE = (28, 28, 1)

# Takes the inputs and labels of a replica, updates the model, and returns the losses of the rows.
ReplicaStep = Callable[[Any, Any], Any]


class Epochs(Side):
    """Trains over so many rows in batches of `BATCH`, on virtual CPU devices."""

    def __init__(self, rows: int, replicas: int):
        self._rows, self._replicas = rows, replicas

    def prepare(self, model: str) -> Work:
        if model == KERAS_MODEL:
            _keras()  # before the scope is entered
        strategy = mirrored(jax.devices()[: self._replicas])
        with strategy.scope():
            examples, replica_step = LOOPS[model](self._rows)
            mean = rx.metrics.Mean()

        def step_and_metric(x: Any, y: Any) -> Any:
            losses = replica_step(x, y)
            mean.update_state(losses)
            return rx.nn.compute_average_loss(losses, global_batch_size=BATCH)

        @rx.function
        def train_step(x: Any, y: Any) -> Any:
            losses = strategy.run(step_and_metric, args=(x, y))
            return strategy.reduce("SUM", losses, axis=None)

        dataset = rx.data.Dataset.from_tensor_slices(examples).batch(BATCH)
        batches = strategy.experimental_distribute_dataset(dataset)

        def work(count: int) -> Sequence[float]:
            numbers: list[float] = []
            for _ in range(count):
                mean.reset_state()
                losses = [train_step(x, y) for x, y in batches]
                numbers = [float(losses[-1]), float(mean.result())]
            return numbers

        return work


class FirstEpoch(Epochs):
    """The same in a process of its own."""

    def __init__(self, rows: int, replicas: int):
        use_cpu_devices(replicas)
        super().__init__(rows, replicas)

    def first_epoch(self, model: str) -> tuple[float, int, Sequence[float]]:
        """Returns the seconds of the first epoch, the programs compiled in it, and its numbers."""
        compiled: list[float] = []

        def note(event: str, seconds: float, **_: Any) -> None:
            if event == _COMPILATION:
                compiled.append(seconds)

        work = self.prepare(model)
        jax.monitoring.register_event_duration_secs_listener(note)
        begin = time.perf_counter()
        numbers = work(1)
        return time.perf_counter() - begin, len(compiled), numbers


def _net(widths: tuple[int, ...], rows: int) -> tuple[Any, ReplicaStep]:
    net = Dense(widths)
    examples = net.examples(np.random.default_rng(1), rows)
    return examples, _optax_step(net.weights(np.random.default_rng(0)), dense_losses)


def _transformer(rows: int) -> tuple[Any, ReplicaStep]:
    net = Transformer(layers=2, width=64, heads=4, length=16, vocabulary=64)
    examples = net.examples(np.random.default_rng(1), rows)
    losses_of = functools.partial(transformer_losses, net)
    return examples, _optax_step(net.weights(np.random.default_rng(0)), losses_of)


def _optax_step(initial: list[np.ndarray], losses_of: Callable[..., Any]) -> ReplicaStep:
    weights = [rx.Variable(weight) for weight in initial]
    optimizer = rx.Optimizer(adam())

    def replica_step(x: Any, y: Any) -> Any:
        def loss_fn() -> Any:
            losses = losses_of(weights, x, y)
            return rx.nn.compute_average_loss(losses, global_batch_size=BATCH), losses

        (_, losses), gradients = rx.value_and_grad(loss_fn, weights, has_aux=True)
        optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return losses

    return replica_step


def _keras() -> Any:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    return importlib.import_module("keras")


def _keras_cnn(rows: int) -> tuple[Any, ReplicaStep]:
    keras = _keras()
    keras.utils.set_random_seed(0)
    layers = keras.layers
    model: Any = keras.Sequential(
        [
            layers.Input(_IMAGE),
            layers.Conv2D(8, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(CLASSES),
        ]
    )
    optimizer: Any = keras.optimizers.Adam()
    entropy: Any = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=None)

    def replica_step(x: Any, y: Any) -> Any:
        def loss_fn() -> Any:
            losses = entropy(y, model(x, training=True))
            return rx.nn.compute_average_loss(losses, global_batch_size=BATCH), losses

        variables = model.trainable_variables
        (_, losses), gradients = rx.value_and_grad(loss_fn, variables, has_aux=True)
        optimizer.apply_gradients(zip(gradients, variables))
        return losses

    random = np.random.default_rng(1)
    images = random.normal(size=(rows, *_IMAGE)).astype(np.float32)
    return (images, random.integers(0, CLASSES, rows).astype(np.int32)), replica_step


LOOPS: dict[str, Callable[[int], tuple[Any, ReplicaStep]]] = {
    "net, optax": lambda rows: _net((784, 128, 128), rows),
    "transformer, optax": _transformer,
    KERAS_MODEL: _keras_cnn,
    "tiny": lambda rows: _net((8, 8), rows),
}
