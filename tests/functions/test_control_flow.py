"""What replicas do inside JAX's control flow, in a compiled function: the same as in plain Python.

Each deed is a function from an array to an array of the same shape. It is done in a compiled
function inside `lax.scan`, `lax.cond` and so on; the expected numbers are those of eager replicas
that do it in a Python loop, without any control flow of JAX.
"""

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

import replicax as rx
from replicax._src.context import thread_state
from tests.replicas import by_replica, context, mirrored, parts_of, two_replicas
from tests.under_test import STRATEGIES

ON_READ = rx.VariableSynchronization.ON_READ
TIMES = 3  # rounds of the loops
SIZE = 2

Deed = Callable[[Any, Any], Any]


# ------------------------------------------------------------------ what is done


def make_state(strategy: Any) -> SimpleNamespace:
    """The variables, optimizer and metric of a small model."""
    plain = rx.Variable(jnp.ones(SIZE))  # outside of any scope: one array, for all replicas
    with strategy.scope():
        w = rx.Variable(jnp.array([0.5, -0.25]), aggregation="MEAN", name="w")
        optimizer = rx.Optimizer(optax.adam(0.1))
        optimizer.build([w])
        return SimpleNamespace(
            w=w,
            summed=rx.Variable(jnp.zeros(SIZE), aggregation="SUM"),
            first=rx.Variable(jnp.zeros(SIZE), aggregation="ONLY_FIRST_REPLICA"),
            own=rx.Variable(jnp.zeros(SIZE), synchronization=ON_READ, aggregation="SUM"),
            own_mean=rx.Variable(jnp.ones(SIZE), synchronization=ON_READ, aggregation="MEAN"),
            plain=plain,
            optimizer=optimizer,
            metric=rx.metrics.Mean(),
        )


def reads(s: Any, x: Any) -> Any:
    return jnp.tanh(x * s.w + s.own_mean.read_value() + s.plain)


def all_reduces(s: Any, x: Any) -> Any:
    return jnp.tanh(context().all_reduce("SUM", x * s.w)) + x


def reduces_a_structure(s: Any, x: Any) -> Any:
    found = context().all_reduce("MEAN", {"a": x, "b": [jnp.sum(x), 2 * x]})
    return found["a"] + found["b"][0] - found["b"][1] * x


def all_gathers(s: Any, x: Any) -> Any:
    joined = context().all_gather(x[None], axis=0)
    return jnp.tanh(x + joined[0] * joined[-1])


def uses_the_replicas_number(s: Any, x: Any) -> Any:
    return x + context().replica_id_in_sync_group * s.w


def merges_and_reduces(s: Any, x: Any) -> Any:
    def merge(strategy: Any, x: Any) -> Any:
        return strategy.extended.reduce_to("SUM", x, x)

    return jnp.tanh(x + context().merge_call(merge, (x,)))


def merges_a_batch(s: Any, x: Any) -> Any:
    def merge(strategy: Any, x: Any, y: Any) -> Any:
        return strategy.extended.batch_reduce_to("MEAN", [(x, x), (y, s.w)])

    a, b = context().merge_call(merge, (x, 2 * x + 1))
    return x + a - 0.5 * b


def merges_and_updates(s: Any, x: Any) -> Any:
    def merge(strategy: Any, x: Any) -> Any:
        total = strategy.extended.reduce_to("SUM", x, s.w)
        return strategy.extended.update(s.w, lambda copy, y: copy.assign_sub(0.1 * y), (total,))

    context().merge_call(merge, (x,))
    return x + s.w


def merges_and_updates_ungrouped(s: Any, x: Any) -> Any:
    def change(copy: Any, y: Any) -> Any:
        copy.assign_sub(0.1 * y)
        return copy.read_value() + y

    def merge(strategy: Any, x: Any) -> Any:
        total = strategy.extended.reduce_to("SUM", x, s.w)
        results = strategy.extended.update(s.w, change, (total,), group=False)
        assert isinstance(results, tuple)
        return results[0] + results[-1]

    return jnp.tanh(x + context().merge_call(merge, (x,)))


def merges_local_results(s: Any, x: Any) -> Any:
    def merge(strategy: Any, x: Any) -> Any:
        parts = strategy.experimental_local_results(x)
        return sum(index * part for index, part in enumerate(parts))

    return jnp.tanh(x + context().merge_call(merge, (x,)))


def merges_and_broadcasts(s: Any, x: Any) -> Any:
    def merge(strategy: Any, x: Any) -> Any:
        first = strategy.experimental_local_results(x)[0]
        return strategy.extended.broadcast_to(first, None)

    return x + context().merge_call(merge, (x,))


def merges_and_assigns(s: Any, x: Any) -> Any:
    def merge(strategy: Any, x: Any) -> Any:
        s.summed.assign_add(strategy.reduce("MEAN", x, axis=None))
        return s.summed.read_value()

    return x + context().merge_call(merge, (x,))


def differentiates(s: Any, x: Any) -> Any:
    loss, (gradient,) = rx.value_and_grad(lambda: jnp.sum(jnp.tanh(s.w * x) ** 2), [s.w])
    return x - 0.1 * gradient + 0.01 * loss


def differentiates_a_collective(s: Any, x: Any) -> Any:
    def loss() -> Any:
        mean = context().all_reduce("MEAN", s.w * x)
        joined = context().all_gather((s.w * x)[None], axis=0)
        return jnp.sum(jnp.square(s.w * x - mean)) + jnp.sum(joined**2)

    _, (gradient,) = rx.value_and_grad(loss, [s.w])
    return x - 0.1 * gradient


def differentiates_twice(s: Any, x: Any) -> Any:
    def gradient_norm() -> Any:
        gradient = rx.grad(lambda: jnp.sum(jnp.sin(s.w * x)), [s.w])[0]
        return jnp.sum(gradient**2)

    return x - 0.1 * rx.grad(gradient_norm, [s.w])[0]


def optimizes(s: Any, x: Any) -> Any:
    loss, gradients = rx.value_and_grad(lambda: jnp.sum((s.w - x) ** 2), [s.w])
    s.optimizer.apply_gradients(zip(gradients, [s.w]))
    return x + 0.01 * loss


def measures(s: Any, x: Any) -> Any:
    s.metric.update_state(x)
    return 2 * x + s.metric.result()


def assigns_a_sum(s: Any, x: Any) -> Any:
    s.summed.assign_add(x)
    return x + s.summed


def assigns_a_mean(s: Any, x: Any) -> Any:
    s.w.assign(s.w + x)
    s.w.assign_sub(0.5 * x)
    return x * s.w


def assigns_the_firsts(s: Any, x: Any) -> Any:
    s.first.assign(x)
    s.first.assign_sub(0.25 * x)
    return 2 * x + s.first


def assigns_its_own(s: Any, x: Any) -> Any:
    s.own.assign_add(x)
    s.own_mean.assign(s.own + s.own_mean)
    return x + s.own - 0.1 * s.own_mean


def assigns_what_has_no_copies(s: Any, x: Any) -> Any:
    s.plain.assign_add(jnp.ones(SIZE))
    return x + 1


def assigns_in_a_loss(s: Any, x: Any) -> Any:
    def loss() -> Any:
        s.own.assign_add(s.w * x)
        s.summed.assign_add(x)
        return jnp.sum(s.w**2 * x + s.summed)

    _, (gradient,) = rx.value_and_grad(loss, [s.w])
    return x - 0.1 * gradient


DEEDS: list[Deed] = [
    reads,
    all_reduces,
    reduces_a_structure,
    all_gathers,
    uses_the_replicas_number,
    merges_and_reduces,
    merges_a_batch,
    merges_and_updates,
    merges_and_updates_ungrouped,
    merges_local_results,
    merges_and_broadcasts,
    merges_and_assigns,
    differentiates,
    differentiates_a_collective,
    differentiates_twice,
    optimizes,
    measures,
    assigns_a_sum,
    assigns_a_mean,
    assigns_the_firsts,
    assigns_its_own,
    assigns_what_has_no_copies,
    assigns_in_a_loss,
]


# ------------------------------------------------------------------ where it is done


def agreed(x: Any) -> Any:
    """True, the same on all replicas, and not known before the program runs."""
    return context().all_reduce("SUM", jnp.sum(x * 0)) == 0


def in_cond(f: Any) -> Any:
    return lambda x: lax.cond(agreed(x), f, lambda x: x * jnp.nan, x)


def in_the_other_branch(f: Any) -> Any:
    return lambda x: lax.cond(agreed(x), lambda x: x + 1, f, x)


def in_switch(f: Any) -> Any:
    return lambda x: lax.switch(jnp.int32(1), [jnp.zeros_like, f, jnp.ones_like], x)


def in_scan(f: Any) -> Any:
    return lambda x: lax.scan(lambda x, _: (f(x), None), x, None, length=TIMES)[0]


def in_fori_loop(f: Any) -> Any:
    return lambda x: lax.fori_loop(0, TIMES, lambda _, x: f(x), x)


def in_while_loop(f: Any) -> Any:
    def loop(x: Any) -> Any:
        return lax.while_loop(lambda c: c[0] < TIMES, lambda c: (c[0] + 1, f(c[1])), (0, x))[1]

    return loop


def in_checkpoint(f: Any) -> Any:
    return lambda x: jax.checkpoint(f)(x)


def in_jit(f: Any) -> Any:
    return lambda x: jax.jit(f)(x)


def in_one_jit_called_again(f: Any) -> Any:
    kept = jax.jit(f)  # the second call must not see what the first one was traced with
    return lambda x: kept(kept(kept(x)))


def in_scan_of_cond(f: Any) -> Any:
    return in_scan(in_cond(in_jit(f)))


PLACES: list[tuple[Any, int]] = [
    (in_cond, 1),
    (in_switch, 1),
    (in_scan, TIMES),
    (in_fori_loop, TIMES),
    (in_while_loop, TIMES),
    (in_checkpoint, 1),
    (in_jit, 1),
    (in_one_jit_called_again, 3),
    (in_scan_of_cond, TIMES),
]


OFTEN = [p for p in PLACES if p[0] in (in_cond, in_scan, in_one_jit_called_again)]
SELDOM = [p for p in PLACES if p not in OFTEN]


def starts(strategy: Any) -> Any:
    return by_replica(strategy, lambda index: jnp.array([0.3, -0.7]) * (index + 1))


def outcome(strategy: Any, state: Any, result: Any) -> list[Any]:
    """Everything that can be seen afterwards."""
    metric = state.metric.variables
    variables = [state.w, state.summed, state.first, state.plain, *state.optimizer.variables]
    copies = [parts_of(strategy, each) for each in (state.own, state.own_mean, *metric)]
    return [parts_of(strategy, result), copies, [v.numpy() for v in variables]]


@functools.cache
def eagerly(make_strategy: Any, deed: Deed, times: int) -> list[Any]:
    """What is to be seen after one and after two runs of eager replicas."""
    strategy = make_strategy()
    state = make_state(strategy)

    def replica_fn(x: Any) -> Any:
        for _ in range(times):
            x = deed(state, x)
        return x

    x = strategy.run(replica_fn, (starts(strategy),))
    first = outcome(strategy, state, x)
    x = strategy.run(replica_fn, (x,))
    return [first, outcome(strategy, state, x)]


def assert_equal(one: Any, other: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), one, other)


@pytest.mark.parametrize(
    "deed, place",
    [(deed, place) for deed in DEEDS for place in OFTEN]
    + [(deed, place) for deed in (optimizes, assigns_its_own, all_gathers) for place in SELDOM],
    ids=lambda each: getattr(each, "__name__", None) or each[0].__name__,
)
def test_deeds_in_control_flow(deed: Deed, place: tuple[Any, int]):
    strategy = mirrored(2)
    state = make_state(strategy)
    inside, times = place
    replica_fn = inside(lambda x: deed(state, x))

    @rx.function
    def step(x: Any) -> Any:
        return strategy.run(replica_fn, (x,))

    first, second = eagerly(mirrored, deed, times)
    x = step(starts(strategy))
    assert_equal(outcome(strategy, state, x), first)
    x = step(x)
    assert_equal(outcome(strategy, state, x), second)


@pytest.mark.parametrize("name", ["central_storage_2", "default"])
@pytest.mark.parametrize(
    "deed", [merges_and_updates, differentiates_a_collective, optimizes, measures, *DEEDS[-6:]]
)
def test_deeds_in_scan_under_other_strategies(name: str, deed: Deed):
    strategy = STRATEGIES[name]()
    state = make_state(strategy)
    replica_fn = rx.function(in_scan(lambda x: deed(state, x)))  # the replica function itself
    x = strategy.run(replica_fn, (starts(strategy),))
    assert_equal(outcome(strategy, state, x), eagerly(STRATEGIES[name], deed, TIMES)[0])


@pytest.mark.parametrize("deed", [merges_and_updates, optimizes, measures, *DEEDS[-6:]])
def test_deeds_in_a_branch_that_is_not_taken(deed: Deed):
    strategy = mirrored(2)
    state = make_state(strategy)
    x = starts(strategy)
    untouched = outcome(strategy, state, x)
    run = rx.function(lambda x: strategy.run(in_the_other_branch(lambda x: deed(state, x)), (x,)))
    result = run(x)
    assert_equal(outcome(strategy, state, x), untouched)
    assert_equal(parts_of(strategy, result), [part + 1 for part in parts_of(strategy, x)])


# ------------------------------------------------------------------ runs inside control flow


@two_replicas
@pytest.mark.parametrize("place", OFTEN, ids=lambda place: place[0].__name__)
def test_runs_and_reductions_inside_control_flow(strategy: Any, place: tuple[Any, int]):
    inside, times = place
    with strategy.scope():
        w = rx.Variable(1.0, aggregation="SUM")
        own = rx.Variable(0.0, synchronization=ON_READ, aggregation="SUM")

    def replica_fn(x: Any) -> Any:
        w.assign_add(x)
        own.assign_add(x * w)
        return x * (context().replica_id_in_sync_group + 1)

    def cross_replica(x: Any) -> Any:
        y = strategy.reduce("SUM", strategy.run(replica_fn, (x,)), axis=None)
        w.assign_sub(1.0)
        return y - own.read_value() / 10

    step: Any = rx.function(inside(cross_replica))
    expected_x, expected_w, expected_own = 0.5, 1.0, 0.0
    x = jnp.float32(0.5)
    for _ in range(2):
        x = step(x)
        for _ in range(times):
            expected_w += 2 * expected_x
            expected_own += 2 * expected_x * expected_w
            expected_w -= 1
            expected_x = 3 * expected_x - expected_own / 10
        np.testing.assert_allclose(x, expected_x, rtol=1e-5)
        np.testing.assert_allclose(w.numpy(), expected_w, rtol=1e-5)
        np.testing.assert_allclose(own.numpy(), expected_own, rtol=1e-5)


def test_scan_over_per_replica_rows_in_a_replica():
    strategy = mirrored(2)
    with strategy.scope():
        total = rx.Variable(0.0, aggregation="SUM")
        seen = rx.Variable(jnp.zeros(3), synchronization=ON_READ, aggregation="SUM")

    @rx.function
    def step(x: Any) -> Any:
        def body(carry: Any, row: Any) -> Any:
            total.assign_add(jnp.sum(row))
            seen.assign_add(row)
            return carry + 1, context().all_reduce("SUM", row) * carry

        return strategy.run(lambda x: lax.scan(body, 1.0, x), (x,))

    parts = [np.arange(12, dtype=np.float32).reshape(4, 3) + 100 * i for i in range(2)]
    carry, rows = step(rx.distribute.PerReplica(parts))
    expected = (parts[0] + parts[1]) * np.arange(1, 5, dtype=np.float32)[:, None]
    assert parts_of(strategy, carry) == [5.0, 5.0]
    for part in parts_of(strategy, rows):
        np.testing.assert_allclose(part, expected)
    assert total.numpy() == sum(map(np.sum, parts))
    np.testing.assert_allclose(seen.numpy(), (parts[0] + parts[1]).sum(axis=0))


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


# ------------------------------------------------------------------ a jitted function that is kept

SCALE = rx.Variable(1.0)


@jax.jit
def scaled(x: Any) -> Any:
    return x * SCALE


@jax.jit
def raise_scale(x: Any) -> Any:
    SCALE.assign_add(x)
    return x * SCALE


def test_a_module_level_jit_sees_assignments_around_it():
    @rx.function
    def step(x: Any) -> Any:
        before = scaled(x)
        SCALE.assign_add(1.0)
        middle = scaled(x)
        SCALE.assign(10.0)
        return before, middle, scaled(x)

    SCALE.assign(1.0)
    assert [float(y) for y in step(jnp.float32(2.0))] == [2.0, 4.0, 20.0]
    assert [float(y) for y in step(jnp.float32(2.0))] == [20.0, 22.0, 20.0]
    assert [float(y) for y in rx.function(lambda x: (scaled(x),))(jnp.float32(3.0))] == [30.0]


def test_a_module_level_jit_that_assigns():
    @rx.function
    def step(x: Any) -> Any:
        first = raise_scale(x)
        SCALE.assign_add(1.0)
        return first, raise_scale(x), scaled(x)

    SCALE.assign(1.0)
    assert [float(y) for y in step(jnp.float32(2.0))] == [6.0, 12.0, 12.0]
    assert SCALE.numpy() == 6.0
    assert [float(y) for y in step(jnp.float32(2.0))] == [16.0, 22.0, 22.0]

    @rx.function
    def other(x: Any) -> Any:
        return raise_scale(x)

    assert float(other(jnp.float32(1.0))) == 12.0
    assert SCALE.numpy() == 12.0


def test_a_kept_scan_body_sees_assignments_around_it():
    w = rx.Variable(2.0)

    def body(x: Any, _: Any) -> Any:
        return x * w, None

    @rx.function
    def step(x: Any) -> Any:
        x = lax.scan(body, x, None, length=2)[0]
        w.assign(3.0)
        return lax.scan(body, x, None, length=2)[0]

    assert float(step(jnp.float32(1.0))) == 36.0
    assert float(step(jnp.float32(1.0))) == 81.0


def test_a_variable_is_carried_from_branch_to_loop_to_plain_code():
    w = rx.Variable(1.0)

    @rx.function
    def step(x: Any) -> Any:
        w.assign_add(x)
        lax.cond(x > 0, lambda: w.assign(w * 10).read_value(), lambda: w.read_value())
        in_loop = lax.fori_loop(0, 3, lambda i, c: w.assign_add(1.0).read_value() + 0 * c, 0.0)
        w.assign_sub(0.5)
        return in_loop, w.read_value(), lax.cond(x > 0, lambda: w * 2, lambda: w * 3)

    assert [float(y) for y in step(jnp.float32(1.0))] == [23.0, 22.5, 45.0]
    assert w.numpy() == 22.5
    assert [float(y) for y in step(jnp.float32(-2.5))] == [23.0, 22.5, 67.5]


def test_branches_write_different_variables():
    strategy = mirrored(2)
    with strategy.scope():
        a = rx.Variable(0.0, aggregation="SUM")
        b = rx.Variable(0.0, synchronization=ON_READ, aggregation="SUM")

    @rx.function
    def step(x: Any, flag: Any) -> None:
        def replica_fn(x: Any) -> None:
            def left() -> Any:
                a.assign_add(x)
                return x

            def right() -> Any:
                b.assign_add(2 * x)
                return x

            lax.cond(flag, left, right)

        strategy.run(replica_fn, (x,))

    x = rx.distribute.PerReplica([1.0, 2.0])
    for flag, expected in ((True, (3.0, 0.0)), (False, (3.0, 6.0)), (True, (6.0, 6.0))):
        step(x, jnp.asarray(flag))
        assert (a.numpy(), b.numpy()) == expected


def test_replicas_may_take_different_branches_over_their_own_state():
    strategy = mirrored(2)
    with strategy.scope():
        own = rx.Variable(0.0, synchronization=ON_READ, aggregation="SUM")

    @rx.function
    def step(x: Any) -> Any:
        def replica_fn(x: Any) -> Any:
            def add() -> Any:
                own.assign_add(x)
                return x

            return lax.cond(context().replica_id_in_sync_group == 1, add, lambda: -x)

        return strategy.run(replica_fn, (x,))

    x = rx.distribute.PerReplica([1.0, 2.0])
    assert parts_of(strategy, step(x)) == [-1.0, 2.0]
    step(x)
    assert parts_of(strategy, own) == [0.0, 4.0]


def test_loops_of_different_lengths_over_their_own_state():
    strategy = mirrored(2)
    with strategy.scope():
        own = rx.Variable(0, synchronization=ON_READ, aggregation="SUM")

    @rx.function
    def step() -> Any:
        def replica_fn() -> Any:
            number = context().replica_id_in_sync_group
            return lax.while_loop(
                lambda i: i < 3 * number, lambda i: i + own.assign_add(1).read_value() * 0 + 1, 0
            )

        return strategy.run(replica_fn)

    assert parts_of(strategy, step()) == [0, 3]
    assert parts_of(strategy, own) == [0, 3]


@pytest.mark.parametrize("assigns", [False, True])
def test_the_condition_of_a_while_loop_sees_the_variable_or_is_refused(assigns: bool):
    v = rx.Variable(0.0)

    def goes_on(count: Any) -> Any:
        value = v.assign_add(1.0).read_value() if assigns else v.read_value()
        return (value < 5.0) & (count < 20.0)  # bounded, should the variable stand still

    def body(count: Any) -> Any:
        if not assigns:
            v.assign_add(1.0)
        return count + 1

    step = rx.function(lambda x: lax.while_loop(goes_on, body, x))
    try:
        result = step(jnp.float32(0.0))
    except (RuntimeError, NotImplementedError) as error:
        assert "condition" in "".join([str(error), *getattr(error, "__notes__", [])])
        assert v.numpy() == 0.0
        return
    assert (float(result), float(v)) == (4.0 if assigns else 5.0, 5.0)


def test_lax_map_assigns_row_by_row():
    v = rx.Variable(0.0)
    step = rx.function(lambda x: lax.map(lambda row: v.assign_add(row).read_value(), x))
    np.testing.assert_allclose(step(jnp.arange(3.0)), [0.0, 1.0, 3.0])
    np.testing.assert_allclose(step(jnp.arange(3.0)), [3.0, 4.0, 6.0])


def test_eval_shape_does_not_assign():
    v = rx.Variable(0.0)

    @rx.function
    def step(x: Any) -> Any:
        shape = jax.eval_shape(lambda: v.assign_add(x).read_value() * jnp.ones(3)).shape
        return jnp.ones(shape) * v

    np.testing.assert_allclose(step(jnp.float32(1.0)), np.zeros(3))
    assert v.numpy() == 0.0


def test_an_optimizer_without_state_in_a_loop_is_refused_until_it_is_built():
    w = rx.Variable(1.0)
    optimizer = rx.Optimizer(optax.adam(0.1))

    def body(carry: Any, _: Any) -> Any:
        optimizer.apply_gradients(zip(rx.grad(lambda: w * 2.0, [w]), [w]))
        return carry, None

    step = rx.function(lambda: lax.scan(body, 0.0, None, length=2)[0])
    with pytest.raises(RuntimeError, match="Make it before"):
        step()
    optimizer.build([w])
    step()
    np.testing.assert_allclose(w.numpy(), 0.8, rtol=1e-5)
    assert optimizer.iterations.numpy() == 2


# ------------------------------------------------------------------ vmap


def test_vmap_over_reads_and_collectives():
    strategy = mirrored(2)
    with strategy.scope():
        w = rx.Variable(2.0)

    @rx.function
    def step(x: Any) -> Any:
        def each(row: Any) -> Any:
            gradient = rx.grad(lambda: w**2 * row, [w])[0]
            return context().all_reduce("SUM", row * w) + gradient

        return strategy.run(jax.vmap(each), (x,))

    result = step(rx.distribute.PerReplica([jnp.array([1.0, 2.0]), jnp.array([10.0, 20.0])]))
    np.testing.assert_allclose(parts_of(strategy, result), [[26.0, 52.0], [62.0, 124.0]])


def test_vmap_after_an_assignment_in_a_loop():
    w = rx.Variable(1.0)

    @rx.function
    def step(x: Any) -> Any:
        lax.fori_loop(0, 2, lambda i, c: c + 0 * w.assign_add(1.0).read_value(), 0.0)
        return jax.vmap(lambda x: x * w)(x)

    np.testing.assert_allclose(step(jnp.arange(3.0)), [0.0, 3.0, 6.0])
    np.testing.assert_allclose(step(jnp.arange(3.0)), [0.0, 5.0, 10.0])


@pytest.mark.parametrize("nested", [lambda f: f, in_jit, in_scan, in_cond])
@pytest.mark.parametrize("kind", ["mirrored", "own", "plain"])
def test_assignments_inside_vmap_are_refused(kind: str, nested: Any):
    strategy = mirrored(2)
    plain = rx.Variable(0.0)
    with strategy.scope():
        summed = rx.Variable(0.0, aggregation="SUM")
        own = rx.Variable(0.0, synchronization=ON_READ, aggregation="SUM")
    v = {"mirrored": summed, "own": own, "plain": plain}[kind]

    def each(row: Any) -> Any:
        v.assign_add(row)
        return row

    step = rx.function(lambda x: strategy.run(jax.vmap(nested(each)), (x,)))
    x = rx.distribute.PerReplica([jnp.ones(3), jnp.ones(3)])
    with pytest.raises(RuntimeError, match="inside jax.vmap"):
        step(x)
    assert thread_state.world is None
    assert v.numpy() == 0.0


# ------------------------------------------------------------------ what cannot be


@pytest.mark.parametrize("inside", [in_cond, in_scan, in_while_loop, in_jit, in_checkpoint])
def test_a_variable_made_inside_control_flow_is_refused(inside: Any):
    made: list[Any] = []

    def make(x: Any) -> Any:
        if not made:
            made.append(rx.Variable(1.0))
        return x

    with pytest.raises(RuntimeError, match="Make it before"):
        rx.function(inside(make))(jnp.float32(1.0))


def test_python_control_flow_on_a_replicas_value_is_explained():
    strategy = mirrored(2)

    def replica_fn(x: Any) -> Any:
        return x if context().replica_id_in_sync_group == 0 else -x

    with pytest.raises(jax.errors.TracerBoolConversionError) as caught:
        rx.function(lambda x: strategy.run(replica_fn, (x,)))(jnp.float32(1.0))
    assert any("jax.lax.cond" in note for note in caught.value.__notes__)


# ------------------------------------------------------------------ who takes part


@pytest.mark.parametrize("loop", [False, True])
def test_a_collective_that_only_some_replicas_reach_is_refused(loop: bool):
    strategy = mirrored(2)

    def replica_fn(x: Any) -> Any:
        number = context().replica_id_in_sync_group
        if loop:
            return lax.while_loop(
                lambda x: x < number * 10.0, lambda x: context().all_reduce("SUM", x), x
            )
        return lax.cond(number == 0, lambda: context().all_reduce("SUM", x), lambda: x)

    with pytest.raises(rx.errors.ReplicaMismatchError, match="All replicas must take part"):
        rx.function(lambda x: strategy.run(replica_fn, (x,)))(rx.distribute.PerReplica([1.0, 2.0]))


def test_a_collective_behind_a_condition_on_data_is_warned_of():
    strategy = mirrored(2)

    def replica_fn(x: Any) -> Any:
        return lax.cond(x > 0, lambda: context().all_reduce("SUM", x), lambda: x)

    step = rx.function(lambda x: strategy.run(replica_fn, (x,)))
    with pytest.warns(RuntimeWarning, match="may differ from replica to replica"):
        result = step(rx.distribute.PerReplica([1.0, 2.0]))
    assert parts_of(strategy, result) == [3.0, 3.0]


def test_replicas_that_meet_in_a_branch_after_they_changed_a_variable_from_outside():
    strategy = mirrored(2)
    plain = rx.Variable(0.0)
    with strategy.scope():
        v = rx.Variable(0.0, aggregation="SUM")

    def replica_fn(x: Any) -> Any:
        plain.assign_add(x)

        def taken() -> Any:
            v.assign_add(x)
            return x

        return jax.lax.cond(v < -1, taken, lambda: x)

    function = rx.function(lambda x: strategy.run(replica_fn, (x,)))
    with pytest.raises(rx.errors.WrongContextError, match="Make the variable in strategy.scope"):
        function(rx.distribute.PerReplica([jnp.float32(1), jnp.float32(2)]))
    assert float(plain) == 0.0
