"""Gradients through collectives: as if all replicas were one program."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import replicax as rx
from tests.replicas import by_replica, context, few_replicas, mirrored, parts_of


def gradients_in_replicas(
    strategy: Any, loss: Callable[[Any, Any], Any], start: Any, batches: list[Any]
) -> list[np.ndarray]:
    """Each replica's gradient of `loss(w, x)`, which may communicate."""
    with strategy.scope():
        w = rx.Variable(start)
    x = rx.distribute.PerReplica(batches)
    result = strategy.run(lambda x: rx.grad(lambda: loss(w * 1, x), [w])[0], (x,))
    return parts_of(strategy, result)


def gradients_in_one_program(
    total: Callable[[list[Any]], Any], start: Any, count: int
) -> list[np.ndarray]:
    """The gradient of the sum of all losses with respect to each replica's copy of w."""
    copies = [jnp.asarray(start)] * count
    return [np.asarray(each) for each in jax.grad(total)(copies)]


@few_replicas
@pytest.mark.parametrize("op", ["SUM", "MEAN"])
def test_all_reduce(strategy: Any, op: str):
    count = strategy.num_replicas_in_sync
    batches = [jnp.arange(3.0) + index for index in range(count)]

    def loss(w: Any, x: Any) -> Any:
        y = context().all_reduce(op, jnp.sin(w * x))
        return jnp.sum(y * jnp.cos(w * x))

    def total(copies: list[Any]) -> Any:
        y = sum(jnp.sin(w * x) for w, x in zip(copies, batches, strict=True))
        y = y / count if op == "MEAN" else y
        return sum(jnp.sum(y * jnp.cos(w * x)) for w, x in zip(copies, batches, strict=True))

    np.testing.assert_allclose(
        gradients_in_replicas(strategy, loss, 0.5, batches),
        gradients_in_one_program(total, 0.5, count),
        rtol=1e-4,
    )


@few_replicas
@pytest.mark.parametrize("axis", [0, -1])
def test_all_gather_of_uneven_parts(strategy: Any, axis: int):
    count = strategy.num_replicas_in_sync
    batches = [jnp.arange(1.0 + index) + 1 for index in range(count)]

    def spread(x: Any) -> Any:
        return x if axis == 0 else jnp.stack([x, 2 * x])

    def own_loss(joined: Any, x: Any) -> Any:
        return jnp.sum(joined**2) * jnp.sum(x)

    def loss(w: Any, x: Any) -> Any:
        return own_loss(context().all_gather(spread(w * x), axis=axis), x)

    def total(copies: list[Any]) -> Any:
        parts = [spread(w * x) for w, x in zip(copies, batches, strict=True)]
        joined = jnp.concatenate(parts, axis=axis)
        return sum(own_loss(joined, x) for x in batches)

    np.testing.assert_allclose(
        gradients_in_replicas(strategy, loss, 0.5, batches),
        gradients_in_one_program(total, 0.5, count),
        rtol=1e-5,
    )


@settings(max_examples=8)
@given(st.lists(st.integers(-3, 3), min_size=3, max_size=3), st.sampled_from(["SUM", "MEAN"]))
def test_chains_of_all_reduces(numbers: list[int], op: str):
    batches = [jnp.float32(number) for number in numbers]

    def combine(parts: list[Any]) -> Any:
        return sum(parts) / (3 if op == "MEAN" else 1)

    def loss(w: Any, x: Any) -> Any:
        first = context().all_reduce(op, w * x)
        second = context().all_reduce(op, first * x + w)
        return second**2 * x

    def total(copies: list[Any]) -> Any:
        pairs = list(zip(copies, batches, strict=True))
        first = combine([w * x for w, x in pairs])
        second = combine([first * x + w for w, x in pairs])
        return sum(second**2 * x for _, x in pairs)

    np.testing.assert_allclose(
        gradients_in_replicas(mirrored(3), loss, 0.5, batches),
        gradients_in_one_program(total, 0.5, 3),
        rtol=1e-4,
        atol=1e-5,
    )


@few_replicas
def test_synchronised_batch_norm_is_that_of_the_whole_batch(strategy: Any):
    count = strategy.num_replicas_in_sync
    data = np.random.default_rng(0).normal(size=(4 * count, 3)).astype(np.float32)

    def loss_of(w: Any, x: Any, mean: Any, square: Any) -> Any:
        normal = (w * x - mean) / jnp.sqrt(square - mean**2 + 1e-3)
        return jnp.sum(jnp.tanh(normal + x) ** 2)

    def loss(w: Any, x: Any) -> Any:
        y = w * x
        moments = (jnp.mean(y, axis=0), jnp.mean(y**2, axis=0))
        return loss_of(w, x, *context().all_reduce("MEAN", moments))

    def whole(w: Any) -> Any:
        y = w * data
        return loss_of(w, data, jnp.mean(y, axis=0), jnp.mean(y**2, axis=0))

    start = np.array([0.5, 1.0, -1.5], np.float32)
    batches = [jnp.asarray(part) for part in np.split(data, count)]
    gradients = gradients_in_replicas(strategy, loss, start, batches)
    np.testing.assert_allclose(sum(gradients), jax.grad(whole)(start), rtol=1e-3, atol=1e-4)


@few_replicas
def test_integers_beside_what_is_differentiated(strategy: Any):
    count = strategy.num_replicas_in_sync

    def reducing(w: Any, x: Any) -> Any:
        both = context().all_reduce("SUM", {"y": w * x, "n": jnp.int32(2)})
        return both["y"] * both["n"]

    def gathering(w: Any, x: Any) -> Any:
        y, labels = context().all_gather((w * x * jnp.ones(2), jnp.arange(2)), axis=0)
        return jnp.sum(y * labels)

    batches = [jnp.float32(index + 1) for index in range(count)]
    expected = [2.0 * count * count * (index + 1) for index in range(count)]
    np.testing.assert_allclose(gradients_in_replicas(strategy, reducing, 1.0, batches), expected)
    expected = [1.0 * count * (index + 1) for index in range(count)]
    np.testing.assert_allclose(gradients_in_replicas(strategy, gathering, 1.0, batches), expected)


@few_replicas
def test_second_derivatives_through_all_reduce(strategy: Any):
    count = strategy.num_replicas_in_sync
    with strategy.scope():
        w = rx.Variable(2.0)

    def step(x: Any) -> Any:
        def inner() -> Any:
            return context().all_reduce("SUM", x * w**3)

        return rx.grad(lambda: rx.grad(inner, [w])[0], [w])[0]

    x = by_replica(strategy, lambda index: jnp.float32(index + 1))
    result = parts_of(strategy, strategy.run(step, (x,)))
    np.testing.assert_allclose(result, [count * 6 * 2.0 * (i + 1) for i in range(count)])


def test_a_gradient_of_what_was_not_differentiated_is_none(strategy: Any, executor: Any):
    with strategy.scope():
        w, unused = rx.Variable(2.0), rx.Variable(1.0)

    def step() -> Any:
        return rx.grad(lambda: context().all_reduce("MEAN", w * 3.0), [w, unused])

    gradient, nothing = executor.run(strategy, step)
    assert parts_of(strategy, gradient) == [3.0] * strategy.num_replicas_in_sync
    assert nothing is None
