"""Flax linen: parameters as `rx.variables`, functions of the library as they are."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from tests.replicas import by_replica, mirrored, parts_of
from tests.under_test import Executor

X = np.random.default_rng(0).normal(size=(8, 6, 2)).astype(np.float32)


class Net(nn.Module):
    """A layer, statistics, dropout, and another layer."""

    @nn.compact
    def __call__(self, x: Any, train: bool = True) -> Any:
        x = nn.Dense(4)(x)
        x = nn.BatchNorm(use_running_average=not train, momentum=0.0)(x)
        x = nn.Dropout(0.5, deterministic=not train)(x)
        return nn.Dense(1)(x.mean(axis=1))


@pytest.mark.parametrize("strategy", ["mirrored_2"], indirect=True)
def test_parameters_statistics_and_dropout(strategy: Any, executor: Executor):
    net = Net()
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    start = jax.jit(net.init)(keys, X[:1])
    with strategy.scope():
        params = rx.variables(start["params"], name="params")
        stats = rx.variables(start["batch_stats"], synchronization="ON_READ", aggregation="MEAN")
        generator = rx.random.Generator.from_seed(0)
        optimizer = rx.Optimizer(optax.sgd(0.1))

    def step(x: Any) -> Any:
        def loss() -> Any:
            values = {"params": rx.arrays(params), "batch_stats": rx.arrays(stats)}
            rngs = {"dropout": generator.next_key()}
            out, new = net.apply(values, x, rngs=rngs, mutable=["batch_stats"])
            rx.assign(stats, new["batch_stats"])
            return jnp.sum(out) / len(X)

        value, gradients = rx.value_and_grad(loss, params, compile=True)
        optimizer.apply(gradients, params)
        return value

    values = parts_of(
        strategy, executor.run(strategy, step, (by_replica(strategy, lambda i: X[i::2]),))
    )
    assert values[0] != values[1]
    assert params["Dense_0"]["kernel"].name == "params/Dense_0/kernel:0"
    np.testing.assert_allclose(params["Dense_1"]["bias"], [-0.1], atol=1e-6)
    hidden = nn.Dense(4).apply({"params": start["params"]["Dense_0"]}, X)
    expected = np.asarray(hidden).mean(axis=(0, 1))
    np.testing.assert_allclose(stats["BatchNorm_0"]["mean"], expected, atol=1e-5)
    outside = {"params": rx.arrays(params), "batch_stats": rx.arrays(stats)}
    out: Any = net.apply(outside, X, train=False)
    assert out.shape == (8, 1)


def test_apply_takes_the_variables_too(executor: Executor):
    net = nn.Dense(2)
    start = net.init(jax.random.key(0), X)
    strategy = mirrored()
    with strategy.scope():
        params = rx.variables(start)
    found = executor.run(strategy, lambda: net.apply(params, X))
    expected: Any = net.apply(start, X)
    np.testing.assert_allclose(parts_of(strategy, found)[1], expected, atol=1e-6)
