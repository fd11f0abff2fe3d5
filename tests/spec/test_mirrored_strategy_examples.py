"""The examples of the `tf.compat.v1.distribute.MirroredStrategy` page, with `tf.` as `rx.`.

Those of `run` are the same as on the `Strategy` page, and are written here as well. The methods
that only this page has are in `tests/compat/test_v1_mirrored_strategy_page.py`.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import replicax
from tests.under_test import cpus

rx: Any = replicax  # the page's programs are not annotated

# What the page prints for a variable, for one replica and for two.
PRINTED = {
    1: """MirroredVariable:{
  0: <rx.Variable 'Variable:0' shape=() dtype=float32, numpy=1.0>
}""",
    2: """MirroredVariable:{
  0: <rx.Variable 'Variable:0' shape=() dtype=float32, numpy=1.0>,
  1: <rx.Variable 'Variable/replica_1:0' shape=() dtype=float32, numpy=1.0>
}""",
}


@pytest.fixture(params=["distribute", "compat.v1.distribute"])
def distribute(request: pytest.FixtureRequest) -> Any:
    return rx.compat.v1.distribute if "v1" in request.param else rx.distribute


@pytest.fixture(params=[1, 2], ids=["one_replica", "two_replicas"])
def devices(request: pytest.FixtureRequest) -> list[str]:
    return cpus(request.param)


# The class description, example 1.
def test_variable_under_the_strategy_is_mirrored(distribute, devices):
    strategy = distribute.MirroredStrategy(devices)
    with strategy.scope():
        x = rx.Variable(1.0)
    assert repr(x) == PRINTED[len(devices)]


# The class description, example 2.
def test_variable_made_by_a_function_is_mirrored(distribute, devices, capsys):
    x = []

    @rx.function  # Wrap the function with rx.function.
    def create_variable():
        if not x:
            x.append(rx.Variable(1.0))

    strategy = distribute.MirroredStrategy(devices)
    with strategy.scope():
        create_variable()
        print(x[0])
    assert capsys.readouterr().out == PRINTED[len(devices)] + "\n"


# The class description, the training loop.
def test_training_loop(distribute, devices):
    my_strategy = distribute.MirroredStrategy(devices)
    with my_strategy.scope():
        w = rx.Variable(0.0)

        @rx.function
        def distribute_train_epoch(dataset):
            def replica_fn(input):
                # process input and return result
                result = jnp.sum(input) + w
                return result

            total_result = 0
            for x in dataset:
                per_replica_result = my_strategy.run(replica_fn, args=(x,))
                total_result += my_strategy.reduce(
                    rx.distribute.ReduceOp.SUM, per_replica_result, axis=None
                )
            return total_result

        dataset = rx.data.Dataset.range(11, output_type=np.float32).batch(4)
        dist_dataset = my_strategy.experimental_distribute_dataset(dataset)
        for epoch in range(3):
            w.assign(epoch)
            train_result = distribute_train_epoch(dist_dataset)
            assert float(train_result) == sum(range(11)) + 3 * len(devices) * epoch


# Section "experimental_distribute_dataset", and the second example of
# "experimental_distribute_datasets_from_function": `element_spec` of the data set, or its iterator.
@pytest.mark.parametrize("of", [lambda data_set: data_set, iter], ids=["data_set", "iterator"])
def test_element_spec_as_input_signature(distribute, devices, of):
    strategy = distribute.MirroredStrategy(devices)
    with strategy.scope():
        total = rx.Variable(0.0, aggregation=rx.VariableAggregation.SUM)
    dataset = rx.data.Dataset.range(11, output_type=np.float32).batch(4)
    inputs = of(strategy.experimental_distribute_dataset(dataset))

    @rx.function(input_signature=[inputs.element_spec])
    def replica_fn_with_signature(inputs):
        # train the model with inputs
        total.assign_add(jnp.sum(inputs))
        return

    for x in inputs:
        strategy.run(replica_fn_with_signature, args=(x,))
    assert float(total) == sum(range(11))


# Section "Args", `devices`: "a list of device strings such as ['/gpu:0', '/gpu:1']", and "If
# `None`, all available GPUs are used. If no GPUs are found, CPU is used."
def test_devices_as_strings(distribute):
    strategy = distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    assert strategy.num_replicas_in_sync == 2
    assert strategy.extended.worker_devices == (
        "/job:localhost/replica:0/task:0/device:CPU:0",
        "/job:localhost/replica:0/task:0/device:CPU:1",
    )


def test_all_devices_by_default(distribute):
    kind = "GPU" if rx.config.list_logical_devices("GPU") else "CPU"
    strategy = distribute.MirroredStrategy()
    assert strategy.num_replicas_in_sync == len(rx.config.list_logical_devices(kind))


# Section "run", example 1.
def test_run_with_constant_tensor_input(distribute, devices):
    strategy = distribute.MirroredStrategy(devices)
    tensor_input = rx.constant(3.0)

    @rx.function
    def replica_fn(input):
        return input * 2.0

    result = strategy.run(replica_fn, args=(tensor_input,))
    for each in strategy.experimental_local_results(result):
        assert each.shape == () and each.dtype == np.float32 and each == 6.0


# Section "run", example 2.
def test_run_with_distributed_values_input(distribute, devices):
    strategy = distribute.MirroredStrategy(devices)

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
        assert each.shape == () and each.dtype == np.int32 and each == 2 * len(devices)


# Section "scope": "Inside a `with strategy.scope():` code block, this thread will use a variable
# creator set by `strategy`, and will enter its cross-replica context."
def test_scope_enters_cross_replica_context(distribute, devices):
    strategy = distribute.MirroredStrategy(devices)
    with strategy.scope():
        assert rx.distribute.in_cross_replica_context()
        assert rx.distribute.get_replica_context() is None
        assert strategy.extended.variable_created_in_scope(rx.Variable(1.0))
