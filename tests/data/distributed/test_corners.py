"""Corners of distributing that were rough once."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.pipelines import POLICY, all_workers, text_files, with_policy
from tests.under_test import cpus

Dataset: Any = rx.data.Dataset


def parts(strategy: Any, value: Any) -> Any:
    return jax.tree.map(np.asarray, strategy.experimental_local_results(value))


def test_batches_of_other_sizes_side_by_side():
    labelled = Dataset.range(4, output_type=np.int32).repeat().batch(4)
    unlabelled = Dataset.range(11, output_type=np.int32).batch(8)
    strategy = rx.distribute.MirroredStrategy(cpus(2))
    distributed = strategy.experimental_distribute_dataset(Dataset.zip((labelled, unlabelled)))
    found = [
        [[array.tolist() for array in part] for part in parts(strategy, value)]
        for value in distributed
    ]
    assert found == [
        [[[0, 1], [0, 1, 2, 3]], [[2, 3], [4, 5, 6, 7]]],
        [[[0, 1], [8, 9]], [[2, 3], [10]]],
    ]


@pytest.mark.parametrize("replicas", [1, 2])
def test_text_beside_a_compiled_step(replicas: int):
    strategy = rx.distribute.MirroredStrategy(cpus(replicas))
    dataset = Dataset.from_tensor_slices({"x": np.ones(8, np.float32), "id": list("abcdefgh")})
    distributed = strategy.experimental_distribute_dataset(dataset.batch(4))

    @rx.function(input_signature=[distributed.element_spec])
    def step(element: Any) -> Any:
        def replica_fn(element: Any) -> Any:
            return jnp.sum(element["x"])

        return strategy.reduce("SUM", strategy.run(replica_fn, args=(element,)), axis=None)

    assert [float(step(element)) for element in distributed] == [4.0, 4.0]


def test_functions_run_on_the_device_of_the_strategy():
    strategy = rx.distribute.OneDeviceStrategy("CPU:1")
    dataset = Dataset.range(4, output_type=np.int32).batch(2).map(lambda x: x + 1, on_device=True)
    (first, second) = strategy.experimental_distribute_dataset(dataset)
    assert first.devices() == second.devices() == {jax.devices()[1]}
    assert second.tolist() == [3, 4]


@pytest.mark.parametrize("replicas", [1, 2])
def test_functions_on_the_device_are_compiled_once_for_all_epochs(replicas: int):
    traces: list[Any] = []

    def traced(x: Any) -> Any:
        traces.append(x.shape)
        return x * 2

    rows = Dataset.range(8, output_type=np.int32).map(traced, on_device=True)
    dataset = rows.shuffle(8).repeat(2).batch(4).take(3)
    strategy = rx.distribute.MirroredStrategy(cpus(replicas))
    distributed = strategy.experimental_distribute_dataset(dataset)
    for _ in range(3):
        for value in distributed:
            assert all((part % 2 == 0).all() for part in parts(strategy, value))
    assert len(traces) == 1


def test_a_function_on_the_device_that_returns_nothing():
    strategy = rx.distribute.MirroredStrategy(cpus(2))
    dataset = Dataset.range(4, output_type=np.int32).batch(4).map(lambda x: None, on_device=True)
    with pytest.raises(TypeError, match="returned None"):
        next(iter(strategy.experimental_distribute_dataset(dataset)))


def test_workers_with_files_of_their_own_cache_apart(tmp_path: Path):
    names = text_files(tmp_path, 4, 4)
    file = str(tmp_path / "cache")

    def make() -> Any:
        return with_policy(rx.data.TextLineDataset(names).cache(file).batch(4), POLICY.FILE)

    for _ in range(2):  # the second time from the cache
        found, _ = all_workers(make, 1, 2)
        rows = sorted(
            int(row) for steps in found for step in steps for part in step for row in part
        )
        assert rows == list(range(8))


def test_operations_come_before_distributing():
    strategy = rx.distribute.MirroredStrategy(cpus(2))
    distributed: Any = strategy.experimental_distribute_dataset(Dataset.range(4).batch(2))
    with pytest.raises(AttributeError, match=r"call \.take\(\.\.\.\) on the data set before"):
        distributed.take(1)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("compiled", [False, True])
def test_the_next_batch_is_not_taken_by_replicas(replicas: int, compiled: bool):
    strategy = rx.distribute.MirroredStrategy(cpus(replicas))
    dataset = Dataset.range(8, output_type=np.int32).batch(4)
    iterator = iter(strategy.experimental_distribute_dataset(dataset))

    def replica_fn() -> Any:
        return next(iterator)

    def step() -> Any:
        return strategy.run(replica_fn)

    with pytest.raises(rx.errors.WrongContextError, match=r"take it outside"):
        (rx.function(step) if compiled else step)()
    assert jnp.sum(strategy.gather(next(iterator), axis=0)) == 6
