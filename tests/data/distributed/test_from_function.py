"""`distribute_datasets_from_function`: a data set for each worker, or for each replica."""

from typing import Any

import jax
import numpy as np
import pytest

import replicax as rx
from replicax._src.data.distributed import InputLayout, distributed_from_function
from tests.old_names import warns_of
from tests.pipelines import ON_HOST, Dataset, flat, shares
from tests.replicas import mirrored, several_replicas

PER_REPLICA = rx.distribute.InputReplicationMode.PER_REPLICA


def steps_of(distributed: Any) -> list[Any]:
    return [shares(value) for value in distributed]


def test_replicas_take_successive_batches():
    strategy = mirrored(4)
    made = strategy.distribute_datasets_from_function(lambda context: Dataset.range(10).batch(3))
    assert steps_of(made) == [[[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]]
    short = strategy.distribute_datasets_from_function(lambda context: Dataset.range(17).batch(3))
    assert steps_of(short)[1] == [[12, 13, 14], [15, 16], [], []]
    assert len(short) == 2


def test_elements_of_one_shape_come_in_whole_steps_only():
    strategy = mirrored(4)
    made = strategy.distribute_datasets_from_function(lambda c: Dataset.range(10).batch(2, True))
    assert steps_of(made) == [[[0, 1], [2, 3], [4, 5], [6, 7]]] and len(made) == 1
    single = strategy.distribute_datasets_from_function(lambda c: Dataset.range(10))
    assert steps_of(single) == [[0, 1, 2, 3], [4, 5, 6, 7]] and len(single) == 2


@pytest.mark.parametrize("size", [4, 5])
def test_data_sets_of_two_shapes_in_a_row_are_not_of_one(size: int):
    def made(context: Any) -> Any:
        return Dataset.range(8).batch(4, True).concatenate(Dataset.range(size).batch(size, True))

    steps = steps_of(mirrored(2).distribute_datasets_from_function(made))
    assert steps == [[[0, 1, 2, 3], [4, 5, 6, 7]], [[0, 1, 2, 3, 4], []]][: size - 3]


def test_the_function_is_told_who_reads(strategy: Any):
    contexts: list[Any] = []

    def make(context: Any) -> Any:
        contexts.append(context)
        size = context.get_per_replica_batch_size(24)
        shard = (context.num_input_pipelines, context.input_pipeline_id)
        return Dataset.range(48).batch(size).shard(*shard)

    made = strategy.distribute_datasets_from_function(make)
    (context,) = contexts
    replicas = strategy.num_replicas_in_sync
    assert (context.num_input_pipelines, context.input_pipeline_id) == (1, 0)
    assert context.num_replicas_in_sync == replicas
    found = steps_of(made)
    assert flat(found) == list(range(48)) and len(found) == 2
    with warns_of("Strategy.experimental_distribute_datasets_from_function"):
        older = strategy.experimental_distribute_datasets_from_function(make)
    assert steps_of(older) == found


@several_replicas
def test_a_data_set_for_each_replica(strategy: Any):
    contexts: list[Any] = []
    replicas = strategy.num_replicas_in_sync

    def make(context: Any) -> Any:
        contexts.append(context)
        first = 100 * context.input_pipeline_id
        return Dataset.range(first, first + 4).batch(2)

    options = rx.distribute.InputOptions(experimental_replication_mode=PER_REPLICA)
    made = strategy.distribute_datasets_from_function(make, options)
    assert [context.input_pipeline_id for context in contexts] == list(range(replicas))
    assert all(context.num_input_pipelines == replicas for context in contexts)
    assert steps_of(made) == [
        [[100 * r, 100 * r + 1] for r in range(replicas)],
        [[100 * r + 2, 100 * r + 3] for r in range(replicas)],
    ]
    assert len(made) == 2


def test_data_sets_of_different_lengths_for_each_replica():
    strategy = mirrored(2)
    options = rx.distribute.InputOptions(experimental_replication_mode=PER_REPLICA)

    def make(context: Any) -> Any:
        return Dataset.range(2 + 4 * context.input_pipeline_id).batch(2)

    made = strategy.distribute_datasets_from_function(make, options)
    assert steps_of(made) == [[[0, 1], [0, 1]], [[], [2, 3]], [[], [4, 5]]]
    assert len(made) == 3


def test_a_data_set_on_each_replicas_device():
    strategy = mirrored(2)
    options = rx.distribute.InputOptions(
        experimental_fetch_to_device=False,
        experimental_replication_mode=PER_REPLICA,
        experimental_place_dataset_on_device=True,
    )
    made = strategy.distribute_datasets_from_function(lambda c: Dataset.range(4).batch(2), options)
    for value in made:
        devices = [next(iter(part.devices())) for part in value.values]
        assert devices == jax.devices("cpu")[:2]


def test_workers_have_their_own_pipelines():
    layout = InputLayout(tuple(jax.devices("cpu")[:2]), workers=3, worker=2)
    contexts: list[Any] = []

    def make(context: Any) -> Any:
        contexts.append(context)
        return Dataset.range(24).shard(3, context.input_pipeline_id).batch(2, drop_remainder=True)

    made = distributed_from_function(make, layout, ON_HOST)
    (context,) = contexts
    assert (context.num_input_pipelines, context.input_pipeline_id) == (3, 2)
    assert context.num_replicas_in_sync == 6
    assert steps_of(made) == [[[2, 5], [8, 11]], [[14, 17], [20, 23]]]


def test_specs():
    strategy = mirrored(2)
    make = strategy.distribute_datasets_from_function
    even = make(lambda c: Dataset.range(8).batch(2, True)).element_spec
    assert even.shape == (2,)
    assert make(lambda c: Dataset.range(8).batch(2)).element_spec.shape == (None,)
    assert make(lambda c: Dataset.range(8)).element_spec.shape == ()
    alone = rx.distribute.OneDeviceStrategy("CPU:0")
    spec = alone.distribute_datasets_from_function(lambda c: Dataset.range(8).batch(2)).element_spec
    assert spec == rx.TensorSpec([None], "int32")


def test_states_continue():
    strategy = mirrored(2)
    per_replica = rx.distribute.InputOptions(experimental_replication_mode=PER_REPLICA)
    for options in (None, per_replica):
        for shuffle in ({"seed": 1}, {}):

            def distribute(options: Any = options, shuffle: Any = shuffle) -> Any:
                return strategy.distribute_datasets_from_function(
                    lambda c: Dataset.range(12).shuffle(12, **shuffle).batch(2), options
                )

            iterator = iter(distribute())
            next(iterator)
            state = iterator.get_state()
            rest = steps_of(iterator)
            again = iter(distribute())
            again.set_state(state)
            assert steps_of(again) == rest, (options, shuffle)


def test_a_state_of_another_number_of_replicas_is_refused():
    def iterator(strategy: Any) -> Any:
        return iter(
            strategy.distribute_datasets_from_function(lambda c: Dataset.range(12).batch(2))
        )

    state = iterator(mirrored(2)).get_state()
    with pytest.raises(ValueError, match="replicas.*2.*replicas.*3"):
        iterator(mirrored(3)).set_state(state)
    with pytest.raises(ValueError, match="replicas"):
        iterator(rx.distribute.OneDeviceStrategy("CPU:0")).set_state(state)


def test_replicas_that_make_different_elements():
    options = rx.distribute.InputOptions(experimental_replication_mode=PER_REPLICA)

    def make(context: Any) -> Any:
        rows: Any = {"x": np.arange(4)} if context.input_pipeline_id else {"y": np.arange(4)}
        return Dataset.from_tensor_slices(rows).batch(2)

    with pytest.raises((TypeError, ValueError), match="(?i)structure|alike|same"):
        list(mirrored(2).distribute_datasets_from_function(make, options))


def test_foreign_data_sets_from_functions():
    batches = [np.arange(2, dtype=np.int32) + 2 * step for step in range(4)]
    strategy = mirrored(2)
    made = strategy.distribute_datasets_from_function(lambda context: iter(batches))
    assert steps_of(made) == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    with pytest.raises(TypeError, match="from_tensor_slices"):
        strategy.distribute_datasets_from_function(lambda context: np.arange(4))


def test_each_replicas_functions_run_on_its_device():
    options = rx.distribute.InputOptions(experimental_replication_mode=PER_REPLICA)

    def make(context: Any) -> Any:
        number = context.input_pipeline_id
        return Dataset.range(4).batch(2).map(lambda x: x + 100 * number, on_device=True)

    made = mirrored(2).distribute_datasets_from_function(make, options)
    assert steps_of(made) == [[[0, 1], [100, 101]], [[2, 3], [102, 103]]]


def test_elements_of_different_shapes_are_not_lost():
    def lists(count: int) -> Any:
        return Dataset.range(count).map(lambda n: np.arange(n + 1, dtype=np.int32))

    made = mirrored(2).distribute_datasets_from_function(lambda context: lists(3))
    assert steps_of(made) == [[[0], [0, 1]], [[0, 1, 2], []]]


def test_errors_in_the_function_come_out_at_once():
    def broken(context: Any) -> Any:
        raise KeyError("in the function")

    with pytest.raises(KeyError, match="in the function"):
        mirrored(2).distribute_datasets_from_function(broken)
