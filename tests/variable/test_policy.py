"""Synchronization and aggregation: what an update by replicas means."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import replicax as rx
from tests.replicas import by_replica, mirrored, parts_of, several_replicas

ON_READ = rx.VariableSynchronization.ON_READ

KINDS = ["assign", "assign_add", "assign_sub"]


def apply(kind: str, old: Any, new: Any) -> Any:
    return {"assign": new, "assign_add": old + new, "assign_sub": old - new}[kind]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("aggregation", ["SUM", "MEAN", "ONLY_FIRST_REPLICA"])
def test_replicas_update_a_mirrored_variable(
    strategy: Any, executor: Any, kind: str, aggregation: str
):
    with strategy.scope():
        v = rx.Variable([10.0, 20.0], aggregation=aggregation)
    count = strategy.num_replicas_in_sync

    def step(x: Any) -> Any:
        getattr(v, kind)(x)
        return v.read_value()

    x = by_replica(strategy, lambda index: jnp.array([1.0, index + 1]))
    result = executor.run(strategy, step, (x,))
    parts = np.array([[1.0, index + 1] for index in range(count)])
    merged = {
        "SUM": parts.sum(axis=0),
        "MEAN": parts.mean(axis=0),
        "ONLY_FIRST_REPLICA": parts[0],
    }[aggregation]
    expected = apply(kind, np.array([10.0, 20.0]), merged)
    np.testing.assert_allclose(v.numpy(), expected, rtol=1e-6)
    for part in [*parts_of(strategy, result), *parts_of(strategy, v)]:
        np.testing.assert_allclose(part, expected, rtol=1e-6)


@several_replicas
@pytest.mark.parametrize("kind", KINDS)
def test_no_aggregation_is_refused_in_replicas_and_fine_outside(strategy: Any, kind: str):
    with strategy.scope():
        v = rx.Variable(1.0)
    with pytest.raises(rx.errors.AggregationError, match="aggregation="):
        strategy.run(lambda: getattr(v, kind)(1.0))
    getattr(v, kind)(2.0)
    assert v.numpy() == apply(kind, 1.0, 2.0)


@several_replicas
def test_a_literal_counts_once_per_replica(strategy: Any, executor: Any):
    with strategy.scope():
        total = rx.Variable(0.0, aggregation="SUM")
        mean = rx.Variable(0.0, aggregation="MEAN")
        first = rx.Variable(0.0, aggregation="ONLY_FIRST_REPLICA")

    def step() -> None:
        for v in (total, mean, first):
            v.assign_add(2.0)

    executor.run(strategy, step)
    expected = [2.0 * strategy.num_replicas_in_sync, 2.0, 2.0]
    assert [v.numpy() for v in (total, mean, first)] == expected


@several_replicas
def test_mean_of_an_integer_variable_is_refused(strategy: Any):
    with pytest.raises(rx.errors.AggregationError, match="mean of integers"), strategy.scope():
        rx.Variable(1, aggregation="MEAN")


# --- sync on read ---------------------------------------------------------------------------------

NUMBERS = st.lists(st.integers(-20, 20), min_size=3, max_size=3)


@settings(max_examples=12)
@given(NUMBERS, NUMBERS, st.sampled_from(["SUM", "MEAN", "ONLY_FIRST_REPLICA"]))
def test_a_read_aggregates_what_the_replicas_have(
    first: list[int], second: list[int], aggregation: str
):
    strategy = mirrored(3)
    with strategy.scope():
        v = rx.Variable(0.0, synchronization=ON_READ, aggregation=aggregation)

    def step(x: Any, y: Any) -> Any:
        v.assign(x)
        v.assign_add(y)
        v.assign_sub(1.0)
        return v.read_value()

    x = rx.distribute.PerReplica([jnp.float32(number) for number in first])
    y = rx.distribute.PerReplica([jnp.float32(number) for number in second])
    own = parts_of(strategy, strategy.run(step, (x, y)))
    expected = [a + b - 1.0 for a, b in zip(first, second, strict=True)]
    assert own == expected == parts_of(strategy, v)
    whole = {
        "SUM": sum(expected),
        "MEAN": sum(expected) / 3,
        "ONLY_FIRST_REPLICA": expected[0],
    }[aggregation]
    np.testing.assert_allclose(v.numpy(), whole, rtol=1e-5, atol=1e-5)
    with strategy.scope():
        np.testing.assert_allclose(v.read_value(), whole, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(strategy.extended.read_var(v), whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("aggregation", ["SUM", "MEAN", "ONLY_FIRST_REPLICA"])
def test_an_assignment_from_outside_is_read_back(strategy: Any, aggregation: str):
    with strategy.scope():
        v = rx.Variable([0.0, 0.0], synchronization=ON_READ, aggregation=aggregation)
        v.assign([12.0, 24.0])
    np.testing.assert_allclose(v.numpy(), [12, 24], rtol=1e-6)
    share = strategy.num_replicas_in_sync if aggregation == "SUM" else 1
    for part in parts_of(strategy, v):
        np.testing.assert_allclose(part, [12 / share, 24 / share], rtol=1e-6)


def test_integers_lose_the_remainder():
    strategy = mirrored(3)
    with strategy.scope():
        v = rx.Variable(0, synchronization=ON_READ, aggregation="SUM")
        for value, read in ((10, 9), (-10, -9), (12, 12)):
            v.assign(value)
            assert v.numpy() == read


def test_the_initial_value_is_whole_in_each_copy(strategy: Any):
    with strategy.scope():
        v = rx.Variable(3.0, synchronization=ON_READ, aggregation="SUM")
    assert v.numpy() == 3.0 * strategy.num_replicas_in_sync


@several_replicas
def test_adding_from_outside(strategy: Any):
    with strategy.scope():
        for aggregation in ("MEAN", "ONLY_FIRST_REPLICA"):
            v = rx.Variable(1.0, synchronization=ON_READ, aggregation=aggregation)
            v.assign_add(2.0)
            assert v.numpy() == 3.0
        v = rx.Variable(1.0, synchronization=ON_READ, aggregation="SUM")
        with pytest.raises(rx.errors.AggregationError, match="once per replica"):
            v.assign_add(2.0)
        v = rx.Variable(1.0, synchronization=ON_READ, aggregation="NONE")
        v.assign_sub(2.0)
        with pytest.raises(rx.errors.AggregationError, match="Reading"):
            v.numpy()
        assert parts_of(strategy, v) == [-1.0] * strategy.num_replicas_in_sync


def test_properties(strategy: Any):
    in_scope = strategy is not rx.distribute.get_strategy()
    with strategy.scope():
        v = rx.Variable(1.0)
        s = rx.Variable(1.0, synchronization=ON_READ, aggregation="SUM")
    if strategy.num_replicas_in_sync > 1:
        assert v.synchronization is rx.VariableSynchronization.ON_WRITE
    assert s.synchronization is rx.VariableSynchronization.ON_READ
    assert (v.trainable, s.trainable) == (True, False)
    assert s.aggregation is rx.VariableAggregation.SUM
    assert strategy.extended.variable_created_in_scope(v)
    assert not in_scope or v.distribute_strategy is strategy


def test_names_mean_the_same_as_members(strategy: Any):
    with strategy.scope():
        by_name = rx.Variable(1.0, synchronization="on_read", aggregation="sum")  # type: ignore
        by_member = rx.Variable(
            1.0, synchronization=ON_READ, aggregation=rx.VariableAggregation.SUM
        )
    assert type(by_name) is type(by_member)
    assert by_name.synchronization is ON_READ and not by_name.trainable
    assert by_name.numpy() == by_member.numpy()


def test_bad_names_are_refused():
    with pytest.raises(ValueError, match="rx.VariableAggregation.SUM"):
        rx.Variable(1.0, aggregation="MEDIAN")
    with pytest.raises(ValueError, match="rx.VariableSynchronization"):
        rx.Variable(1.0, synchronization=7)
