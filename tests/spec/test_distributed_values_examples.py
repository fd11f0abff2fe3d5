"""The examples of the `tf.distribute.DistributedValues` page, with `tf.` as `rx.`, GPU as CPU."""

from typing import Any

import jax
import numpy as np
import pytest

import replicax

rx: Any = replicax  # the page's programs are not annotated


def first_batch(strategy: Any) -> Any:
    """What `next(dataset_iterator)` gives on the page: [5.] on replica 0, [6.] on replica 1."""
    dataset = rx.data.Dataset.from_tensor_slices([5.0, 6.0, 7.0, 8.0]).batch(2)
    dataset_iterator = iter(strategy.experimental_distribute_dataset(dataset))
    return next(dataset_iterator)


# The description: "This base class should never be instantiated directly."
def test_base_class_cannot_be_instantiated():
    with pytest.raises(TypeError, match="Make a rx.distribute.PerReplica"):
        rx.distribute.DistributedValues([5.0, 6.0])


# The description: "Two representative types" are `PerReplica` and `Mirrored`.
def test_per_replica_and_mirrored_are_distributed_values():
    assert issubclass(rx.types.experimental.PerReplica, rx.distribute.DistributedValues)
    assert issubclass(rx.types.experimental.Mirrored, rx.distribute.DistributedValues)


# Example 1: how such a value is printed.
def test_printed_form():
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    distributed_values = first_batch(strategy)
    expected = """PerReplica:{
  0: Array([5.], dtype=float32),
  1: Array([6.], dtype=float32)
}"""
    assert repr(distributed_values) == str(distributed_values) == expected


# Example 2: "Returned by `run`".
def test_returned_by_run():
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    @rx.function
    def run():
        ctx = rx.distribute.get_replica_context()
        return ctx.replica_id_in_sync_group

    distributed_values = strategy.run(run)
    expected = """PerReplica:{
  0: Array(0, dtype=int32),
  1: Array(1, dtype=int32)
}"""
    assert repr(distributed_values) == expected


# The same without `@tf.function`: the numbers are Python's.
def test_returned_by_an_eager_run():
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    distributed_values = strategy.run(
        lambda: rx.distribute.get_replica_context().replica_id_in_sync_group
    )
    expected = """PerReplica:{
  0: 0,
  1: 1
}"""
    assert repr(distributed_values) == expected


# Example 3: "As input into `run`".
def test_as_input_into_run():
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    distributed_values = first_batch(strategy)

    @rx.function
    def run(input):
        return input + 1.0

    updated_value = strategy.run(run, args=(distributed_values,))
    expected = """PerReplica:{
  0: Array([6.], dtype=float32),
  1: Array([7.], dtype=float32)
}"""
    assert repr(updated_value) == expected


# Example 4: "As input into `reduce`".
def test_as_input_into_reduce():
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    distributed_values = first_batch(strategy)
    reduced_value = strategy.reduce(rx.distribute.ReduceOp.SUM, distributed_values, axis=0)
    assert isinstance(reduced_value, jax.Array)
    assert repr(reduced_value) == "Array(11., dtype=float32)"


# Example 5: "How to inspect per-replica values locally".
def test_inspect_per_replica_values_locally():
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    distributed_values = first_batch(strategy)
    per_replica_values = strategy.experimental_local_results(distributed_values)
    assert repr(per_replica_values) == "(Array([5.], dtype=float32), Array([6.], dtype=float32))"


# The description: "We can safely read a `Mirrored` value in a cross-replica context by using the
# value on any replica, while PerReplica values should not be read".
def test_mirrored_values_can_be_read_and_per_replica_ones_cannot():
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    distributed_values = first_batch(strategy)
    with strategy.scope():
        mirrored = strategy.extended.reduce_to("SUM", distributed_values, distributed_values)
    assert isinstance(mirrored, rx.types.experimental.Mirrored)
    assert np.asarray(mirrored) == 11.0
    with pytest.raises(TypeError, match="strategy.reduce"):
        np.asarray(distributed_values)


# The description: mirrored values "typically represent model weights", so variables are one kind.
def test_variables_of_a_strategy_are_distributed_values():
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        v = rx.Variable(1.0)
    assert isinstance(v, rx.distribute.DistributedValues)
    assert len(strategy.experimental_local_results(v)) == 2
