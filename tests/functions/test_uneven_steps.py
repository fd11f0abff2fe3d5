"""A call with uneven shares that is no program; its loss is one, where it can be."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.under_test import cpus


def training(loss_of: Any) -> tuple[list[float], list[Any]]:
    """Losses over two epochs of 8 rows and 3 on two replicas, and shapes that the loss saw."""
    calls: list[Any] = []
    strategy = rx.distribute.MirroredStrategy(cpus(2))
    with strategy.scope():
        w = rx.Variable(np.ones(4, np.float32))

    def replica_step(x: Any) -> Any:
        def loss() -> Any:
            calls.append(x.shape)
            return loss_of(x, w)

        value, gradients = rx.value_and_grad(loss, [w])
        context: Any = rx.get_replica_context()
        context.all_gather(x, axis=0)  # uneven shares of it are no program
        (total,) = context.all_reduce("SUM", gradients)
        return value + jnp.sum(total) * 0

    @rx.function
    def step(x: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(replica_step, args=(x,)), axis=None)

    rows = np.arange(44, dtype=np.float32).reshape(11, 4)
    dataset = rx.data.Dataset.from_tensor_slices(rows).batch(8)
    batches = strategy.experimental_distribute_dataset(dataset)
    return [float(step(x)) for _ in range(2) for x in batches], calls


def test_the_loss_is_compiled_once_for_each_shape():
    losses, calls = training(lambda x, w: jnp.sum(x @ w))
    assert losses == [np.arange(32).sum(), np.arange(32, 44).sum()] * 2
    assert calls.count((4, 4)) == 1  # the program
    assert len(calls) <= 1 + 2 * 2  # and two traces for each uneven share, in the first epoch only


def test_a_loss_in_which_replicas_meet_stays_python():
    def loss(x: Any, w: Any) -> Any:
        context: Any = rx.get_replica_context()
        return jnp.sum(x @ w) + 0 * context.all_reduce("SUM", jnp.sum(x * w))

    losses, calls = training(loss)
    assert losses == [np.arange(32).sum(), np.arange(32, 44).sum()] * 2
    assert calls.count((1, 4)) >= 2  # in each epoch


def test_a_loss_that_keeps_what_it_was_traced_with_stays_python():
    kept: list[Any] = []

    def loss(x: Any, w: Any) -> Any:
        kept.append(x)
        return jnp.sum(x @ w)

    assert training(loss)[0] == [np.arange(32).sum(), np.arange(32, 44).sum()] * 2


def test_errors_of_the_loss_are_its_own():
    def loss(x: Any, w: Any) -> Any:
        if x.shape[0] == 1:
            raise KeyError("one row")
        return jnp.sum(x @ w)

    with pytest.raises(KeyError, match="one row"):
        training(loss)


def test_outside_of_compiled_functions_nothing_is_compiled_unasked():
    w = rx.Variable(2.0)
    calls: list[int] = []

    def loss() -> Any:
        calls.append(1)
        return w * w

    for _ in range(3):
        rx.value_and_grad(loss, [w])
    assert len(calls) == 3
