"""Random trainings: losses, optimizers, any replicas, state in parts, stopped and resumed.

Each is compared with optax on one device and on whole batches, without replicax.
"""

import dataclasses
import functools
import tempfile
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from tests.under_test import cpus

LAW = "Any replicas, state in parts and a resumed run train what optax trains on one device."
COUNT = 2
WIDTH, STEPS = 8, 4
# Adam divides by what is nearly zero, which makes the last bits of tiny gradients visible.
RELATIVE, ABSOLUTE = 2e-4, 2e-5

FIRST: dict[str, Callable[[], Any]] = {
    "nothing": optax.identity,
    "clip_by_global_norm": lambda: optax.clip_by_global_norm(0.5),
    "clip": lambda: optax.clip(0.1),
    "clip_by_block_rms": lambda: optax.clip_by_block_rms(0.1),
    "adaptive_grad_clip": lambda: optax.adaptive_grad_clip(0.1),
    "add_decayed_weights": lambda: optax.add_decayed_weights(0.05),
    "centralize": optax.centralize,
    "ema": lambda: optax.ema(0.5),
}
MAIN: dict[str, Callable[[], Any]] = {
    "sgd": lambda: optax.sgd(0.1),
    "momentum": lambda: optax.sgd(0.1, momentum=0.9),
    "nesterov": lambda: optax.sgd(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: optax.adam(0.02),
    "adamw": lambda: optax.adamw(0.02, weight_decay=0.1),
    "adabelief": lambda: optax.adabelief(0.02, eps=1e-3),
    "rmsprop": lambda: optax.rmsprop(0.02, eps=1e-3),
    "adagrad": lambda: optax.adagrad(0.05),
    "lamb": lambda: optax.lamb(0.02),
    "schedule": lambda: optax.sgd(optax.exponential_decay(0.1, 2, 0.5)),
    "warm up": lambda: optax.adam(optax.warmup_cosine_decay_schedule(0.0, 0.05, 2, 6)),
    "inject_hyperparams": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=0.02),
}
LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "squares": lambda y, t: jnp.sum((y - t) ** 2, axis=-1),
    "huber": lambda y, t: jnp.sum(optax.huber_loss(y, t), axis=-1),
    "entropy": lambda y, t: optax.softmax_cross_entropy(y, jax.nn.softmax(t)),
    "logistic": lambda y, t: jnp.sum(jax.nn.softplus(-y * t), axis=-1),
}


@dataclasses.dataclass(frozen=True)
class Layout:
    """What a training runs on."""

    replicas: int
    over_replicas: str
    compiled: bool
    logical_devices: int = 1

    @classmethod
    def draw(cls, random: np.random.Generator) -> "Layout":
        replicas = int(random.choice([1, 2, 4]))
        over_replicas = str(random.choice(["nothing", "optimizer", "everything"]))
        logical = int(random.choice([1, 1, 1, 2]))
        return cls(replicas, over_replicas, bool(random.random() < 0.7), logical)

    def strategy(self) -> Any:
        rules = {"hidden": [1, self.logical_devices]} if self.logical_devices > 1 else {}
        return rx.distribute.MirroredStrategy(
            cpus(self.replicas * self.logical_devices),
            logical_devices_per_replica=self.logical_devices,
            state_layout=rx.distribute.StateLayout(self.over_replicas, rules, min_size=2),
        )


@dataclasses.dataclass(frozen=True)
class Training:
    """What is trained: the same on every layout."""

    first: str
    main: str
    loss: str
    rows: tuple[int, ...]
    seed: int

    @classmethod
    def draw(cls, random: np.random.Generator) -> "Training":
        first, main, loss = (str(random.choice(list(each))) for each in (FIRST, MAIN, LOSSES))
        rows = tuple(int(each) for each in random.choice([8, 8, 8, 7, 3, 1], STEPS))
        return cls(first, main, loss, rows, int(random.integers(100)))

    def transformation(self) -> Any:
        return optax.chain(FIRST[self.first](), MAIN[self.main]())

    @functools.cached_property
    def start(self) -> dict[str, np.ndarray]:
        random = np.random.default_rng(self.seed)
        shapes = {"hidden": (WIDTH, WIDTH), "bias": (WIDTH,), "output": (WIDTH, 3)}
        return {
            name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()
        }

    def batch(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        random = np.random.default_rng([self.seed, step])
        rows = self.rows[step]
        x, y = random.normal(size=(rows, WIDTH)), random.normal(size=(rows, 3))
        return x.astype(np.float32), y.astype(np.float32)

    def losses(self, weights: Any, x: Any, y: Any) -> Any:
        hidden = jnp.tanh(x @ weights["hidden"] + weights["bias"])
        return LOSSES[self.loss](hidden @ weights["output"], y)

    def plain(self) -> tuple[list[float], dict[str, np.ndarray]]:
        """Losses and weights of optax alone."""
        weights: Any = {name: jnp.asarray(value) for name, value in self.start.items()}
        transformation = self.transformation()
        state, losses = transformation.init(weights), []
        for step in range(STEPS):
            x, y = self.batch(step)

            def loss(weights: Any, x: Any = x, y: Any = y) -> Any:
                return jnp.sum(self.losses(weights, x, y)) / len(x)

            value, gradients = jax.value_and_grad(loss)(weights)
            updates, state = transformation.update(gradients, state, weights)
            weights = optax.apply_updates(weights, updates)
            losses.append(float(value))
        return losses, {name: np.asarray(weight) for name, weight in weights.items()}


class Run:
    """A training on a layout; it can be saved, and go on from what another one has saved."""

    def __init__(self, training: Training, layout: Layout):
        self.training, self.strategy = training, layout.strategy()
        with self.strategy.scope():
            self.weights = {
                name: rx.Variable(value, name=name) for name, value in training.start.items()
            }
            self.optimizer = rx.Optimizer(training.transformation())
            self.optimizer.build(self.weights)
        self.checkpoint = rx.train.Checkpoint(weights=self.weights, optimizer=self.optimizer)
        self._step = rx.function(self._all_replicas) if layout.compiled else self._all_replicas

    def train(self, steps: range) -> list[float]:
        losses = []
        for step in steps:
            x, y = self.training.batch(step)
            losses.append(float(self._step(self._share(x), self._share(y), np.float32(len(x)))))
        return losses

    def _share(self, rows: np.ndarray) -> Any:
        parts = np.array_split(rows, self.strategy.num_replicas_in_sync)
        return self.strategy.experimental_distribute_values_from_function(
            lambda context: parts[context.replica_id_in_sync_group]
        )

    def _all_replicas(self, x: Any, y: Any, size: Any) -> Any:
        losses = self.strategy.run(self._replica_step, args=(x, y, size))
        return self.strategy.reduce("SUM", losses, axis=None)

    def _replica_step(self, x: Any, y: Any, size: Any) -> Any:
        def loss() -> Any:
            weights = {name: weight.value() for name, weight in self.weights.items()}
            return jnp.sum(self.training.losses(weights, x, y)) / size

        value, gradients = rx.value_and_grad(loss, self.weights)
        self.optimizer.apply(gradients, self.weights)
        return value

    def values(self) -> dict[str, np.ndarray]:
        rx.debug.check_replicas(self.weights, self.optimizer)
        return {name: weight.numpy() for name, weight in self.weights.items()}


def program(seed: int) -> int:
    random = np.random.default_rng(seed)
    training, first, second = Training.draw(random), Layout.draw(random), Layout.draw(random)
    expected = training.plain()
    stop = int(random.integers(1, STEPS))
    text = f"{training}\n{first}"
    run = Run(training, first)
    losses = run.train(range(stop))
    with tempfile.TemporaryDirectory() as folder:
        path = run.checkpoint.save(f"{folder}/saved")
        losses_on = run.train(range(stop, STEPS))
        _require_close((losses + losses_on, run.values()), expected, text)
        other = Run(training, second)
        other.checkpoint.restore(path).assert_consumed()
    losses_on = other.train(range(stop, STEPS))
    _require_close(
        (losses + losses_on, other.values()), expected, f"{text}\nafter {stop} steps: {second}"
    )
    return 2


def _require_close(found: Any, expected: Any, text: str) -> None:
    try:
        np.testing.assert_allclose(found[0], expected[0], RELATIVE, ABSOLUTE, err_msg="losses")
        for name, weight in expected[1].items():
            np.testing.assert_allclose(found[1][name], weight, RELATIVE, ABSOLUTE, err_msg=name)
    except AssertionError as error:
        raise AssertionError(f"{text}\n{error}") from None


@pytest.mark.parametrize("seed", range(COUNT))
def test_trainings(seed: int):
    assert program(seed) > 0
