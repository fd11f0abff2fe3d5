"""The `tf.compat.v1.distribute` pages: every signature, and the examples of methods that only they
have. The others are in `tests/spec/`, where they run for both generations."""

import inspect
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import replicax
from tests.old_names import with_old_names
from tests.under_test import Executor, cpus

rx: Any = replicax  # the pages' programs are not annotated
distribute = rx.compat.v1.distribute
pytestmark = with_old_names
PER_WORKER = rx.distribute.InputReplicationMode.PER_WORKER

# As on the pages; what has no default has `...`.
STRATEGY: dict[str, dict[str, Any]] = {
    "__init__": {"devices": None, "cross_device_ops": None},
    "experimental_distribute_dataset": {"dataset": ...},
    "experimental_distribute_datasets_from_function": {"dataset_fn": ...},
    "experimental_local_results": {"value": ...},
    "experimental_make_numpy_dataset": {"numpy_input": ..., "session": None},
    "experimental_run": {"fn": ..., "input_iterator": None},
    "make_dataset_iterator": {"dataset": ...},
    "make_input_fn_iterator": {"input_fn": ..., "replication_mode": PER_WORKER},
    "reduce": {"reduce_op": ..., "value": ..., "axis": None},
    "run": {"fn": ..., "args": (), "kwargs": None, "options": None},
    "scope": {},
    "update_config_proto": {"config_proto": ...},
}
EXTENDED: dict[str, dict[str, Any]] = {
    "__init__": {"container_strategy": ...},
    "broadcast_to": {"tensor": ..., "destinations": ...},
    "call_for_each_replica": {"fn": ..., "args": (), "kwargs": None},
    "colocate_vars_with": {"colocate_with_variable": ...},
    "experimental_make_numpy_dataset": {"numpy_input": ..., "session": None},
    "experimental_run_steps_on_iterator": {
        "fn": ...,
        "iterator": ...,
        "iterations": 1,
        "initial_loop_values": None,
    },
    "non_slot_devices": {"var_list": ...},
    "read_var": {"v": ...},
    "update": {"var": ..., "fn": ..., "args": (), "kwargs": None, "group": True},
    "update_non_slot": {"colocate_with": ..., "fn": ..., "args": (), "kwargs": None, "group": True},
    "value_container": {"value": ...},
    "variable_created_in_scope": {"v": ...},
}
# Here a newer argument stands where the page has the older one, and takes the same values.
WITH_HINTS = {
    "reduce_to": ["reduce_op", "value", "destinations"],
    "batch_reduce_to": ["reduce_op", "value_destination_pairs"],
}
CASES = [
    *((distribute.MirroredStrategy, name, arguments) for name, arguments in STRATEGY.items()),
    *((distribute.StrategyExtended, name, arguments) for name, arguments in EXTENDED.items()),
]


def arguments_of(owner: Any, name: str) -> dict[str, Any]:
    parameters = list(inspect.signature(getattr(owner, name)).parameters.values())[1:]
    return {
        each.name: ... if each.default is inspect.Parameter.empty else each.default
        for each in parameters
    }


@pytest.mark.parametrize(("owner", "name", "expected"), CASES, ids=lambda each: str(each)[:40])
def test_arguments_are_those_of_the_page(owner: Any, name: str, expected: dict[str, Any]):
    found = arguments_of(owner, name)
    assert list(found.items())[: len(expected)] == list(expected.items())
    assert ... not in list(found.values())[len(expected) :]  # more only where nobody must give it


@pytest.mark.parametrize("name", WITH_HINTS)
def test_arguments_of_reductions(name: str):
    found = arguments_of(distribute.StrategyExtended, name)
    assert list(found) == [*WITH_HINTS[name], "options", "experimental_hints"]
    assert found["options"] is found["experimental_hints"] is None


def test_arguments_of_the_other_strategies():
    experimental = distribute.experimental
    assert arguments_of(distribute.OneDeviceStrategy, "__init__") == {"device": ...}
    assert arguments_of(experimental.CentralStorageStrategy, "__init__") == {
        "compute_devices": None,
        "parameter_device": None,
    }
    assert arguments_of(experimental.MultiWorkerMirroredStrategy, "__init__") == {
        "communication": experimental.CommunicationImplementation.AUTO,
        "cluster_resolver": None,
    }
    assert arguments_of(experimental.TPUStrategy, "__init__") == {
        "tpu_cluster_resolver": None,
        "steps_per_run": None,
        "device_assignment": None,
    }


# Section "Attributes".
def test_attributes():
    strategy = distribute.MirroredStrategy(cpus(2))
    assert isinstance(strategy.extended, distribute.StrategyExtended)
    assert strategy.num_replicas_in_sync == 2
    extended = strategy.extended
    assert (extended.experimental_between_graph, extended.experimental_should_init) == (False, True)
    assert (extended.should_checkpoint, extended.should_save_summary) == (True, True)
    assert extended.experimental_require_static_shapes is False
    assert extended.worker_devices == extended.parameter_devices
    assert len(extended.worker_devices) == 2


@pytest.fixture(params=[1, 2], ids=["one_replica", "two_replicas"])
def strategy(request: pytest.FixtureRequest) -> Any:
    return distribute.MirroredStrategy(cpus(request.param))


# Section "make_input_fn_iterator".
def test_make_input_fn_iterator(strategy: Any, executor: Executor):
    global_batch_size = 8

    def input_fn(input_context):
        batch_size = input_context.get_per_replica_batch_size(global_batch_size)
        d = rx.data.Dataset.from_tensors([[1.0]]).repeat().batch(batch_size)
        return d.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)

    def replica_fn(inputs):
        return jnp.sum(inputs)

    if executor.name == "compiled":
        replica_fn = rx.function(replica_fn)

    with strategy.scope():
        iterator = strategy.make_input_fn_iterator(input_fn)
        replica_results = strategy.experimental_run(replica_fn, iterator)
    assert float(strategy.reduce(distribute.ReduceOp.SUM, replica_results)) == 8.0
    # "or you can `iterator.get_next()` to get the next value to pass to
    # `strategy.extended.call_for_each_replica()`"
    value = iterator.get_next()
    replica_results = strategy.extended.call_for_each_replica(replica_fn, args=(value,))
    assert float(strategy.reduce(distribute.ReduceOp.SUM, replica_results)) == 8.0


# Section "experimental_make_numpy_dataset".
def test_experimental_make_numpy_dataset(strategy: Any):
    numpy_input = np.ones([10], dtype=np.float32)
    dataset = strategy.experimental_make_numpy_dataset(numpy_input)
    dist_dataset = strategy.experimental_distribute_dataset(dataset.batch(10))
    (batch,) = dist_dataset
    assert float(strategy.reduce("SUM", batch, axis=0)) == 10.0
    lists = strategy.experimental_make_numpy_dataset([numpy_input, numpy_input], session=None)
    assert [row.shape for row in lists] == [(10,), (10,)]


# Section "experimental_distribute_datasets_from_function".
def test_experimental_distribute_datasets_from_function(strategy: Any):
    global_batch_size = 8

    def dataset_fn(input_context):
        batch_size = input_context.get_per_replica_batch_size(global_batch_size)
        d = rx.data.Dataset.from_tensors([[1.0]]).repeat().batch(batch_size)
        return d.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)

    inputs = strategy.experimental_distribute_datasets_from_function(dataset_fn)
    iterator = iter(inputs)

    @rx.function(input_signature=[iterator.element_spec])
    def replica_fn_with_signature(inputs):
        # train the model with inputs
        return inputs

    for _ in range(2):
        results = strategy.run(replica_fn_with_signature, args=(next(iterator),))
    each = strategy.experimental_local_results(results)
    assert [part.shape[0] for part in each] == [8 // strategy.num_replicas_in_sync] * len(each)


# Section "reduce": eight examples on two replicas, and a last partial batch of six.
def test_reduce(executor: Executor):
    strategy = distribute.MirroredStrategy(cpus(2))
    eight, six = (rx.data.Dataset.range(count, output_type=np.float32) for count in (8, 6))
    iterator = strategy.make_input_fn_iterator(
        lambda context: eight.batch(4).concatenate(six.batch(4))
    )

    def value() -> Any:
        batch = iterator.get_next()
        return executor.run(strategy, lambda x: x * 1.0, args=(batch,))

    whole = value()
    # "By default, `reduce` will just aggregate across replicas, returning [0+4, 1+5, 2+6, 3+7]."
    assert strategy.reduce(distribute.ReduceOp.SUM, whole).tolist() == [4.0, 6.0, 8.0, 10.0]
    # "In this case it would return a scalar `0+1+2+3+4+5+6+7`."
    assert float(strategy.reduce(distribute.ReduceOp.SUM, whole, axis=0)) == sum(range(8))
    partial = value()  # "divided into [0, 1, 2, 3] and [4, 5]"
    shapes = [part.shape for part in strategy.experimental_local_results(partial)]
    assert shapes == [(4,), (2,)]
    # "you would get a shape mismatch unless you specify `axis=0`"
    with pytest.raises(ValueError, match="shape"):
        strategy.reduce(distribute.ReduceOp.SUM, partial)
    # "using `axis=0` will use the correct denominator of 6"
    assert float(strategy.reduce(distribute.ReduceOp.MEAN, partial, axis=0)) == 2.5
