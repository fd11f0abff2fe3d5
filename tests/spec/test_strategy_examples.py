"""The examples of the `tf.distribute.Strategy` page, with `tf.` written as `rx.`.

Left out are those that need a cluster or a TPU (`experimental_assign_to_logical_device` and the two
like it). The page was written on a machine with one device; here every example also runs over two
replicas.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax
from tests.old_names import with_old_names
from tests.under_test import cpus

rx: Any = replicax  # the page's programs are not annotated

ROWS, GLOBAL_BATCH_SIZE = 15, 4  # the last batch is uneven over two replicas


def some_dataset():
    return rx.data.Dataset.range(ROWS, output_type=np.float32).batch(GLOBAL_BATCH_SIZE)


@pytest.fixture(params=[1, 2], ids=["one_replica", "two_replicas"])
def devices(request: pytest.FixtureRequest) -> list[str]:
    return cpus(request.param)


def is_array(value: Any, shape: tuple[int, ...], dtype: Any, number: Any) -> bool:
    """Whether `value` is what the page prints as `<tf.Tensor: shape=, dtype=, numpy=>`."""
    return (
        isinstance(value, jax.Array)
        and value.shape == shape
        and value.dtype == dtype
        and np.array_equal(value, number)
    )


# The class description, "A custom training loop can be as simple as". Over two replicas the last
# batch does not divide evenly.
def test_custom_training_loop(devices):
    my_strategy = rx.distribute.MirroredStrategy(devices)
    traces = []
    with my_strategy.scope():

        @rx.function
        def distribute_train_epoch(dataset):
            def replica_fn(input):
                # process input and return result
                traces.append(input.shape)
                result = jnp.sum(input)
                return result

            total_result = 0
            for x in dataset:
                per_replica_result = my_strategy.run(replica_fn, args=(x,))
                total_result += my_strategy.reduce(
                    rx.distribute.ReduceOp.SUM, per_replica_result, axis=None
                )
            return total_result

        dataset = some_dataset()
        dist_dataset = my_strategy.experimental_distribute_dataset(dataset)
        for _ in range(3):
            train_result = distribute_train_epoch(dist_dataset)
    assert is_array(train_result, (), np.float32, sum(range(ROWS)))
    # Each shape is traced once, in whichever epoch; for uneven shares, those of the replicas.
    assert traces == {1: [(4,), (3,)], 2: [(2,), (2,), (1,)]}[len(devices)]


# Section "Attributes": `cluster_resolver`.
def test_single_worker_strategy_has_no_cluster_resolver(devices):
    strategy = rx.distribute.MirroredStrategy(devices)
    assert strategy.cluster_resolver is None


# Section "experimental_distribute_dataset", the example with `element_spec`.
def test_element_spec_as_input_signature(devices):
    strategy = rx.distribute.MirroredStrategy(devices)
    with strategy.scope():
        total = rx.Variable(0.0, aggregation=rx.VariableAggregation.SUM)
    dist_dataset = strategy.experimental_distribute_dataset(some_dataset())

    @rx.function(input_signature=[dist_dataset.element_spec])
    def train_step(inputs):
        # train model with inputs
        total.assign_add(jnp.sum(inputs))
        return

    # Iterate over the distributed dataset
    for x in dist_dataset:
        # process dataset elements
        strategy.run(train_step, args=(x,))
    assert float(total) == sum(range(ROWS))
    with pytest.raises(TypeError, match="input_signature"):
        strategy.run(train_step, args=(rx.constant([[1.0]]),))


# Section "experimental_distribute_dataset", the first example: files.
def test_distribute_files(devices, tmp_path):
    strategy = rx.distribute.MirroredStrategy(devices)
    names = [str(tmp_path / f"{number}.tfr") for number in range(1, 5)]
    for number, name in enumerate(names):
        with rx.io.TFRecordWriter(name) as writer:
            for record in range(3):
                writer.write(f"{number} {record}".encode())
    # Create a dataset
    dataset = rx.data.TFRecordDataset(names).batch(GLOBAL_BATCH_SIZE)
    # Distribute that dataset
    dist_dataset = strategy.experimental_distribute_dataset(dataset)
    seen = []

    def replica_fn(x):
        seen.extend(x.tolist())

    # Iterate over the `rx.distribute.DistributedDataset`
    assert isinstance(dist_dataset, rx.distribute.DistributedDataset)
    for x in dist_dataset:
        # process dataset elements
        strategy.run(replica_fn, args=(x,))
    assert seen == [f"{n} {r}".encode() for n in range(4) for r in range(3)]
    assert not hasattr(dist_dataset, "map")  # "The user cannot add any more transformations"


# Section "experimental_distribute_datasets_from_function". (`replica_fn` of the page is `step_fn`.)
@with_old_names
def test_element_spec_in_a_function_that_trains(devices):
    global_batch_size = 8

    def dataset_fn(input_context):
        batch_size = input_context.get_per_replica_batch_size(global_batch_size)
        d = rx.data.Dataset.from_tensors([[1.0]]).repeat().batch(batch_size)
        return d.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)

    strategy = rx.distribute.MirroredStrategy(devices)
    ds = strategy.experimental_distribute_datasets_from_function(dataset_fn)

    def train(ds):
        @rx.function(input_signature=[ds.element_spec])
        def step_fn(inputs):
            # train the model with inputs
            return inputs

        for step, batch in enumerate(ds):
            replica_results = strategy.run(step_fn, args=(batch,))
            if step == 2:  # the page's data set repeats forever
                break
        return replica_results

    replica_results = train(ds)
    local_results = strategy.experimental_local_results(replica_results)
    assert [x.shape for x in local_results] == [(8 // len(devices), 1, 1)] * len(devices)


# Section "experimental_make_numpy_dataset".
@with_old_names
def test_make_numpy_dataset(devices):
    strategy = rx.distribute.MirroredStrategy(devices)
    numpy_input = np.ones([10], dtype=np.float32)
    dataset = strategy.experimental_make_numpy_dataset(numpy_input)
    assert repr(dataset) == "<TensorSliceDataset shapes: (), types: float32>"
    dataset = dataset.batch(2)
    dist_dataset = strategy.experimental_distribute_dataset(dataset)
    total = sum(strategy.reduce("SUM", x, axis=0) for x in dist_dataset)
    assert float(total) == 10.0


# Section "experimental_distribute_values_from_function", example 1.
def test_return_constant_value_per_replica(devices):
    strategy = rx.distribute.MirroredStrategy(devices)

    def value_fn(ctx):
        return rx.constant(1.0)

    distributed_values = strategy.experimental_distribute_values_from_function(value_fn)
    local_result = strategy.experimental_local_results(distributed_values)
    assert isinstance(local_result, tuple)
    assert len(local_result) == len(devices)
    assert all(is_array(each, (), np.float32, 1.0) for each in local_result)


# Section "experimental_distribute_values_from_function", example 2.
def test_distribute_values_in_array_based_on_replica_id(devices):
    strategy = rx.distribute.MirroredStrategy(devices)
    array_value = np.array([3.0, 2.0, 1.0])

    def value_fn(ctx):
        return array_value[ctx.replica_id_in_sync_group]

    distributed_values = strategy.experimental_distribute_values_from_function(value_fn)
    local_result = strategy.experimental_local_results(distributed_values)
    assert local_result == (3.0, 2.0)[: len(devices)]


# Section "experimental_distribute_values_from_function", example 3.
def test_specify_values_using_num_replicas_in_sync(devices):
    strategy = rx.distribute.MirroredStrategy(devices)

    def value_fn(ctx):
        return ctx.num_replicas_in_sync

    distributed_values = strategy.experimental_distribute_values_from_function(value_fn)
    local_result = strategy.experimental_local_results(distributed_values)
    assert repr(local_result) == {1: "(1,)", 2: "(2, 2)"}[len(devices)]


# Section "experimental_distribute_values_from_function", example 4 (there with a TPUStrategy).
def test_place_values_on_devices_and_distribute(devices):
    strategy = rx.distribute.MirroredStrategy(devices)
    worker_devices = strategy.extended.worker_devices
    multiple_values = []
    for i in range(strategy.num_replicas_in_sync):
        with rx.device(worker_devices[i]):
            multiple_values.append(rx.constant(1.0))

    def value_fn(ctx):
        return multiple_values[ctx.replica_id_in_sync_group]

    distributed_values = strategy.experimental_distribute_values_from_function(value_fn)
    assert isinstance(distributed_values, rx.distribute.DistributedValues)
    placed = [each.devices() for each in strategy.experimental_local_results(distributed_values)]
    assert placed == [{device} for device in jax.devices("cpu")[: len(devices)]]


# Section "experimental_local_results", "Returns".
def test_local_results_of_a_single_value_is_a_tuple_of_it(devices):
    strategy = rx.distribute.MirroredStrategy(devices)
    value = rx.constant(1.0)
    local_result = strategy.experimental_local_results(value)
    assert len(local_result) == 1
    assert local_result[0] is value


# Section "reduce": "values for examples [0, 1, 2, 3] will be on replica 0 and [4, 5, 6, 7] will be
# on replica 1".
def global_batch(strategy, sizes):
    ends = np.cumsum(sizes)

    def value_fn(ctx):
        end = int(ends[ctx.replica_id_in_sync_group])
        return rx.constant(np.arange(end - sizes[ctx.replica_id_in_sync_group], end, dtype="f4"))

    return strategy.experimental_distribute_values_from_function(value_fn)


def test_reduce_aggregates_across_replicas():
    strategy = rx.distribute.MirroredStrategy(cpus(2))
    per_replica_result = global_batch(strategy, [4, 4])
    result = strategy.reduce(rx.distribute.ReduceOp.SUM, per_replica_result, axis=None)
    assert is_array(result, (4,), np.float32, [0 + 4, 1 + 5, 2 + 6, 3 + 7])


def test_reduce_aggregates_across_the_global_batch():
    strategy = rx.distribute.MirroredStrategy(cpus(2))
    per_replica_result = global_batch(strategy, [4, 4])
    result = strategy.reduce(rx.distribute.ReduceOp.SUM, per_replica_result, axis=0)
    assert is_array(result, (), np.float32, 0 + 1 + 2 + 3 + 4 + 5 + 6 + 7)


def test_reduce_of_a_last_partial_batch_needs_an_axis():
    strategy = rx.distribute.MirroredStrategy(cpus(2))
    last_batch = global_batch(strategy, [4, 2])
    with pytest.raises(ValueError, match="axis=0"):
        strategy.reduce(rx.distribute.ReduceOp.MEAN, last_batch, axis=None)
    result = strategy.reduce(rx.distribute.ReduceOp.MEAN, last_batch, axis=0)
    assert is_array(result, (), np.float32, (0 + 1 + 2 + 3 + 4 + 5) / 6)


# Section "run", example 1. Over several replicas each has a result of its own.
def test_run_with_constant_tensor_input(devices):
    strategy = rx.distribute.MirroredStrategy(devices)
    tensor_input = rx.constant(3.0)

    @rx.function
    def replica_fn(input):
        return input * 2.0

    result = strategy.run(replica_fn, args=(tensor_input,))
    if len(devices) == 1:
        assert is_array(result, (), np.float32, 6.0)
    else:
        assert isinstance(result, rx.types.experimental.PerReplica)
        assert all(is_array(each, (), np.float32, 6.0) for each in result.values)


# Section "run", example 2.
def test_run_with_distributed_values_input(devices):
    strategy = rx.distribute.MirroredStrategy(devices)

    @rx.function
    def run():
        def value_fn(value_context):
            return value_context.num_replicas_in_sync

        distributed_values = strategy.experimental_distribute_values_from_function(value_fn)

        def replica_fn2(input):
            return input * 2

        return strategy.run(replica_fn2, args=(distributed_values,))

    result = run()
    for each in strategy.experimental_local_results(result):
        assert is_array(each, (), np.int32, 2 * len(devices))


# Section "scope", the example. Two replicas print one line each.
def test_scope_makes_variables_mirrored(devices):
    strategy = rx.distribute.MirroredStrategy(devices)
    # Variable created inside scope:
    with strategy.scope():
        mirrored_variable = rx.Variable(1.0)
    first = "  0: <rx.Variable 'Variable:0' shape=() dtype=float32, numpy=1.0>"
    second = "  1: <rx.Variable 'Variable/replica_1:0' shape=() dtype=float32, numpy=1.0>"
    rows = ",\n".join([first, second][: len(devices)])
    assert repr(mirrored_variable) == f"MirroredVariable:{{\n{rows}\n}}"
    # Variable created outside scope:
    regular_variable = rx.Variable(1.0)
    assert repr(regular_variable) == "<rx.Variable 'Variable:0' shape=() dtype=float32, numpy=1.0>"


# Section "scope", "What happens when Strategy.scope is entered?"
def test_scope_installs_the_strategy(devices):
    strategy = rx.distribute.MirroredStrategy(devices)
    assert rx.distribute.get_strategy() is not strategy
    with strategy.scope():
        assert rx.distribute.get_strategy() is strategy
        assert rx.distribute.in_cross_replica_context()
    assert not rx.distribute.has_strategy()


# Section "scope": "reading and writing to these variables outside the `strategy.scope` can also
# work seamlessly", and `run` and `reduce` "enter the scope for you".
def test_variables_and_methods_work_outside_of_the_scope(devices):
    strategy = rx.distribute.MirroredStrategy(devices)
    with strategy.scope():
        v = rx.Variable(1.0)
    v.assign_add(1.0)
    assert float(v) == 2.0
    created = []

    def replica_fn():
        assert rx.distribute.get_strategy() is strategy
        created.append(rx.Variable(3.0))
        return created[-1] * 1.0

    result = strategy.run(replica_fn)
    assert type(created[0]).__name__ == "MirroredVariable"
    assert float(strategy.reduce("MEAN", result, axis=None)) == 3.0
