"""Small reductions that do not wait for each other are one collective, and give the same."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from replicax._src.devices import IN_ONE_PROCESS, REPLICA_AXIS
from replicax._src.functions._joint_reductions import join_reductions
from tests.replicas import by_replica, mirrored

LARGE = 1 << 16  # floats: too many to be packed


def collectives(function: Any, *args: Any) -> list[tuple[int, int]]:
    """How many tensors each all-reduce is of, and its bytes."""
    return [(each.tensors, each.bytes) for each in function.explain(*args).collectives]


def both_ways(function: Any, *args: Any) -> tuple[Any, Any]:
    return function(*args), function.python_function(*args)


def test_gradients_losses_and_metrics_of_a_step_are_one_collective():
    strategy = mirrored(4)
    with strategy.scope():
        weights = [rx.Variable(jnp.full(shape, 0.5)) for shape in ((3, 5), (5,), (5, 2))]
        optimizer = rx.Optimizer(optax.sgd(0.1))
        optimizer.build(weights)

    def replica_step(x: Any) -> Any:
        def loss() -> Any:
            return jnp.sum((x @ weights[0] + weights[1]) @ weights[2]) / 8

        value, gradients = rx.value_and_grad(loss, weights)
        optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return value, jnp.sum(x)

    @rx.function
    def step(x: Any) -> Any:
        loss, total = strategy.run(replica_step, args=(x,))
        return strategy.reduce("SUM", loss, axis=None), strategy.reduce("MEAN", total, axis=None)

    batch = by_replica(strategy, lambda index: jnp.full((2, 3), index + 1.0))
    assert collectives(step, batch) == [(5, 4 * (15 + 5 + 10 + 1 + 1))]
    before = [weight.numpy() for weight in weights]
    compiled = step(batch)
    after = [weight.numpy() for weight in weights]
    for weight, value in zip(weights, before, strict=True):
        weight.assign(value)
    np.testing.assert_allclose(compiled, step.python_function(batch), rtol=1e-6)
    for weight, value in zip(weights, after, strict=True):
        np.testing.assert_allclose(weight.numpy(), value, rtol=1e-6)


def test_a_reduction_of_a_reduction_waits_for_it():
    strategy = mirrored(3)

    @rx.function
    def three(x: Any, y: Any) -> Any:
        first = strategy.reduce("SUM", x, axis=None)
        again = strategy.run(lambda y: y * first, args=(y,))
        other = strategy.reduce("MEAN", y, axis=None)
        return first, strategy.reduce("SUM", again, axis=None), other

    x = by_replica(strategy, lambda index: jnp.arange(4.0) + index)
    y = by_replica(strategy, lambda index: jnp.arange(4.0) + index + 1)
    assert collectives(three, x, y) == [(2, 32), (1, 16)]
    for compiled, eager in zip(*both_ways(three, x, y), strict=True):
        np.testing.assert_array_equal(compiled, eager)


@pytest.mark.parametrize(
    ("shapes", "dtypes", "expected"),
    [
        (((2, 3), ()), ("float32", "int32"), [(1, 24), (1, 4)]),
        (((LARGE,), (LARGE,), (), (2,)), ("float32",) * 4, [(1, 4 * LARGE)] * 2 + [(2, 12)]),
        (((2,),) * 9, ("float32",) * 9, [(9, 72)]),
    ],
    ids=["dtypes", "large", "many of one shape"],
)
def test_what_goes_together(shapes: Any, dtypes: Any, expected: Any):
    strategy = mirrored(2)

    @rx.function
    def totals(values: Any) -> Any:
        return [strategy.reduce("SUM", value, axis=None) for value in values]

    def value(shape: Any, dtype: str) -> Any:
        return by_replica(strategy, lambda index: jnp.full(shape, index + 1, dtype))

    values = [value(*each) for each in zip(shapes, dtypes, strict=True)]
    assert sorted(collectives(totals, values)) == sorted(expected)
    for compiled, eager in zip(*both_ways(totals, values), strict=True):
        assert compiled.dtype == eager.dtype
        np.testing.assert_array_equal(compiled, eager)


def test_operations_with_side_effects_stay_in_their_order():
    strategy = mirrored(2)
    seen: list[float] = []

    @rx.function
    def told(x: Any) -> Any:
        first = strategy.reduce("SUM", x, axis=None)
        jax.debug.callback(lambda value: seen.append(float(value)), first)
        return first, strategy.reduce("MEAN", x, axis=None)

    x = by_replica(strategy, lambda index: jnp.float32(index + 1))
    first, mean = told(x)
    jax.effects_barrier()
    assert (float(first), float(mean)) == (3.0, 1.5) and set(seen) == {3.0}
    assert collectives(told, x) == [(1, 4), (1, 4)]


def test_operations_without_results():
    strategy = mirrored(2)

    @jax.jit
    def nothing(x: Any) -> dict[str, Any]:
        jnp.sum(x)
        return {}

    @rx.function
    def totals(x: Any) -> Any:
        strategy.run(nothing, args=(x,))
        return [strategy.reduce(op, x, axis=None) for op in ("SUM", "MEAN")]

    x = by_replica(strategy, lambda index: jnp.float32(index + 1))
    assert [float(each) for each in totals(x)] == [3.0, 1.5]
    assert collectives(totals, x) == [(2, 8)]


def test_steps_in_one_call_have_one_collective_each():
    strategy = mirrored(2)
    with strategy.scope():
        total = rx.Variable(jnp.zeros(3), aggregation=rx.VariableAggregation.SUM)

    def replica_fn(x: Any) -> Any:
        total.assign_add(x)
        return jnp.sum(x)

    @rx.function
    def step(x: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(replica_fn, args=(x,)), axis=None)

    batches = [by_replica(strategy, lambda i, n=n: jnp.full(3, n + i + 1.0)) for n in range(3)]
    assert collectives(step, batches[0]) == [(2, 16)]
    np.testing.assert_array_equal(step.steps(batches), [9.0, 15.0, 21.0])
    np.testing.assert_array_equal(total.numpy(), np.full(3, 15.0))


def test_values_that_are_put_together_may_be_a_result():
    """They look like a pack that was made for a reduction."""
    strategy = mirrored(2)

    @rx.function
    def step(x: Any) -> Any:
        both = strategy.run(lambda x: jnp.concatenate([x, x + 1]), args=(x,))
        sums = [strategy.reduce("SUM", each, axis=None) for each in (x, both)]
        return both, *sums

    x = by_replica(strategy, lambda index: jnp.arange(2.0) + index)
    both, *_ = step(x)
    np.testing.assert_array_equal(both.values[1], [1, 2, 2, 3])


def test_groups_that_are_alike_have_variables_of_their_own():
    values = [jnp.float32(number) for number in range(16)]
    program = jax.make_jaxpr(
        lambda values: [jax.lax.psum(value, REPLICA_AXIS) for value in values],
        axis_env=[(REPLICA_AXIS, 2)],
    )(values)
    joined = join_reductions(program, IN_ONE_PROCESS, 2).jaxpr
    assert [each.primitive.name for each in joined.eqns].count("psum") == 2
    made = [variable for each in joined.eqns for variable in each.outvars]
    assert len(made) == len(set(made))
