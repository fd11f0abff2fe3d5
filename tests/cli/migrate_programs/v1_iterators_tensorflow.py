"""A program of 2019: `tf.compat.v1` with eager execution, and iterators that are run on."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.enable_eager_execution()

devices = tf.config.experimental.list_physical_devices("CPU")
tf.config.experimental.set_virtual_device_configuration(
    devices[0], [tf.config.experimental.VirtualDeviceConfiguration()] * 2
)
distribution = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
reduction = tf.distribute.get_loss_reduction()

xs = np.arange(24, dtype=np.float32).reshape(12, 2)
dataset = tf.data.Dataset.from_tensor_slices(xs).batch(4)

with distribution.scope():
    steps = tf.Variable(0.0, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
    iterator = distribution.make_dataset_iterator(dataset)


def replica_fn(rows):
    steps.assign_add(1.0)
    return rows * 2.0


def per_replica_fn(context):
    """A data set for each worker, with batches for each replica."""
    batch_size = context.get_per_replica_batch_size(4)
    return tf.data.Dataset.range(8).batch(batch_size)


iterator.initialize()
with distribution.scope():
    while True:
        try:
            doubled = distribution.experimental_run(replica_fn, iterator)
        except tf.errors.OutOfRangeError:
            break
        total = distribution.reduce(reduction, doubled, axis=0)
        print("total", total.numpy().tolist())

    numbers = distribution.make_input_fn_iterator(per_replica_fn)
    numbers.initialize()
    for _ in range(2):
        results = distribution.experimental_run(lambda x: x + 1, numbers)
        parts = distribution.unwrap(results)
        print("numbers", [part.numpy().tolist() for part in parts])
    for each in distribution.experimental_local_results(distribution.run(lambda: steps * 1.0)):
        print("steps", each.numpy())
