"""A TPU with two cores to a replica: images are split over the cores."""

import numpy as np
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="")
tf.config.experimental_connect_to_cluster(resolver)
topology = tf.tpu.experimental.initialize_tpu_system(resolver)
device_assignment = tf.tpu.experimental.DeviceAssignment.build(
    topology, computation_shape=[1, 1, 1, 2], num_replicas=4
)
strategy = tf.distribute.experimental.TPUStrategy(resolver, device_assignment=device_assignment)
print("replicas", strategy.num_replicas_in_sync)

images = np.arange(8 * 4 * 6, dtype=np.float32).reshape(8, 4, 6)
dataset = tf.data.Dataset.from_tensor_slices(images).batch(8, drop_remainder=True)
iterator = iter(strategy.experimental_distribute_dataset(dataset))

with strategy.scope():
    scale = tf.Variable(np.float32(0.5))


@tf.function
def step(inputs):
    def replica_fn(x):
        x = strategy.experimental_split_to_logical_devices(x, [1, 2, 1])
        y = x * scale
        return strategy.experimental_replicate_to_logical_devices(y[:, 0, 0])

    return strategy.run(replica_fn, args=(inputs,))


halves = step(next(iterator))
for half in strategy.experimental_local_results(halves):
    print("first", half.numpy().tolist())
tf.tpu.experimental.shutdown_tpu_system(resolver)
