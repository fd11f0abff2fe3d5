"""What replicas do in branches, loops and jitted functions is what they do in plain Python."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

import replicax as rx
from replicax._src.context import thread_state
from tests.functions.deeds import (
    DEEDS,
    OFTEN,
    ON_READ,
    SELDOM,
    TIMES,
    Deed,
    all_gathers,
    assert_equal,
    assigns_its_own,
    differentiates_a_collective,
    eagerly,
    in_checkpoint,
    in_cond,
    in_jit,
    in_scan,
    in_the_other_branch,
    in_while_loop,
    make_state,
    measures,
    merges_and_updates,
    optimizes,
    outcome,
    starts,
)
from tests.replicas import context, mirrored, parts_of, two_replicas
from tests.under_test import STRATEGIES


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


@pytest.mark.parametrize("replicas", [0, 1, 2])  # 0: the default strategy
def test_a_loop_of_jax_around_run_needs_a_function_around_it(replicas: int):
    strategy = mirrored(replicas) if replicas else rx.distribute.get_strategy()
    with strategy.scope():
        w = rx.Variable(1.0, aggregation="SUM")

    def loop() -> Any:
        def body(i: Any, total: Any) -> Any:
            strategy.run(lambda: w.assign_add(jnp.float32(i)))
            return total + w

        return lax.fori_loop(0, 3, body, 0.0)

    with pytest.raises(
        RuntimeError, match="that JAX traces|while JAX traces.*around lax.fori_loop"
    ):
        loop()
    assert w.numpy() == 1.0  # and no tracer
    by_hand = 1 + np.cumsum(np.arange(3) * max(1, replicas))
    assert float(rx.function(loop)()) == by_hand.sum()
    assert w.numpy() == by_hand[-1]


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
        return x if x + context().replica_id_in_sync_group == 0 else -x

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


@pytest.mark.parametrize("first", ["cond", "scan", "while"])
@pytest.mark.parametrize("together", [True, False])
def test_a_condition_on_a_variable_that_a_branch_or_loop_has_changed(first: str, together: bool):
    """It differs if what was written does, and not because replicas looked at data beside it."""
    strategy = mirrored(2)
    on = rx.VariableSynchronization
    with strategy.scope():
        v = rx.Variable(
            0.0,
            synchronization=on.ON_WRITE if together else on.ON_READ,
            aggregation=rx.VariableAggregation.SUM,
        )

    def replica_fn(x: Any) -> Any:
        def change(*_: Any) -> Any:
            v.assign_add(x)
            return x

        if first == "cond":
            lax.cond(context().all_reduce("SUM", x) > 0, change, lambda: x)
        elif first == "scan":
            lax.scan(lambda carry, _: (change(), None), x, length=2)
        else:
            lax.fori_loop(0, jnp.int32(context().all_reduce("SUM", x)), change, x)
        return lax.cond(v > 1, lambda: context().all_reduce("SUM", x), lambda: x)

    step = rx.function(lambda x: strategy.run(replica_fn, (x,)))
    given = rx.distribute.PerReplica([jnp.float32(2), jnp.float32(3)])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = step(given)
    assert parts_of(strategy, result) == [5.0, 5.0]
    said = ["may differ from replica to replica" in str(each.message) for each in seen]
    assert said == ([] if together else [True])


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
