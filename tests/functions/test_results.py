"""Results of compiled functions, and batches whose shares differ in shape."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from tests.replicas import context, few_replicas, mirrored, on_devices, parts_of

ON_READ = rx.VariableSynchronization.ON_READ


# ------------------------------------------------------------------ results


def test_results_of_every_sort(strategy: Any):
    shared = jnp.ones(2)

    @rx.function
    def step(x: Any) -> Any:
        y = strategy.run(lambda x: x * 2, (x,))
        return {
            "array": jnp.sum(x),
            "number": 3,
            "float": 2.5,
            "numpy": np.arange(2),
            "none": None,
            "text": "done",
            "argument": x,
            "shared": shared,
            "per_replica": y,
            "twice": (y, y),
            "empty": (),
        }

    for _ in range(2):
        result = step(jnp.arange(3.0))
        assert float(result["array"]) == 3.0
        assert int(result["number"]) == 3 and float(result["float"]) == 2.5
        assert list(result["numpy"]) == [0, 1]
        assert result["none"] is None and result["text"] == "done" and result["empty"] == ()
        np.testing.assert_allclose(result["argument"], [0.0, 1.0, 2.0])
        np.testing.assert_allclose(result["shared"], [1.0, 1.0])
        for part in parts_of(strategy, result["twice"][1]):
            np.testing.assert_allclose(part, [0.0, 2.0, 4.0])


def test_results_can_be_combined_with_other_arrays():
    strategy = mirrored(2)

    @rx.function
    def step(x: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(lambda x: x * 1, (x,)), axis=None)

    result = step(jnp.ones(2))
    np.testing.assert_allclose(result + jax.device_put(jnp.ones(2), jax.devices("cpu")[3]), [3, 3])
    assert result.devices() == {jax.devices("cpu")[0]}


def test_a_function_that_returns_nothing_or_an_object():
    class Thing:
        pass

    thing = Thing()
    assert rx.function(lambda: None)() is None
    assert rx.function(lambda x: thing)(jnp.ones(1)) is thing


# ------------------------------------------------------------------ shapes that differ


@few_replicas
def test_uneven_and_empty_batches_in_a_compiled_loop(strategy: Any):
    count = strategy.num_replicas_in_sync

    def make() -> tuple[Any, Any]:
        with strategy.scope():
            w = rx.Variable(jnp.ones(2))
            optimizer = rx.Optimizer(optax.adam(0.1))
            metric = rx.metrics.Mean()
            rows = rx.Variable(0.0, synchronization=ON_READ, aggregation="SUM")

        def step(x: Any) -> Any:
            def replica_fn(x: Any) -> Any:
                def loss() -> Any:
                    return rx.nn.compute_average_loss(
                        jnp.sum((x * w) ** 2, axis=-1), global_batch_size=8
                    )

                value, gradients = rx.value_and_grad(loss, [w])
                optimizer.apply_gradients(zip(gradients, [w]))
                metric.update_state(jnp.sum(x, axis=-1))
                rows.assign_add(float(x.shape[0]))
                return value

            return strategy.reduce("SUM", strategy.run(replica_fn, (x,)), axis=None)

        return step, lambda: [w.numpy(), metric.result(), rows.numpy(), optimizer.iterations]

    rng = np.random.default_rng(0)

    def batch(sizes: list[int]) -> Any:
        # Around 1: means around 0 are what rounding leaves of them.
        rows = [rng.normal(1.0, size=(n, 2)).astype(np.float32) for n in sizes]
        return on_devices(strategy, rows)

    batches = [
        batch([4] * count),
        batch([4] * (count - 1) + [2]),
        batch([4] * count),
        batch([1] + [0] * (count - 1)),
        batch([0] * count),
    ]
    eager, look_eager = make()
    step, look = make()
    compiled: Any = rx.function(step)
    for x in batches:
        np.testing.assert_allclose(compiled(x), eager(x), rtol=1e-5)
        for a, b in zip(look(), look_eager(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)
    expected_rows = sum(part.shape[0] for x in batches for part in x.values)
    assert look()[2] == expected_rows


def test_variables_made_by_an_uneven_first_batch():
    strategy = mirrored(2)
    made: list[Any] = []

    @rx.function
    def step(x: Any) -> Any:
        def replica_fn(x: Any) -> Any:
            if not made:
                made.append(rx.Variable(0.0, aggregation="SUM"))
            made[0].assign_add(jnp.sum(x))

        strategy.run(replica_fn, (x,))
        return made[0].read_value()

    uneven = rx.distribute.PerReplica([jnp.ones(2), jnp.ones(1)])
    even = rx.distribute.PerReplica([jnp.ones(2), jnp.ones(2)])
    assert [float(step(x)) for x in (uneven, even, uneven, even)] == [3.0, 7.0, 10.0, 14.0]


def test_an_uneven_batch_in_a_replica_function():
    strategy = mirrored(2)
    with strategy.scope():
        total = rx.Variable(0.0, aggregation="SUM")

    @rx.function
    def replica_fn(x: Any) -> Any:
        total.assign_add(jnp.sum(x))
        return context().all_gather(x, axis=0)

    even = rx.distribute.PerReplica([jnp.ones(2), jnp.ones(2)])
    uneven = rx.distribute.PerReplica([jnp.ones(2), jnp.ones(1)])
    for x, rows in ((even, 4), (uneven, 3), (even, 4)):
        assert parts_of(strategy, strategy.run(replica_fn, (x,)))[1].shape == (rows,)
    assert total.numpy() == 11.0


@pytest.mark.parametrize("deed", ["assign", "all_reduce"])
def test_an_uneven_batch_with_compiled_functions_inside(deed: str):
    strategy = mirrored(2)
    with strategy.scope():
        total = rx.Variable(0.0, aggregation="SUM")

    @rx.function
    def inner(x: Any) -> Any:
        if deed == "assign":
            total.assign_add(jnp.sum(x))
            return jnp.sum(x)
        return context().all_reduce("SUM", jnp.sum(x))

    step = rx.function(lambda x: strategy.run(lambda x: inner(x) + 1, (x,)))
    even = rx.distribute.PerReplica([jnp.ones(2), jnp.ones(2)])
    uneven = rx.distribute.PerReplica([jnp.ones(2), jnp.ones(1)])
    results = [parts_of(strategy, step(x)) for x in (even, uneven, even)]
    if deed == "assign":
        assert results == [[3.0, 3.0], [3.0, 2.0], [3.0, 3.0]]
        assert total.numpy() == 11.0
    else:
        assert results == [[5.0, 5.0], [4.0, 4.0], [5.0, 5.0]]


def test_a_captured_uneven_value():
    strategy = mirrored(2)
    uneven = rx.distribute.PerReplica([jnp.ones(2), jnp.ones(1)])
    step = rx.function(lambda x: strategy.run(lambda x, u: x + jnp.sum(u), (x, uneven)))
    for _ in range(2):
        assert parts_of(strategy, step(jnp.float32(1.0))) == [3.0, 2.0]


def test_empty_arrays_in_the_middle_of_a_program():
    strategy = mirrored(2)

    def replica_fn(x: Any) -> Any:
        nothing = x[:0]
        joined = context().all_gather(nothing, axis=0)
        total = context().all_reduce("SUM", nothing)
        return x + jnp.sum(joined) + jnp.sum(total), nothing

    result, nothing = rx.function(lambda x: strategy.run(replica_fn, (x,)))(jnp.ones(3))
    np.testing.assert_allclose(parts_of(strategy, result), np.ones((2, 3)))
    assert parts_of(strategy, nothing)[1].shape == (0,)


def test_a_variable_that_replicas_return_is_each_ones_copy():
    strategy = mirrored(2)
    with strategy.scope():
        own = rx.Variable(
            0.0,
            synchronization=rx.VariableSynchronization.ON_READ,
            aggregation=rx.VariableAggregation.SUM,
        )
        shared = rx.Variable(0.0, aggregation=rx.VariableAggregation.SUM)

    def replica_fn() -> Any:
        context: Any = rx.get_replica_context()
        number = context.replica_id_in_sync_group + 1.0
        return own.assign(number), shared.assign(number)

    compiled = rx.function(lambda: strategy.run(replica_fn))
    for call in (lambda: strategy.run(replica_fn), compiled, compiled):
        found = [strategy.experimental_local_results(each) for each in call()]
        assert [[float(part) for part in parts] for parts in found] == [[1, 2], [3, 3]]


@pytest.mark.parametrize("aggregation", ["NONE", "SUM"])
def test_a_variable_that_replicas_return_is_not_read_for_all(aggregation: Any):
    strategy = mirrored(2)
    with strategy.scope():
        own = rx.Variable(
            0.0, synchronization=rx.VariableSynchronization.ON_READ, aggregation=aggregation
        )
    compiled = rx.function(lambda: strategy.run(lambda: own.assign_add(1.0)))
    for number in (1.0, 2.0):
        assert parts_of(strategy, compiled()) == [number, number]
    assert not compiled.explain().collectives
