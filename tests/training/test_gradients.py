"""`rx.value_and_grad` and `rx.grad`, eager: what JAX gives for the variables' values."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.replicas import by_replica, context, parts_of

BOTH = pytest.mark.parametrize("compile", [False, True])


@BOTH
def test_gradients_have_the_structure_of_the_variables(strategy: Any, executor: Any, compile: bool):
    with strategy.scope():
        variables = {"w": rx.Variable([1.0, 2.0]), 3: [rx.Variable(3.0), (rx.Variable(4.0),)]}

    def step(x: Any) -> Any:
        def loss() -> Any:
            return jnp.sum(variables["w"] * x) * variables[3][0] + variables[3][1][0]

        return rx.value_and_grad(loss, variables, compile=compile)

    x = by_replica(strategy, lambda index: jnp.array([1.0, index]))
    value, gradients = executor.run(strategy, step, (x,))
    assert list(gradients) == ["w", 3]
    for index in range(strategy.num_replicas_in_sync):
        total = 1 + 2.0 * index
        assert parts_of(strategy, value)[index] == 3 * total + 4
        np.testing.assert_allclose(parts_of(strategy, gradients["w"])[index], [3, 3 * index])
        assert parts_of(strategy, gradients[3][0])[index] == total
        assert parts_of(strategy, gradients[3][1][0])[index] == 1


@BOTH
def test_frozen_unread_and_integer_variables_have_none(strategy: Any, executor: Any, compile: bool):
    with strategy.scope():
        w = rx.Variable(2.0)
        frozen = rx.Variable(3.0, trainable=False)
        unread = rx.Variable(4.0)
        integer = rx.Variable(5)

    def step() -> Any:
        return rx.grad(lambda: w * frozen * integer, [w, frozen, unread, integer], compile=compile)

    first, *others = executor.run(strategy, step)
    assert parts_of(strategy, first) == [15.0] * strategy.num_replicas_in_sync
    assert others == [None, None, None]


@BOTH
def test_the_same_variable_twice(compile: bool):
    w = rx.Variable(2.0)
    assert rx.grad(lambda: w**2, [w, w], compile=compile) == [4.0, 4.0]


@BOTH
def test_aux(compile: bool):
    w = rx.Variable(2.0)
    (loss, aux), (gradient,) = rx.value_and_grad(
        lambda: (w**2, {"w": w * 3.0}), [w], has_aux=True, compile=compile
    )
    assert (loss, aux["w"], gradient) == (4.0, 6.0, 4.0)
    gradients, aux = rx.grad(lambda: (w**2, w * 3.0), {"w": w}, has_aux=True, compile=compile)
    assert (gradients["w"], aux) == (4.0, 6.0)


@BOTH
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_gradients_have_the_dtype_of_their_variable(dtype: str, compile: bool):
    w = rx.Variable(jnp.ones(2, dtype))
    loss, (gradient,) = rx.value_and_grad(
        lambda: jnp.sum(w.astype("float32") * 2), [w], compile=compile
    )
    assert gradient.dtype == jnp.dtype(dtype) and loss == 4.0


@BOTH
def test_complex_variables(compile: bool):
    w: Any = rx.Variable(jnp.array(1 + 2j, "complex64"))
    loss, (gradient,) = rx.value_and_grad(lambda: jnp.abs(w) ** 2, [w], compile=compile)
    np.testing.assert_allclose(loss, 5.0, rtol=1e-6)
    np.testing.assert_allclose(
        gradient, jax.grad(lambda z: jnp.abs(z) ** 2)(jnp.complex64(1 + 2j)), rtol=1e-5
    )


@BOTH
def test_x64(compile: bool):
    with jax.enable_x64(True):
        w = rx.Variable(np.float64(1) / 3)
        loss, (gradient,) = rx.value_and_grad(lambda: w**3, [w], compile=compile)
        assert loss.dtype == gradient.dtype == np.float64
        assert gradient == pytest.approx(1 / 3, abs=1e-15)


def test_variables_without_items():
    w: Any = rx.Variable(jnp.zeros((0, 3)))
    loss, (gradient,) = rx.value_and_grad(lambda: jnp.sum(w) + 1.0, [w])
    assert loss == 1.0 and gradient.shape == (0, 3)


def test_writes_inside_the_loss_happen_once(strategy: Any, executor: Any):
    with strategy.scope():
        w = rx.Variable(2.0)
        average = rx.Variable(0.0, aggregation="MEAN", trainable=False)
        metric = rx.metrics.Mean()

    def step(x: Any) -> Any:
        def loss() -> Any:
            average.assign_add(x)
            metric.update_state(w * x)
            return w * x

        return rx.value_and_grad(loss, [w])

    x = by_replica(strategy, lambda index: jnp.float32(index))
    executor.run(strategy, step, (x,))
    mean = (strategy.num_replicas_in_sync - 1) / 2
    np.testing.assert_allclose(average.numpy(), mean)
    np.testing.assert_allclose(metric.result(), 2 * mean)


def test_a_read_after_a_write_sees_the_new_number():
    w = rx.Variable(2.0)

    def loss() -> Any:
        w.assign(5.0)
        return w * w

    value, (gradient,) = rx.value_and_grad(loss, [w])
    assert (value, gradient, w.numpy()) == (25.0, 10.0, 5.0)


def test_nested_gradients_of_different_variables():
    w, v = rx.Variable(2.0), rx.Variable(3.0)

    def outer() -> Any:
        (inner,) = rx.grad(lambda: w**2 * v**2, [w])  # 2 w v^2
        return inner * w  # 2 w^2 v^2

    gradients = rx.grad(outer, [w, v])
    assert gradients == [4 * 2 * 9, 4 * 4 * 3]


def test_an_update_inside_the_loss_with_an_inner_gradient():
    w = rx.Variable(1.0)

    def outer() -> Any:
        (inner,) = rx.grad(lambda: w**2, [w])
        return (w - 0.1 * inner) ** 2  # one step of gradient descent, looked through

    assert rx.grad(outer, [w])[0] == pytest.approx(2 * 0.8 * 0.8)


@BOTH
@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda w: None, "returned None"),
        (lambda w: jnp.ones(2) * w, "must be a scalar"),
        (lambda w: jnp.int32(3), "floating-point"),
        (lambda w: (w * 1.0, 2), "has_aux"),
    ],
)
def test_losses_that_are_none(loss: Any, words: str, compile: bool):
    w = rx.Variable(1.0)
    with pytest.raises(TypeError, match=words):
        rx.value_and_grad(lambda: loss(w), [w], compile=compile)


def test_a_failing_loss_leaves_no_trace():
    w = rx.Variable(1.0)
    with pytest.raises(KeyError):
        rx.value_and_grad(lambda: {}["missing"], [w])
    with pytest.raises(KeyError):
        rx.value_and_grad(lambda: {}["missing"], [w], compile=True)
    assert np.asarray(w.value()) == 1.0  # a tracer could not be converted
    assert rx.grad(lambda: w * 2.0, [w]) == [2.0]


def test_sum_of_gradients_is_that_of_the_whole_batch(strategy: Any, executor: Any):
    data = np.random.default_rng(1).normal(size=(24, 3)).astype(np.float32)
    with strategy.scope():
        w = rx.Variable(np.ones(3, np.float32))

    def step(x: Any) -> Any:
        def loss() -> Any:
            return rx.nn.compute_average_loss(jnp.sum((x @ w.value()) ** 2)[None], None, 24)

        _, gradients = rx.value_and_grad(loss, [w])
        return context().all_reduce("SUM", gradients[0])

    shards = np.split(data, strategy.num_replicas_in_sync)
    x = by_replica(strategy, lambda index: jnp.asarray(shards[index]))
    result = executor.run(strategy, step, (x,))
    expected = jax.grad(lambda w: jnp.sum((data @ w) ** 2) / 24)(jnp.ones(3))
    for part in parts_of(strategy, result):
        np.testing.assert_allclose(part, expected, rtol=1e-4)


def test_a_loss_that_makes_its_variables_too_late_is_told_so(strategy: Any, executor: Any):
    made: list[Any] = []

    def layer(x: Any) -> Any:
        if not made:
            made.append(rx.Variable(3.0, name="kernel"))
        return made[0] * x

    def step() -> Any:
        return rx.value_and_grad(lambda: layer(2.0), list(made))

    with pytest.raises(ValueError, match=r"kernel.*Call it once in the strategy's scope"):
        executor.run(strategy, step)
    assert rx.value_and_grad(lambda: jnp.float32(1.0), []) == (1.0, [])


def test_losses_that_are_computed_together_have_their_own_gradients(strategy: Any, executor: Any):
    with strategy.scope():
        v, w = rx.Variable(3.0), rx.Variable(2.0)
        calls = rx.Variable(0.0, trainable=False, aggregation=rx.VariableAggregation.SUM)

    def step(x: Any) -> Any:
        def losses() -> Any:
            calls.assign_add(1.0)
            made = v * x
            return (made * w, w * w - made), {"made": made}

        return rx.values_and_grads(losses, ([v], {"w": w}), has_aux=True)

    x = by_replica(strategy, lambda index: jnp.asarray(index + 1.0))
    ((first, second), aux), (of_v, of_w) = executor.run(strategy, step, (x,))
    for index in range(strategy.num_replicas_in_sync):
        assert parts_of(strategy, first)[index] == 6 * (index + 1)
        assert parts_of(strategy, second)[index] == 4 - 3 * (index + 1)
        assert parts_of(strategy, aux["made"])[index] == 3 * (index + 1)
        assert parts_of(strategy, of_v[0])[index] == 2 * (index + 1)
        assert parts_of(strategy, of_w["w"])[index] == 4
    assert calls.numpy() == strategy.num_replicas_in_sync


def test_losses_together_share_variables_and_leave_some_unread():
    v, w, unread = rx.Variable(3.0), rx.Variable(2.0), rx.Variable(1.0)
    losses, gradients = rx.values_and_grads(lambda: [v * w, v * v], ([v, w], [v, unread]))
    assert losses == (6.0, 9.0)
    assert gradients == ([2.0, 3.0], [6.0, None])


def test_bad_losses_together():
    v = rx.Variable(3.0)
    with pytest.raises(TypeError, match=r"as many losses as there are groups .* are 2; it"):
        rx.values_and_grads(lambda: v * v, ([v], [v]))
    with pytest.raises(TypeError, match=r"must return \(losses, aux\), with as many losses"):
        rx.values_and_grads(lambda: (v * v, v), ([v], [v]), has_aux=True)
    with pytest.raises(TypeError, match="takes a tuple of variables for each loss"):
        rx.values_and_grads(lambda: (v * v,), v)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="values_and_grads differentiates with respect to"):
        rx.values_and_grads(lambda: (v * v,), ([1.0],))
