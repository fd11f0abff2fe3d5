"""`InputOptions` and `InputContext`: their fields, their defaults, and what they refuse."""

from typing import Any

import numpy as np
import pytest

import replicax as rx
from tests.pipelines import Dataset, shares
from tests.replicas import mirrored

MODE = rx.distribute.InputReplicationMode


def test_the_fields_of_input_options_have_tensorflows_order_and_defaults():
    options = rx.distribute.InputOptions()
    assert options.experimental_fetch_to_device is True
    assert options.experimental_replication_mode is MODE.PER_WORKER
    assert options.experimental_place_dataset_on_device is False
    assert options.experimental_per_replica_buffer_size == 1
    given = rx.distribute.InputOptions(False, MODE.PER_REPLICA, True, 3)
    assert given.experimental_fetch_to_device is False
    assert given.experimental_replication_mode is MODE.PER_REPLICA
    assert given.experimental_place_dataset_on_device is True
    assert given.experimental_per_replica_buffer_size == 3
    assert given == rx.distribute.InputOptions(False, MODE.PER_REPLICA, True, 3)


def test_input_options_do_not_change():
    options: Any = rx.distribute.InputOptions()
    with pytest.raises(AttributeError):
        options.experimental_fetch_to_device = False


@pytest.mark.parametrize("size", [-1, 1.5, True, "2", None])
def test_buffers_that_are_none(size: Any):
    with pytest.raises((TypeError, ValueError), match="experimental_per_replica_buffer_size"):
        rx.distribute.InputOptions(experimental_per_replica_buffer_size=size)


def test_the_names_of_replication_modes():
    assert [mode.value for mode in MODE] == ["PER_WORKER", "PER_REPLICA"]


def test_an_input_context_tells_who_reads():
    context = rx.distribute.InputContext(
        num_input_pipelines=3, input_pipeline_id=1, num_replicas_in_sync=6
    )
    assert (context.num_input_pipelines, context.input_pipeline_id) == (3, 1)
    assert context.num_replicas_in_sync == 6
    assert context.get_per_replica_batch_size(12) == 2
    assert context.get_per_replica_batch_size(0) == 0
    for part in ("3", "1", "6"):
        assert part in repr(context)
    alone = rx.distribute.InputContext()
    assert (alone.num_input_pipelines, alone.input_pipeline_id) == (1, 0)
    assert alone.num_replicas_in_sync == 1


@pytest.mark.parametrize(("size", "example"), [(10, 12), (1, 4), (7, 8)])
def test_a_global_batch_that_does_not_divide(size: int, example: int):
    context = rx.distribute.InputContext(num_replicas_in_sync=4)
    with pytest.raises(ValueError, match=f"{size} is not divisible by the 4.*example {example}"):
        context.get_per_replica_batch_size(size)


@pytest.mark.parametrize("fetch", [True, False])
@pytest.mark.parametrize("buffer", [0, 1, 7])
@pytest.mark.parametrize("replicas", [1, 2])
def test_the_elements_are_the_same_under_all_options(fetch: bool, buffer: int, replicas: int):
    options = rx.distribute.InputOptions(
        experimental_fetch_to_device=fetch, experimental_per_replica_buffer_size=buffer
    )
    strategy = mirrored(replicas)
    rows = Dataset.from_tensor_slices((np.arange(10, dtype=np.int32), list("abcdefghij")))
    distributed = strategy.experimental_distribute_dataset(rows.batch(4), options)
    found = [[row for part in shares(x) for row in part] for x, _ in distributed]
    assert found == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    made = strategy.distribute_datasets_from_function(lambda c: rows.batch(5), options)
    rows_made = [row for x, _ in made for part in shares(x) for row in part]
    assert rows_made == list(range(10))


def test_a_context_is_printed_as_tensorflows_is():
    context = rx.distribute.InputContext(2, 1, 4)
    assert str(context) == "rx.distribute.InputContext(input pipeline id 1, total: 2)"
