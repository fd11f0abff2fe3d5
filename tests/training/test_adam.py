"""`rx.train.adam` has the numbers of TensorFlow's Adam, also for small gradients."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx

GRADIENTS = (
    np.random.default_rng(0).normal(size=(20, 6)) * 10.0 ** np.array([-8, -6, -4, -2, 0, 2])
).astype(np.float32)
# Six ones after twenty steps of tf.keras.optimizers.Adam and of tf.compat.v1.train.AdamOptimizer()
# in TensorFlow 2.21.
RECORDED: list[tuple[dict[str, float], list[float]]] = [
    ({}, [0.99998951, 0.996476829, 0.997749805, 1.00421238, 1.01055276, 0.988500118]),
    (
        {"learning_rate": 0.05, "beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-3},
        [0.999999762, 0.999743223, 0.987116992, 1.23279786, 1.4834621, 0.427369505],
    ),
    (
        {"epsilon": 1e-8},
        [0.99990356, 0.992889106, 0.997719347, 1.00421011, 1.01055276, 0.988500059],
    ),
]


@pytest.mark.parametrize(("arguments", "expected"), RECORDED)
@pytest.mark.parametrize("compiled", [False, True])
def test_the_numbers_are_tensorflows(
    arguments: dict[str, Any], expected: list[float], compiled: bool
):
    v = rx.Variable(np.ones(6, np.float32))
    optimizer = rx.Optimizer(rx.train.adam(**arguments))

    def step(gradient: Any) -> None:
        optimizer.apply_gradients([(gradient, v)])

    run = rx.function(step) if compiled else step
    for gradient in GRADIENTS:
        run(jnp.asarray(gradient))
    np.testing.assert_allclose(v.numpy(), expected, rtol=0, atol=5e-7)


def test_the_state_is_that_of_optax():
    v = {"w": jnp.ones(3, jnp.bfloat16)}
    schedule = optax.linear_schedule(0.1, 0.0, 10)
    ours, theirs = rx.train.adam(schedule), optax.adam(schedule)
    updates: Any
    assert jax.tree.structure(ours.init(v)) == jax.tree.structure(theirs.init(v))
    updates, _ = ours.update(v, ours.init(v), v)
    assert updates["w"].dtype == jnp.bfloat16
