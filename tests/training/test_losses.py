"""Shares of a mean: every strategy, share and last batch gives one device's loss and gradients."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from tests.replicas import mirrored, parts_of
from tests.under_test import Executor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(21, 3)).astype(np.float32)
Y = RNG.normal(size=21).astype(np.float32)
WEIGHTS = np.arange(21, dtype=np.float32) % 4
START = np.array([0.3, -0.2, 0.5], np.float32)


def errors_of(w: Any, x: Any, y: Any) -> Any:
    return jnp.square(jnp.tanh(x @ w) - y)


def on_one_device(rows: slice, weighted: bool) -> tuple[Any, Any]:
    def loss(w: Any) -> Any:
        errors = errors_of(w, X[rows], Y[rows])
        return jnp.average(errors, weights=WEIGHTS[rows] if weighted else None)

    return jax.value_and_grad(loss)(jnp.asarray(START))


def shares(strategy: Any, size: int) -> list[tuple[Any, slice]]:
    """The distributed batches of the rows, and which rows they are."""
    dataset = rx.data.Dataset.from_tensor_slices((X, Y, WEIGHTS)).batch(size)
    batches = strategy.experimental_distribute_dataset(dataset)
    return [(batch, slice(i * size, (i + 1) * size)) for i, batch in enumerate(batches)]


@pytest.mark.parametrize("weighted", [False, True])
def test_losses_and_gradients_are_those_of_one_device(
    strategy: Any, executor: Executor, weighted: bool
):
    with strategy.scope():
        w = rx.Variable(START)
        optimizer = rx.Optimizer(optax.sgd(1.0))

    def step(x: Any, y: Any, weights: Any) -> Any:
        def loss_fn() -> Any:
            weight = weights if weighted else None
            return rx.nn.share_of_mean(errors_of(w.value(), x, y), sample_weight=weight)

        loss, gradients = rx.value_and_grad(loss_fn, [w])
        optimizer.apply_gradients(zip(gradients, [w], strict=True))
        return loss

    # Full, then with shares of different sizes; on 8 replicas the last have none.
    for batch, rows in shares(strategy, 16):
        w.assign(START)
        losses = executor.run(strategy, step, batch)
        loss, gradient = on_one_device(rows, weighted)
        np.testing.assert_allclose(strategy.reduce("SUM", losses, axis=None), loss, rtol=1e-6)
        np.testing.assert_allclose(START - w.numpy(), gradient, rtol=1e-5, atol=1e-6)


def test_weights_that_are_learned_have_their_gradient(strategy: Any, executor: Executor):
    with strategy.scope():
        w = rx.Variable(START)

    def loss_of(w: Any, x: Any, y: Any, mean: Any) -> Any:
        return mean(errors_of(w, x, y), jax.nn.sigmoid(x @ w))

    def step(x: Any, y: Any, weights: Any) -> Any:
        return rx.grad(lambda: loss_of(w.value(), x, y, rx.nn.share_of_mean), w)

    expected = jax.grad(lambda w: loss_of(w, X, Y, lambda v, s: jnp.average(v, weights=s)))(
        jnp.asarray(START)
    )
    [(batch, _)] = shares(strategy, 21)
    gradients = executor.run(strategy, step, batch)
    total = strategy.reduce("SUM", gradients, axis=None)
    np.testing.assert_allclose(total, expected, rtol=1e-5, atol=1e-6)


def test_all_items_count_and_masks_are_weights(strategy: Any, executor: Executor):
    def step() -> Any:
        values = jnp.array([[1.0, 2.0, 9.0], [3.0, 9.0, 9.0]])
        mask = jnp.array([[True, True, False], [True, False, False]])
        return (
            rx.nn.share_of_mean(values),
            rx.nn.share_of_mean(values, mask),
            rx.nn.share_of_mean(values, jnp.array([1.0, 0.0])),
            rx.nn.share_of_mean(values, jnp.array([[1.0], [0.0]])),
        )

    results = executor.run(strategy, step)
    totals = [float(strategy.reduce("SUM", each, axis=None)) for each in results]
    np.testing.assert_allclose(totals, [33 / 6, 2, 4, 4], rtol=1e-6)


def test_nothing_to_average_is_zero_and_teaches_nothing(strategy: Any, executor: Executor):
    with strategy.scope():
        w = rx.Variable(2.0)

    def step() -> Any:
        none = rx.value_and_grad(lambda: rx.nn.share_of_mean(w * jnp.zeros(0)), w)
        unweighted = rx.value_and_grad(
            lambda: rx.nn.share_of_mean(w * jnp.ones(2), jnp.zeros(2)), w
        )
        return none, unweighted

    for value in (part for pair in executor.run(strategy, step) for part in pair):
        assert {part.item() for part in parts_of(strategy, value)} == {0.0}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_dtype_is_that_of_the_values(dtype: str):
    values = jnp.full(5000, 1.5, dtype)
    for weight in (None, np.ones(5000, np.float32)):
        share = rx.nn.share_of_mean(values, weight)
        assert (share.dtype, float(share)) == (dtype, 1.5)  # float16 ends at 65504
        average = rx.nn.compute_average_loss(values[:8], None if weight is None else weight[:8])
        assert (average.dtype, float(average)) == (dtype, 1.5)


def test_compiled_and_even_nothing_is_sent():
    strategy = mirrored(2)

    @rx.function
    def step(x: Any) -> Any:
        return strategy.run(rx.nn.share_of_mean, args=(x,))

    (batch,) = strategy.experimental_distribute_dataset(
        rx.data.Dataset.from_tensor_slices(X).batch(20).take(1)
    )
    step(batch)
    assert re.search("collectives +none", str(step.explain(batch)))


@pytest.mark.parametrize("weighted", [False, True])
def test_uneven_shares_are_one_program(weighted: bool):
    strategy = mirrored(4)
    with strategy.scope():
        w = rx.Variable(START)

    def in_replica(x: Any, y: Any, weights: Any) -> Any:
        weight = weights if weighted else None
        return rx.value_and_grad(lambda: rx.nn.share_of_mean(errors_of(w.value(), x, y), weight), w)

    @rx.function
    def step(batch: Any) -> Any:
        pair = strategy.run(in_replica, args=batch)
        return [strategy.reduce("SUM", each, axis=None) for each in pair]

    full, last = shares(strategy, 18)  # of 5, 5, 5, 3 and 1, 1, 1, 0 rows
    for batch, rows in (full, last, full, last):
        for result, expected in zip(step(batch), on_one_device(rows, weighted), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    assert "one program" in str(step.explain(last[0])), step.explain(last[0])


def test_averaged_gradients_fit_a_mean_of_each_replicas_rows(strategy: Any, executor: Executor):
    with strategy.scope():
        w = rx.Variable(START)
        optimizer = rx.Optimizer(optax.sgd(1.0), gradients="mean")

    def step(x: Any, y: Any, _: Any) -> Any:
        loss, gradients = rx.value_and_grad(lambda: jnp.mean(errors_of(w.value(), x, y)), [w])
        optimizer.apply_gradients(zip(gradients, [w], strict=True))
        return loss

    batch, rows = shares(strategy, 18 if strategy.num_replicas_in_sync == 3 else 16)[0]
    losses = executor.run(strategy, step, batch)
    loss, gradient = on_one_device(rows, False)
    np.testing.assert_allclose(strategy.reduce("MEAN", losses, axis=None), loss, rtol=1e-6)
    np.testing.assert_allclose(START - w.numpy(), gradient, rtol=1e-5, atol=1e-6)


def test_a_reduction_of_gradients_is_sum_or_mean():
    with pytest.raises(ValueError, match="'average' is not a reduction"):
        rx.Optimizer(optax.sgd(1.0), gradients="average")


def test_a_part_of_a_share_has_no_share_of_the_mean():
    w = rx.Variable(START)
    with pytest.raises(rx.errors.WrongContextError, match="global_batch_size"):
        rx.accumulate_gradients(
            lambda batch: rx.nn.share_of_mean(errors_of(w, *batch)), [w], (X, Y), steps=3
        )
    loss, _ = rx.accumulate_gradients(
        lambda batch: rx.nn.share_of_mean(errors_of(w, *batch)), [w], (X, Y), steps=1
    )
    np.testing.assert_allclose(loss, on_one_device(slice(21), False)[0], rtol=1e-6)
