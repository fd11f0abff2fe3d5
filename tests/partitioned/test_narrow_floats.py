"""bfloat16 and float16 on partitioned replicas, where XLA's sum of bfloat16 ends the process."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from tests.replicas import context, parts_of
from tests.under_test import Executor, cpus

narrow = pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16], ids=["bfloat16", "float16"])


def partitioned(**kwargs: Any) -> Any:
    return rx.distribute.MirroredStrategy(cpus(4), logical_devices_per_replica=2, **kwargs)


@narrow
def test_sums_and_gathers(dtype: Any, executor: Executor):
    strategy = partitioned()
    x = rx.distribute.PerReplica([jnp.full(3, 1.5, dtype), jnp.full(3, 2.5, dtype)])

    def step(x: Any) -> Any:
        total = context().all_reduce("SUM", [x, x * 2, jnp.ones((2, 2), dtype)])
        return total[:2], context().all_reduce("MEAN", x), context().all_gather(x, axis=0)

    (once, twice), mean, gathered = executor.run(strategy, step, (x,))
    expected = [(once, [4.0] * 3), (twice, [8.0] * 3), (mean, [2.0] * 3)]
    expected.append((gathered, [1.5] * 3 + [2.5] * 3))
    for found, numbers in expected:
        for part in parts_of(strategy, found):
            assert part.dtype == dtype and part.tolist() == numbers
    assert strategy.reduce("SUM", x, axis=None).tolist() == [4.0] * 3
    assert float(strategy.reduce("MEAN", x, axis=0)) == 2.0
    assert strategy.gather(x, axis=0).dtype == dtype


@narrow
@pytest.mark.parametrize("aggregation", ["SUM", "MEAN", "ONLY_FIRST_REPLICA"])
def test_variables(dtype: Any, aggregation: str, executor: Executor):
    strategy = partitioned()
    with strategy.scope():
        v = rx.Variable(jnp.zeros((4, 2), dtype), aggregation=aggregation, layout=[2, 1])
        local = rx.Variable(
            jnp.zeros((), dtype), synchronization="ON_READ", aggregation=aggregation
        )

    def step(x: Any) -> None:
        v.assign_add(jnp.full((4, 2), x, dtype))
        local.assign_add(x)

    x = rx.distribute.PerReplica([jnp.asarray(1.5, dtype), jnp.asarray(2.5, dtype)])
    executor.run(strategy, step, (x,))
    expected = {"SUM": 4.0, "MEAN": 2.0, "ONLY_FIRST_REPLICA": 1.5}[aggregation]
    assert v.numpy().tolist() == [[expected] * 2] * 4
    assert float(local.read_value()) == expected


@narrow
def test_gradients_through_collectives(dtype: Any, executor: Executor):
    strategy = partitioned()
    with strategy.scope():
        w = rx.Variable(jnp.ones((2, 2), dtype))

    def step(x: Any) -> Any:
        def loss() -> Any:
            y = jnp.dot(w.value(), x)
            return jnp.sum(context().all_gather(y, axis=0)) + jnp.sum(
                context().all_reduce("SUM", y)
            )

        return rx.value_and_grad(loss, [w])[1][0]

    found = parts_of(strategy, executor.run(strategy, step, (jnp.ones((2, 2), dtype),)))
    for each in found:
        assert each.dtype == dtype and each.tolist() == [[8.0, 8.0]] * 2


@narrow
def test_training_with_cut_state(dtype: Any, executor: Executor):
    losses = []
    for layout in (None, rx.distribute.StateLayout("everything", min_size=0)):
        strategy = partitioned(state_layout=layout)
        with strategy.scope():
            w = rx.Variable(jnp.ones((8, 4), dtype))
            optimizer = rx.Optimizer(optax.sgd(0.25))

        def step(x: Any, w: Any = w, optimizer: Any = optimizer) -> Any:
            loss, grads = rx.value_and_grad(lambda: jnp.mean(jnp.square(x @ w.value())), [w])
            optimizer.apply_gradients(zip(grads, [w], strict=True))
            return loss

        x = jax.random.normal(jax.random.key(0), (4, 8), dtype)
        run = executor.step(strategy, step)
        for _ in range(3):
            run(x)
        losses.append(np.asarray(w.numpy(), np.float32))
    np.testing.assert_allclose(losses[0], losses[1], rtol=2e-2)
