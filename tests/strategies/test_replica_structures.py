"""Structures that replicas bring to a meeting, and arguments that they share."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import optax
import pytest

import replicax as rx
from tests.replicas import context, mirrored


def by_replica(*values: Any) -> Any:
    return values[rx.get_replica_context().replica_id_in_sync_group]  # type: ignore[union-attr]


def test_dicts_are_combined_by_key_whatever_their_order():
    def step() -> Any:
        own = by_replica({"b": 20.0, "a": [10.0]}, {"a": [1.0], "b": 2.0})
        return rx.get_replica_context().all_reduce("SUM", own)  # type: ignore[union-attr]

    result = mirrored(2).run(step)
    assert [float(x) for x in result["a"][0].values] == [11.0, 11.0]
    assert [float(x) for x in result["b"].values] == [22.0, 22.0]


def test_gathered_dicts_are_joined_by_key():
    def step() -> Any:
        own = by_replica(
            {"b": jnp.zeros(1), "a": jnp.ones(1)}, {"a": jnp.ones(2), "b": jnp.zeros(2)}
        )
        return rx.get_replica_context().all_gather(own, axis=0)  # type: ignore[union-attr]

    result = mirrored(2).run(step)
    assert all(part.tolist() == [1.0] * 3 for part in result["a"].values)
    assert all(part.tolist() == [0.0] * 3 for part in result["b"].values)


@pytest.mark.parametrize(
    "other", [{"z": 1.0}, [1.0], (1.0,), {"a": [1.0]}, {"a": 1.0, "b": 1.0}, 1.0]
)
def test_different_structures_do_not_meet(other: Any):
    def step() -> Any:
        own = by_replica({"a": 1.0}, other)
        return rx.get_replica_context().all_reduce("SUM", own)  # type: ignore[union-attr]

    with pytest.raises(rx.errors.ReplicaMismatchError, match="all_reduce"):
        mirrored(2).run(step)


def test_apply_pairs_gradients_and_variables_by_key():
    a, b = rx.Variable(1.0), rx.Variable(1.0)
    optimizer = rx.Optimizer(optax.sgd(1.0))
    optimizer.apply({"b": jnp.float32(100.0), "a": jnp.float32(1.0)}, {"a": a, "b": b})
    assert (float(a), float(b)) == (0.0, -99.0)
    with pytest.raises(ValueError, match="value_and_grad returned"):
        optimizer.apply({"x": jnp.float32(1.0), "y": jnp.float32(1.0)}, {"a": a, "b": b})


@dataclasses.dataclass
class State:
    step: int = 0
    later: int = dataclasses.field(init=False)


@pytest.mark.parametrize("devices", [(0,), (0, 1)])
def test_an_argument_without_replica_values_arrives_as_it_is(devices: Any):
    state, seen = State(), []

    def step(given: State, items: list[int]) -> None:
        given.step += 1
        items.append(given.step)

    mirrored(len(devices)).run(step, args=(state, seen))
    assert state.step == len(devices)
    assert seen == list(range(1, len(devices) + 1))


def test_a_distributed_variable_can_be_assigned_to_any_other():
    strategy = mirrored(2)
    with strategy.scope():
        total = rx.Variable(0.0, synchronization="ON_READ", aggregation="SUM")
        weight = rx.Variable(3.0)
    total.assign(weight)
    assert float(total.read_value()) == 3.0
    strategy.run(lambda: total.assign_add(weight))
    assert float(total.read_value()) == 9.0


def test_replicas_with_different_objects_are_told_so():
    strategy = mirrored(2)
    with strategy.scope():
        optimizers = [rx.Optimizer(optax.sgd(0.1)) for _ in range(2)]
        w = rx.Variable(1.0)

    def step() -> None:
        optimizers[context().replica_id_in_sync_group].apply_gradients([(1.0, w)])

    with pytest.raises(rx.errors.ReplicaMismatchError, match="different objects"):
        strategy.run(step)
