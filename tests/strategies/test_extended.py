"""`StrategyExtended`: updates, destinations, and strategies of the user's own."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from tests.replicas import by_replica, context, mirrored, on_devices, parts_of, several_replicas


@pytest.mark.parametrize("group", [True, False])
def test_update_reaches_every_copy(strategy: Any, group: bool):
    with strategy.scope():
        v = rx.Variable([1.0, 2.0])
        amount = strategy.extended.broadcast_to(jnp.array([1.0, 1.0]), v)
        seen = []

        def add(copy: Any, x: Any, *, scale: float) -> Any:
            seen.append(copy.device)
            assert rx.distribute.in_cross_replica_context() or not rx.distribute.has_strategy()
            assert isinstance(x, jax.Array)
            copy.assign_add(x * scale)
            return copy.read_value()

        result = strategy.extended.update(
            v, add, args=(amount,), kwargs={"scale": 3.0}, group=group
        )
    np.testing.assert_array_equal(v.numpy(), [4, 5])
    copies = strategy.experimental_local_results(v)
    assert seen == [part.device for part in copies]
    if not group:
        assert isinstance(result, tuple) and len(result) == len(copies)
    for part in result if not group else strategy.experimental_local_results(result):
        np.testing.assert_array_equal(part, [4, 5])


@several_replicas
def test_update_refuses_per_replica_arguments(strategy: Any):
    with strategy.scope():
        v = rx.Variable(1.0)
        value = by_replica(strategy, lambda index: jnp.float32(index))
        with pytest.raises(ValueError, match="reduce_to"):
            strategy.extended.update(v, lambda copy, x: copy.assign(x), args=(value,))


@several_replicas
def test_the_four_steps_of_an_optimizer_by_hand(strategy: Any, executor: Any):
    with strategy.scope():
        v, w = rx.Variable([1.0, 1.0]), rx.Variable(2.0)

    def apply(merging: Any, gradients: Any) -> None:
        reduced = merging.extended.batch_reduce_to(
            rx.distribute.ReduceOp.SUM, list(zip(gradients, (v, w), strict=True))
        )
        for variable, gradient in zip((v, w), reduced, strict=True):
            merging.extended.update(
                variable, lambda copy, g: copy.assign_sub(0.5 * g), args=(gradient,)
            )

    def step(x: Any) -> None:
        context().merge_call(apply, ([x * jnp.ones(2), x],))

    x = by_replica(strategy, lambda index: jnp.float32(index + 1))
    executor.run(strategy, step, (x,))
    total = sum(range(1, strategy.num_replicas_in_sync + 1))
    np.testing.assert_allclose(v.numpy(), [1 - 0.5 * total] * 2)
    np.testing.assert_allclose(w.numpy(), 2 - 0.5 * total)


def test_reduce_to_destinations(strategy: Any):
    count = strategy.num_replicas_in_sync
    with strategy.scope():
        v = rx.Variable(0.0)
        value = on_devices(strategy, [jnp.float32(i) for i in range(count)])
        for op, expected in (("SUM", sum(range(count))), ("MEAN", sum(range(count)) / count)):
            for destination in (v, value, "CPU:4", ["CPU:3", "CPU:4"], jax.devices()[5]):
                result = strategy.extended.reduce_to(op, value, destination)
                for part in strategy.experimental_local_results(result):
                    np.testing.assert_allclose(part, expected, rtol=1e-6)
        placed = strategy.extended.reduce_to("SUM", value, ["CPU:3", "CPU:4"])
        assert [part.devices() for part in placed.values] == [{d} for d in jax.devices()[3:5]]


@several_replicas
def test_non_slot_variables(strategy: Any):
    with strategy.scope():
        v = rx.Variable(1.0)
        place = strategy.extended.non_slot_devices([v])
        with strategy.extended.colocate_vars_with(place):
            power = rx.Variable(1.0)
        strategy.extended.update_non_slot(place, lambda: power.assign(power * 0.5))
    assert all(part == 0.5 for part in parts_of(strategy, power))


def test_the_container_of_a_copy(strategy: Any):
    with strategy.scope():
        v = rx.Variable(1.0)
        seen = []
        strategy.extended.update(v, lambda copy: seen.append(copy))
    for copy in seen:
        assert strategy.extended.value_container(copy) is v
    assert strategy.extended.value_container(3) == 3


def test_call_for_each_replica_is_run(strategy: Any):
    result = strategy.extended.call_for_each_replica(
        lambda x, y: x + y + context().replica_id_in_sync_group, (1,), {"y": 2}
    )
    found = strategy.experimental_local_results(result)
    assert list(found) == [3 + index for index in range(strategy.num_replicas_in_sync)]


# --- strategies of the user's own -----------------------------------------------------------------


class PairExtended(rx.distribute.StrategyExtended):
    """Two replicas on devices of its own choice."""

    @property
    def worker_devices(self) -> tuple[str, ...]:
        return ("CPU:3", "CPU:6")


class PairStrategy(rx.distribute.Strategy):
    def __init__(self) -> None:
        super().__init__(PairExtended(self))


@pytest.mark.parametrize("make", [PairStrategy, lambda: rx.distribute.Strategy(PairExtended(None))])
def test_a_strategy_that_only_names_its_devices(make: Any):
    strategy = make()
    assert strategy.num_replicas_in_sync == 2
    with strategy.scope():
        v = rx.Variable(1.0, aggregation="SUM")
        optimizer = rx.Optimizer(optax.sgd(0.1))
        metric = rx.metrics.Mean()
    assert [part.device[-5:] for part in v.values] == ["CPU:3", "CPU:6"]

    def step(x: Any) -> Any:
        metric.update_state(x)
        loss, gradients = rx.value_and_grad(lambda: v * x, [v])
        optimizer.apply_gradients(zip(gradients, [v], strict=True))
        v.assign_add(context().all_reduce("SUM", x))
        return loss

    x = by_replica(strategy, lambda index: jnp.float32(index + 1))
    loss = strategy.run(step, (x,))
    assert [part.devices() for part in loss.values] == [{jax.devices()[3]}, {jax.devices()[6]}]
    np.testing.assert_allclose(v.numpy(), 1 - 0.3 + 6)
    assert metric.result() == 1.5
    np.testing.assert_allclose(strategy.reduce("SUM", loss, axis=None), 3.0)


def test_a_bare_extended_is_a_strategy_of_one_replica():
    strategy = rx.distribute.Strategy(rx.distribute.StrategyExtended(None))
    assert strategy.num_replicas_in_sync == 1
    with strategy.scope():
        v = rx.Variable(2.0, aggregation="SUM")
    strategy.run(lambda: v.assign_add(context().all_reduce("SUM", 3.0)))
    assert v.numpy() == 5.0


def test_hooks_that_are_overridden_are_used():
    calls: list[str] = []

    class Watched(PairExtended):
        def _call_for_each_replica(self, fn: Any, args: Any, kwargs: Any) -> Any:
            calls.append("run")
            return super()._call_for_each_replica(fn, args, kwargs)

        def _batch_reduce_to(self, *args: Any) -> Any:
            calls.append("batch_reduce_to")
            return super()._batch_reduce_to(*args)

        def _make_variable(self, next_creator: Any, **kwargs: Any) -> Any:
            calls.append("variable")
            return super()._make_variable(next_creator, **kwargs)

        def _update(self, *args: Any) -> Any:
            calls.append("update")
            return super()._update(*args)

    strategy = rx.distribute.Strategy(Watched(None))
    with strategy.scope():
        v = rx.Variable(1.0)
        strategy.extended.update(v, lambda copy: copy.assign(2.0))
    strategy.run(lambda: context().all_reduce("SUM", 1.0))
    strategy.reduce("SUM", rx.distribute.PerReplica([1.0, 2.0]), axis=None)
    assert calls == ["variable", "update", "run", "batch_reduce_to", "batch_reduce_to"]


def test_properties_of_extended(strategy: Any):
    extended = strategy.extended
    assert extended.experimental_between_graph is False
    assert extended.experimental_require_static_shapes is False
    assert extended.experimental_should_init is True
    assert extended.should_checkpoint is True and extended.should_save_summary is True
    assert len(extended.worker_devices) == strategy.num_replicas_in_sync
    assert all(name.startswith("/job:localhost") for name in extended.parameter_devices)
    assert strategy.cluster_resolver is None


def test_two_strategies_do_not_mix_their_variables():
    first, second = mirrored(2), mirrored(2)
    with first.scope():
        v = rx.Variable(1.0)
    assert first.extended.variable_created_in_scope(v)
    assert not second.extended.variable_created_in_scope(v)


def test_an_update_in_replica_context_is_one_of_all_replicas(strategy: Any, executor: Any):
    with strategy.scope():
        v = rx.Variable(1.0)
    calls: list[Any] = []

    def add(copy: Any, x: Any, scale: Any) -> Any:
        calls.append(copy)
        return copy.assign_add(x * scale).read_value()

    def step() -> Any:
        return strategy.extended.update(v, add, args=(2.0,), kwargs={"scale": 3.0})

    for part in parts_of(strategy, executor.run(strategy, step)):
        assert float(part) == 7.0
    assert float(v.numpy()) == 7.0
    if executor.name == "eager":
        assert len(calls) == len(strategy.extended._devices_of(v))


@several_replicas
def test_an_update_in_replica_context_without_grouping(strategy: Any):
    with strategy.scope():
        v = rx.Variable(1.0)

    def step() -> Any:
        add = strategy.extended.update(v, lambda copy: copy.assign_add(1.0).value(), group=False)
        return len(add)

    assert strategy.run(step) == len(strategy.extended._devices_of(v))
    assert float(v.numpy()) == 2.0


@pytest.mark.parametrize("name", ["SUM", "MEAN"])
def test_a_reduction_from_an_aggregation(name: str):
    found = rx.distribute.ReduceOp.from_variable_aggregation(rx.VariableAggregation[name])
    assert found is rx.distribute.ReduceOp[name]


def test_a_variable_in_the_scope_of_another_strategy(strategy: Any):
    with strategy.scope():
        v = rx.Variable(2.0)
    other = mirrored(2)
    with other.scope():  # as in TensorFlow: used as a number it is one; asked for its value, not
        assert float(v * 2) == 4.0
    assert [float(x) for x in parts_of(other, other.run(lambda: v * 2))] == [4.0, 4.0]
    assert float(v.numpy()) == 2.0
