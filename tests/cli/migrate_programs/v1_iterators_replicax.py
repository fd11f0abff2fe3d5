"""A program of 2019, ported: iterators are ready to be read when they are made."""

import numpy as np

import replicax as rx

devices = rx.config.list_physical_devices("CPU")
rx.config.set_logical_device_configuration(devices[0], [rx.config.LogicalDeviceConfiguration()] * 2)
distribution = rx.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
reduction = rx.distribute.ReduceOp.SUM

xs = np.arange(24, dtype=np.float32).reshape(12, 2)
dataset = rx.data.Dataset.from_tensor_slices(xs).batch(4)

with distribution.scope():
    steps = rx.Variable(0.0, aggregation=rx.VariableAggregation.ONLY_FIRST_REPLICA)
    iterator = iter(distribution.experimental_distribute_dataset(dataset))


def replica_fn(rows):
    steps.assign_add(1.0)
    return rows * 2.0


def per_replica_fn(context):
    """A data set for each worker, with batches for each replica."""
    batch_size = context.get_per_replica_batch_size(4)
    return rx.data.Dataset.range(8).batch(batch_size)


with distribution.scope():
    while True:
        try:
            doubled = distribution.run(replica_fn, args=(iterator.get_next(),))
        except rx.errors.OutOfRangeError:
            break
        total = distribution.reduce(reduction, doubled, axis=0)
        print("total", np.asarray(total).tolist())

    numbers = iter(distribution.distribute_datasets_from_function(per_replica_fn))
    for _ in range(2):
        results = distribution.run(lambda x: x + 1, args=(numbers.get_next(),))
        parts = distribution.experimental_local_results(results)
        print("numbers", [np.asarray(part).tolist() for part in parts])
    for each in distribution.experimental_local_results(distribution.run(lambda: steps * 1.0)):
        print("steps", np.asarray(each))
