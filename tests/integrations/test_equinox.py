"""Equinox: a module whose arrays are `rx.variables`."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from tests.replicas import by_replica, mirrored, parts_of
from tests.under_test import Executor

X = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
Y = np.sin(X[:, :1])


def made() -> Any:
    return eqx.nn.MLP(2, 1, width_size=8, depth=1, key=jax.random.key(0))


@pytest.mark.parametrize("strategy", ["mirrored_2"], indirect=True)
def test_trains_as_on_one_device(strategy: Any, executor: Executor):
    plain = made()
    transformation = optax.adam(0.05)
    state = transformation.init(eqx.filter(plain, eqx.is_array))
    for _ in range(2):
        gradients = eqx.filter_grad(lambda m: jnp.mean((jax.vmap(m)(X) - Y) ** 2))(plain)
        updates, state = transformation.update(gradients, state)
        plain = eqx.apply_updates(plain, updates)

    with strategy.scope():
        model = rx.variables(made())
        optimizer = rx.Optimizer(transformation)
    count = strategy.num_replicas_in_sync

    def step(x: Any, y: Any) -> None:
        def loss() -> Any:
            return jnp.sum((jax.vmap(rx.arrays(model))(x) - y) ** 2) / len(X)

        _, gradients = rx.value_and_grad(loss, model, compile=True)
        assert type(gradients) is type(model) and gradients.activation is None
        optimizer.apply(gradients, model)

    x = by_replica(strategy, lambda i: X[i::count])
    y = by_replica(strategy, lambda i: Y[i::count])
    run = executor.step(strategy, step)
    for _ in range(2):
        run(x, y)
    np.testing.assert_allclose(jax.vmap(rx.arrays(model))(X), jax.vmap(plain)(X), atol=1e-4)
    assert model.layers[0].weight.name == "layers/0/weight:0"
    assert eqx.tree_equal(jax.tree.structure(rx.arrays(model)), jax.tree.structure(plain))


def test_layers_of_lax_operations_and_partitions(executor: Executor):
    strategy = mirrored()
    layer = eqx.nn.Conv1d(2, 3, 3, key=jax.random.key(0))
    with strategy.scope():
        model = rx.variables(layer)
    found = executor.run(strategy, lambda: rx.arrays(model)(jnp.ones((2, 6))))
    np.testing.assert_allclose(parts_of(strategy, found)[1], layer(jnp.ones((2, 6))), atol=1e-6)
    dynamic, static = eqx.partition(rx.arrays(model), eqx.is_array)
    assert eqx.tree_equal(eqx.combine(dynamic, static), layer)


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"model": made()}, "`model` of a checkpoint is a MLP"),
        ({"all": {"models": [made()]}}, "`all/models/0` of a checkpoint is a MLP"),
        ({"state": optax.adam(0.1).init({"w": jnp.ones(2)})}, "`state` of a checkpoint is a tuple"),
        ({"state": optax.TraceState({"w": np.ones(2)})}, "`state` of a checkpoint is a TraceState"),
        ({"root": made()}, "`root` of a checkpoint is a MLP"),
    ],
)
def test_a_checkpoint_of_arrays_that_it_cannot_change_is_refused(
    given: dict[str, Any], path: str, tmp_path: Path
):
    with pytest.raises(ValueError, match=f"{path}, .*not variables.*rx.variables"):
        rx.train.Checkpoint(**given).save(str(tmp_path / "at"))
