"""`Strategy`: run, gather, values from functions, local results, placement."""

import copy
import gc
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.replicas import by_replica, context, mirrored, on_devices, parts_of, several_replicas

ON_READ = rx.VariableSynchronization.ON_READ


def test_run_takes_arguments_of_every_sort(strategy: Any, executor: Any):
    x = by_replica(strategy, lambda index: jnp.float32(index))

    def step(a: Any, b: Any, *, c: Any, d: Any) -> Any:
        return a + b["x"] + c[0] + d

    result = executor.run(strategy, step, (x, {"x": 10.0}), {"c": [x], "d": 100})
    expected = [2 * index + 110 for index in range(strategy.num_replicas_in_sync)]
    assert parts_of(strategy, result) == expected


def test_replica_work_happens_on_the_replicas_device(strategy: Any, executor: Any):
    result = executor.run(strategy, lambda: jnp.ones(2) + 1)
    for part, device in zip(
        strategy.experimental_local_results(result),
        strategy.extended._replica_devices,
        strict=True,
    ):
        assert part.devices() == {device}


def test_the_same_object_from_every_replica_is_that_object(strategy: Any, executor: Any):
    shared = jnp.ones(2)
    assert executor.run(strategy, lambda: shared) is shared
    assert strategy.experimental_local_results(shared) == (shared,)


def test_one_replica_gives_bare_results():
    strategy = mirrored(1)
    assert isinstance(strategy.run(lambda: jnp.ones(2)), jax.Array)
    value = strategy.experimental_distribute_values_from_function(lambda _: jnp.ones(2))
    assert isinstance(value, rx.distribute.PerReplica)


def test_values_from_a_function(strategy: Any):
    seen = []

    def make(each: Any) -> Any:
        seen.append((each.replica_id_in_sync_group, each.num_replicas_in_sync))
        return {"x": np.ones(2) * each.replica_id_in_sync_group}

    value = strategy.experimental_distribute_values_from_function(make)
    count = strategy.num_replicas_in_sync
    assert seen == [(index, count) for index in range(count)]
    assert isinstance(value["x"], rx.distribute.PerReplica)
    assert len(strategy.experimental_local_results(value["x"])) == count


@several_replicas
def test_merge_call_sees_values_and_each_replica_gets_its_part(strategy: Any, executor: Any):
    def merge(merging: Any, x: Any, *, y: Any) -> Any:
        assert rx.distribute.in_cross_replica_context()
        total = merging.reduce("SUM", x, axis=None)
        return {"own": x, "total": total, "y": y, "none": None}

    def step(x: Any) -> Any:
        result = context().merge_call(merge, (x,), {"y": 5})
        assert result["none"] is None and result["y"] == 5
        return result["own"] + result["total"]

    count = strategy.num_replicas_in_sync
    x = by_replica(strategy, lambda index: jnp.float32(index))
    result = parts_of(strategy, executor.run(strategy, step, (x,)))
    assert result == [index + sum(range(count)) for index in range(count)]


@several_replicas
def test_values_for_another_number_of_replicas(strategy: Any):
    value = rx.distribute.PerReplica([1.0] * (strategy.num_replicas_in_sync + 1))
    with pytest.raises(ValueError, match="components"):
        strategy.run(lambda x: x, (value,))
    with pytest.raises(ValueError, match="components"):
        strategy.run(lambda: context().merge_call(lambda s: value))


def test_sums_of_local_results_over_devices(strategy: Any, executor: Any):
    x = by_replica(strategy, lambda index: jnp.float32(index))
    result = executor.run(strategy, lambda x: x + 1, (x,))
    total = sum(strategy.experimental_local_results(result))
    assert total == sum(range(1, strategy.num_replicas_in_sync + 1))


def test_a_strategy_copies_to_itself_and_is_not_pickled(strategy: Any):
    assert copy.deepcopy({"s": strategy})["s"] is strategy
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(strategy)


def test_live_arrays_do_not_grow_over_eager_steps(strategy: Any):
    with strategy.scope():
        v = rx.Variable(jnp.zeros(3), aggregation="SUM")
        s = rx.Variable(0.0, synchronization=ON_READ, aggregation="SUM")

    def step(x: Any) -> Any:
        v.assign_add(x)
        s.assign_add(jnp.sum(x))
        return context().all_reduce("MEAN", x), context().all_gather(x, axis=0)

    def live_after(steps: int) -> int:
        for _ in range(steps):
            x = on_devices(strategy, [np.ones(3, np.float32)] * strategy.num_replicas_in_sync)
            total, joined = strategy.run(step, (x,))
            strategy.reduce("SUM", x, axis=0)
            v.numpy()
            s.numpy()
        del x, total, joined
        gc.collect()
        return len(jax.live_arrays())

    before = live_after(3)
    assert live_after(50) <= before
