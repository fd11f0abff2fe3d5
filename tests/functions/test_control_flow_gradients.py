"""Derivatives through and around control flow with variables and collectives."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import replicax as rx
from replicax._src.context import thread_state
from tests.functions.deeds import (
    TIMES,
    Deed,
    all_gathers,
    all_reduces,
    assert_equal,
    assigns_a_sum,
    assigns_in_a_loss,
    assigns_its_own,
    differentiates,
    differentiates_a_collective,
    in_checkpoint,
    in_scan,
    in_scan_of_cond,
    make_state,
    outcome,
    reads,
    starts,
    uses_the_replicas_number,
)
from tests.replicas import context, mirrored, parts_of

# ------------------------------------------------------------------ derivatives around them

DIFFERENTIABLE: list[Deed] = [
    reads,
    all_reduces,
    all_gathers,
    differentiates,
    differentiates_a_collective,
    assigns_a_sum,
    assigns_its_own,
    assigns_in_a_loss,
]
ASSIGNING = DIFFERENTIABLE[-3:]
# Where JAX cannot differentiate a function that assigns, or would do it twice.
REFUSED_UNDER_GRAD = {
    in_checkpoint: "assign it outside",
    in_scan_of_cond: "Return the new value from the branches",
}


@functools.cache
def eager_gradients(deed: Deed, times: int) -> Any:
    strategy = mirrored(2)
    state = make_state(strategy)

    def replica_fn(x: Any) -> Any:
        def loss() -> Any:
            y = jnp.tanh(x * state.w)
            for _ in range(times):
                y = deed(state, y)
            return jnp.sum(y**2) / 4

        return rx.value_and_grad(loss, [state.w])

    loss, (gradient,) = strategy.run(replica_fn, (starts(strategy),))
    return [parts_of(strategy, loss), *outcome(strategy, state, gradient)]


@pytest.mark.parametrize(
    "place",
    [(in_scan, TIMES), (in_checkpoint, 1), (in_scan_of_cond, TIMES)],
    ids=lambda place: place[0].__name__,
)
@pytest.mark.parametrize("deed", DIFFERENTIABLE)
def test_gradients_through_deeds_in_control_flow(deed: Deed, place: tuple[Any, int]):
    strategy = mirrored(2)
    state = make_state(strategy)
    inside, times = place

    @rx.function
    def step(x: Any) -> Any:
        def replica_fn(x: Any) -> Any:
            def loss() -> Any:
                y = inside(lambda y: deed(state, y))(jnp.tanh(x * state.w))
                return jnp.sum(y**2) / 4

            return rx.value_and_grad(loss, [state.w])

        return strategy.run(replica_fn, (x,))

    remedy = REFUSED_UNDER_GRAD.get(inside) if deed in ASSIGNING else None
    if remedy is not None:
        with pytest.raises((RuntimeError, NotImplementedError)) as caught:
            step(starts(strategy))
        assert remedy in "".join([str(caught.value), *caught.value.__notes__])
        assert thread_state.world is None
        return
    loss, (gradient,) = step(starts(strategy))
    found = [parts_of(strategy, loss), *outcome(strategy, state, gradient)]
    assert_equal(found, eager_gradients(deed, times))


@pytest.mark.parametrize("deed", [all_reduces, all_gathers, uses_the_replicas_number, reads])
def test_jax_grad_of_a_scan_with_respect_to_an_array(deed: Deed):
    strategy = mirrored(2)
    state = make_state(strategy)

    def loss(x: Any) -> Any:
        return jnp.sum(in_scan(jax.checkpoint(lambda x: deed(state, x)))(x) ** 2)

    def without(x: Any) -> Any:
        for _ in range(TIMES):
            x = deed(state, x)
        return jnp.sum(x**2)

    x = starts(strategy)
    found = rx.function(lambda x: strategy.run(jax.grad(loss), (x,)))(x)
    assert_equal(
        parts_of(strategy, found), parts_of(strategy, strategy.run(jax.grad(without), (x,)))
    )


def test_custom_vjp_with_collectives_and_variables():
    strategy = mirrored(2)
    with strategy.scope():
        w = rx.Variable(3.0)
        calls = rx.Variable(0.0, aggregation="SUM")

    @jax.custom_vjp
    def synced(x: Any) -> Any:
        return context().all_reduce("MEAN", x) * w.read_value()

    def forward(x: Any) -> Any:
        return synced(x), w.read_value()

    def backward(scale: Any, cotangent: Any) -> Any:
        return (context().all_reduce("SUM", cotangent) * scale,)

    synced.defvjp(forward, backward)

    @rx.function
    def step(x: Any) -> Any:
        def replica_fn(x: Any) -> Any:
            calls.assign_add(1.0)
            return jax.value_and_grad(lambda x: synced(x) ** 2)(x)

        return strategy.run(replica_fn, (x,))

    for scale in (3.0, 5.0):
        w.assign(scale)
        value, gradient = step(rx.distribute.PerReplica([1.0, 3.0]))
        assert parts_of(strategy, value) == [(2 * scale) ** 2] * 2
        assert parts_of(strategy, gradient) == [2 * 2 * scale * 2 * scale] * 2
    assert calls.numpy() == 4


def test_assignments_in_the_two_halves_of_a_custom_vjp():
    forward_calls, backward_sum = rx.Variable(0.0), rx.Variable(0.0)

    @jax.custom_vjp
    def double(x: Any) -> Any:
        forward_calls.assign_add(1.0)
        return x * 2

    def forward(x: Any) -> Any:
        forward_calls.assign_add(10.0)
        return x * 2, None

    def backward(_: Any, cotangent: Any) -> Any:
        backward_sum.assign_add(cotangent)
        return (cotangent * 2,)

    double.defvjp(forward, backward)
    step = rx.function(lambda x: (double(x), jax.grad(lambda x: double(x) * 3)(x)))
    assert [float(y) for y in step(jnp.float32(1.0))] == [2.0, 6.0]
    assert (float(forward_calls), float(backward_sum)) == (11.0, 3.0)
    step(jnp.float32(1.0))
    assert (float(forward_calls), float(backward_sum)) == (22.0, 6.0)


def test_a_pullback_called_twice_assigns_once():
    v = rx.Variable(0.0)

    def f(x: Any) -> Any:
        def body(_: Any, x: Any) -> Any:
            v.assign_add(1.0)
            return jnp.sin(x)

        return lax.fori_loop(0, 2, body, x)

    @rx.function
    def step(x: Any) -> Any:
        _, pullback = jax.vjp(f, x)
        return pullback(1.0)[0] + pullback(2.0)[0]

    expected = 3 * np.cos(np.sin(1.0)) * np.cos(1.0)
    np.testing.assert_allclose(step(jnp.float32(1.0)), expected, rtol=1e-5)
    assert v.numpy() == 2.0


def test_second_derivatives_through_collectives_in_scan():
    strategy = mirrored(2)

    def f(x: Any) -> Any:
        def body(x: Any, _: Any) -> Any:
            return jnp.sin(context().all_reduce("SUM", x)) * x, None

        return lax.scan(body, x, None, length=2)[0]

    def unrolled(x: Any) -> Any:
        for _ in range(2):
            x = jnp.sin(context().all_reduce("SUM", x)) * x
        return x

    def second(f: Any) -> Any:
        return jax.grad(jax.grad(f))

    x = rx.distribute.PerReplica([0.3, 0.5])
    found = rx.function(lambda x: strategy.run(second(f), (x,)))(x)
    unrolled_found = rx.function(lambda x: strategy.run(second(unrolled), (x,)))(x)
    assert_equal(parts_of(strategy, found), parts_of(strategy, unrolled_found))
    expected = strategy.run(second(unrolled), (x,))
    assert_equal(parts_of(strategy, found), parts_of(strategy, expected))


def test_jacobians_and_jvp_in_a_replica():
    strategy = mirrored(2)
    with strategy.scope():
        w = rx.Variable(jnp.array([1.0, 2.0]))

    def f(x: Any) -> Any:
        return context().all_reduce("SUM", x * w)

    @rx.function
    def step(x: Any) -> Any:
        def replica_fn(x: Any) -> Any:
            return jax.jacrev(f)(x), jax.jacfwd(f)(x), jax.jvp(f, (x,), (jnp.ones(2),))[1]

        return strategy.run(replica_fn, (x,))

    backward, forward, tangent = step(starts(strategy))
    for part in parts_of(strategy, backward) + parts_of(strategy, forward):
        np.testing.assert_allclose(part, np.diag([2.0, 4.0]))
    for part in parts_of(strategy, tangent):
        np.testing.assert_allclose(part, [2.0, 4.0])
