"""TPUStrategy: several steps in one function, with an input function for each worker."""

import argparse

import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--tpu", default="")
args = parser.parse_args()

try:
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=args.tpu)
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)
except ValueError:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

BATCH, STEPS = 8, 4


def dataset_fn(context):
    batch_size = context.get_per_replica_batch_size(BATCH * strategy.num_replicas_in_sync)
    x = np.linspace(-1, 1, 64, dtype=np.float32)[:, None]
    dataset = tf.data.Dataset.from_tensor_slices((x, 3 * x - 1)).shard(
        context.num_input_pipelines, context.input_pipeline_id
    )
    return dataset.repeat().batch(batch_size, drop_remainder=True)


with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.SGD(0.1)
    training_loss = tf.keras.metrics.Mean("training_loss", dtype=tf.float32)

per_replica_dataset = strategy.distribute_datasets_from_function(dataset_fn)
train_iterator = iter(per_replica_dataset)


@tf.function
def train_multiple_steps(iterator):
    def step_fn(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            predictions = model(x, training=True)
            losses = tf.reduce_sum(tf.math.squared_difference(predictions, y), axis=-1)
            loss = tf.nn.compute_average_loss(losses)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(list(zip(grads, model.trainable_variables)))
        training_loss.update_state(loss * strategy.num_replicas_in_sync)

    for _ in tf.range(STEPS):
        strategy.run(step_fn, args=(next(iterator),))


losses = []
for epoch in range(5):
    train_multiple_steps(train_iterator)
    losses.append(float(training_loss.result()))
    training_loss.reset_state()
    print("Epoch", epoch, "steps", optimizer.iterations.numpy(), "loss", round(losses[-1], 4))
assert losses[-1] < losses[0]
print("done")
