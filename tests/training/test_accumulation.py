"""Gradient accumulation: micro-batches that equal one big batch."""

import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import replicax as rx
from tests.replicas import by_replica, parts_of, two_replicas

DATA = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)


@settings(max_examples=8)
@given(st.integers(1, 6), st.data(), st.sampled_from(["SUM", "MEAN"]))
def test_any_number_of_parts_equals_the_whole(rows: int, data: st.DataObject, reduction: str):
    steps = data.draw(st.integers(1, rows))
    w, b = rx.Variable(np.ones(3, np.float32)), rx.Variable(0.5)
    frozen = rx.Variable(2.0, trainable=False)
    batch = {"x": DATA[:rows], "y": np.arange(rows, dtype=np.float32)}

    def loss(part: Any) -> Any:
        errors = jnp.square(part["x"] @ w.value() * frozen + b - part["y"])
        return jnp.sum(errors) if reduction == "SUM" else jnp.mean(errors)

    variables = {"w": w, "b": [b, frozen]}
    value, gradients = rx.accumulate_gradients(loss, variables, batch, steps, reduction)
    whole, expected = rx.value_and_grad(lambda: loss(batch), variables)
    np.testing.assert_allclose(value, whole, rtol=1e-4)
    np.testing.assert_allclose(gradients["w"], expected["w"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(gradients["b"][0], expected["b"][0], rtol=1e-4, atol=1e-4)
    assert gradients["b"][1] is None


@two_replicas
@pytest.mark.parametrize("compile", [False, True])
def test_training_with_parts_equals_training_without(strategy: Any, executor: Any, compile: bool):
    count = strategy.num_replicas_in_sync
    shards = np.array_split(DATA[:22], count)
    x = by_replica(strategy, lambda index: jnp.asarray(shards[index]))

    def train(steps: int) -> np.ndarray:
        with strategy.scope():
            w = rx.Variable(np.ones(3, np.float32))
            optimizer = rx.Optimizer(optax.adam(0.1))

        def loss(part: Any) -> Any:
            errors = jnp.square(part @ w.value() - 1.0)
            return rx.nn.compute_average_loss(errors, global_batch_size=22)

        def step(x: Any) -> Any:
            value, gradients = rx.accumulate_gradients(loss, [w], x, steps, compile=compile)
            optimizer.apply_gradients(zip(gradients, [w], strict=True))
            return value

        run = executor.step(strategy, step)
        for _ in range(3):
            result = run(x)
        assert len(parts_of(strategy, result)) == count
        return w.numpy()

    np.testing.assert_allclose(train(3), train(1), rtol=1e-3, atol=1e-5)


def test_new_batches_do_not_compile_again_and_are_fresh():
    traces = itertools.count()
    w = rx.Variable(2.0)

    def loss(part: Any) -> Any:
        next(traces)
        return jnp.sum(part * w)

    counted = []
    for number in range(6):
        value, (gradient,) = rx.accumulate_gradients(
            loss, [w], jnp.full(4, float(number)), steps=2, compile=True
        )
        assert (value, gradient) == (8.0 * number, 4.0 * number)
        counted.append(next(traces))
    assert np.diff(counted).tolist() == [1] * 5, "the loss was traced again"


def test_many_losses_are_not_taken_for_one_that_keeps_changing():
    w = rx.Variable(2.0)
    make = "lambda part: jnp.sum(part * w) * {}"
    for number in range(14):
        loss = eval(make.format(number), {"jnp": jnp, "w": w})
        value, _ = rx.accumulate_gradients(loss, [w], jnp.ones(2), steps=1, compile=True)
        assert value == 4.0 * number


def test_variables_in_a_dict_with_keys_that_do_not_sort():
    w, b = rx.Variable(2.0), rx.Variable(3.0)
    variables = {1: w, "b": b}
    _, gradients = rx.accumulate_gradients(
        lambda part: jnp.sum(part * w + b), variables, jnp.ones(4), steps=2
    )
    assert (gradients[1], gradients["b"]) == (4.0, 4.0)


def test_a_batch_with_keys_that_do_not_sort():
    w = rx.Variable(2.0)
    batch = {1: jnp.ones(4), "y": jnp.ones(4)}
    value, _ = rx.accumulate_gradients(
        lambda part: jnp.sum(part[1] * w - part["y"]), [w], batch, steps=2
    )
    assert value == 4.0


def test_an_empty_batch_in_one_part():
    w = rx.Variable(2.0)
    value, (gradient,) = rx.accumulate_gradients(
        lambda part: jnp.sum(part * w), [w], jnp.zeros((0,)), steps=1
    )
    assert (value, gradient) == (0.0, 0.0)


@pytest.mark.parametrize("steps", [0, -1, 1.5, "2"])
def test_wrong_numbers_of_parts(steps: Any):
    w = rx.Variable(2.0)
    with pytest.raises(ValueError, match="steps"):
        rx.accumulate_gradients(lambda part: jnp.sum(part * w), [w], jnp.ones(3), steps)


def test_batches_of_different_lengths_are_refused():
    w = rx.Variable(2.0)
    with pytest.raises(ValueError, match="same number of rows"):
        rx.accumulate_gradients(lambda part: w * 1.0, [w], [jnp.ones(3), jnp.ones(4)], 2)
