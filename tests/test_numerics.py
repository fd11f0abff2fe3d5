"""The promises of `docs/numerics.md`: the same numbers on any replicas, in every run, both ways.

One small program is trained in every way: a net on shuffled rows, with Adam; without dropout and
with a last batch that is not full, or with dropout. Tests elsewhere hold the same promises for
workers, for state in parts and after restarts; the page lists them.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from tests.replicas import mirrored

REPLICAS = [1, 2, 4, 8]
EXECUTORS = ["eager", "compiled"]
# Batches of 16, 16 and 11 rows: the last is shared unevenly by 2, 4 and 8 replicas.
ROWS, BATCH, EPOCHS, WIDTH = 43, 16, 2, 8
SEED, DROPOUT = 3, 0.25

RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.normal(size=(ROWS, 4)).astype(np.float32)
TARGETS = np.sin(INPUTS.sum(axis=1)).astype(np.float32)
START = {
    "hidden": RANDOM.normal(size=(4, WIDTH)).astype(np.float32),
    "bias": np.zeros(WIDTH, np.float32),
    "output": RANDOM.normal(size=WIDTH).astype(np.float32),
}

# Sums in another order differ in their last bits, and Adam divides by what is nearly zero.
RELATIVE, ABSOLUTE = 1e-5, 1e-6


class Trained(NamedTuple):
    """What a run leaves: the loss of each step and the weights after the last."""

    losses: np.ndarray
    weights: dict[str, np.ndarray]


def batches_of(seed: int, full_only: bool = False) -> rx.data.Dataset:
    dataset = rx.data.Dataset.from_tensor_slices((INPUTS, TARGETS)).shuffle(ROWS, seed=seed)
    return dataset.batch(BATCH, drop_remainder=full_only).repeat(EPOCHS)


def squared_errors(weights: Any, x: Any, y: Any, mask: Any) -> jax.Array:
    hidden = jnp.tanh(x @ weights["hidden"] + weights["bias"]) * mask
    return (hidden @ weights["output"] - y) ** 2


@functools.cache
def train_plainly() -> Trained:
    """The same training in JAX and optax, on one device and without replicax but for the rows."""
    weights: Any = {name: jnp.asarray(value) for name, value in START.items()}
    optimizer = optax.adam(0.01)
    state = optimizer.init(weights)

    @jax.jit
    def step(weights, state, x, y):
        def loss(weights):
            return jnp.sum(squared_errors(weights, x, y, jnp.ones(WIDTH))) / BATCH

        value, gradients = jax.value_and_grad(loss)(weights)
        updates, state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state, value

    losses = []
    for x, y in batches_of(SEED):
        weights, state, loss = step(weights, state, x, y)
        losses.append(float(loss))
    return Trained(np.array(losses), jax.tree.map(np.asarray, weights))


@functools.cache
def train_on(replicas: int, executor: str, dropout: float = 0.0) -> Trained:
    """What several tests look at."""
    return train(mirrored(replicas), executor, dropout)


def train(strategy: Any, executor: str, dropout: float = 0.0, seed: int = SEED) -> Trained:
    """Trains under a strategy, and checks that the copies are equal in the end."""
    with strategy.scope():
        weights = {name: rx.Variable(value, name=name) for name, value in START.items()}
        optimizer = rx.Optimizer(optax.adam(0.01))
        generator = rx.random.Generator.from_seed(seed)

    def replica_step(x, y):
        mask = jnp.ones(WIDTH)
        if dropout:
            keep = jax.random.bernoulli(generator.next_key(), 1 - dropout, (WIDTH,))
            mask = keep / (1 - dropout)

        def loss() -> Any:
            errors = squared_errors({n: w.value() for n, w in weights.items()}, x, y, mask)
            return rx.nn.compute_average_loss(errors, global_batch_size=BATCH)

        value, gradients = rx.value_and_grad(loss, weights, compile=True)
        optimizer.apply(gradients, weights)
        return value

    def step(x, y):
        return strategy.reduce("SUM", strategy.run(replica_step, args=(x, y)), axis=None)

    run = rx.function(step) if executor == "compiled" else step
    batches = strategy.experimental_distribute_dataset(batches_of(seed, full_only=dropout > 0))
    losses = np.array([float(run(x, y)) for x, y in batches])
    rx.debug.check_replicas(weights, optimizer)
    return Trained(losses, {name: weight.numpy() for name, weight in weights.items()})


def require_equal(found: Trained, expected: Trained) -> None:
    np.testing.assert_allclose(found.losses, expected.losses, RELATIVE, ABSOLUTE)
    for name, weight in expected.weights.items():
        np.testing.assert_allclose(found.weights[name], weight, RELATIVE, ABSOLUTE, err_msg=name)


def require_same_bits(found: Trained, expected: Trained) -> None:
    assert found.losses.tobytes() == expected.losses.tobytes()
    for name, weight in expected.weights.items():
        assert found.weights[name].tobytes() == weight.tobytes(), name


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("replicas", REPLICAS)
def test_any_number_of_replicas_learns_what_one_device_learns(replicas: int, executor: str):
    found = train_on(replicas, executor)
    assert len(found.losses) == EPOCHS * 3
    require_equal(found, train_plainly())


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("replicas", REPLICAS)
def test_the_same_seed_on_the_same_replicas_gives_the_same_bits(replicas: int, executor: str):
    again = train(mirrored(replicas), executor, DROPOUT)
    require_same_bits(again, train_on(replicas, executor, DROPOUT))


@pytest.mark.parametrize("replicas", REPLICAS)
def test_eager_and_compiled_steps_give_the_same_numbers(replicas: int):
    # With dropout: the replicas draw the same random numbers both ways.
    eager, compiled = (train_on(replicas, each, DROPOUT) for each in EXECUTORS)
    require_equal(compiled, eager)


def test_another_seed_gives_other_numbers():
    other = train(mirrored(2), "compiled", DROPOUT, seed=SEED + 1)
    assert not np.allclose(other.losses, train_on(2, "compiled", DROPOUT).losses)


def test_other_devices_give_the_same_bits():
    """What counts is how many replicas there are, and not which devices of a kind they are on."""
    elsewhere = train(rx.distribute.MirroredStrategy(["CPU:6", "CPU:3"]), "compiled", DROPOUT)
    require_same_bits(elsewhere, train_on(2, "compiled", DROPOUT))
