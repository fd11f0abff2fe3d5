"""Several workers, as `TF_CONFIG` says, with checkpoints: each worker runs this same program."""

import json
import os
import sys

import numpy as np
import tensorflow as tf

tf_config = json.loads(os.environ["TF_CONFIG"])
num_workers = len(tf_config["cluster"]["worker"])
checkpoint_dir = os.path.join(sys.argv[1], "ckpt")

communication_options = tf.distribute.experimental.CommunicationOptions(
    implementation=tf.distribute.experimental.CommunicationImplementation.RING
)
strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=communication_options)
task_type = strategy.cluster_resolver.task_type
task_id = strategy.cluster_resolver.task_id

per_worker_batch_size = 8
global_batch_size = per_worker_batch_size * num_workers
num_epochs = 2


def _is_chief(task_type, task_id):
    return task_type is None or task_type == "chief" or (task_type == "worker" and task_id == 0)


def write_filepath(filepath, task_type, task_id):
    """Every worker has to save, and only the chief's files are kept."""
    if _is_chief(task_type, task_id):
        return filepath
    temporary = os.path.join(os.path.dirname(filepath), f"workertemp_{task_id}")
    tf.io.gfile.makedirs(temporary)
    return os.path.join(temporary, os.path.basename(filepath))


def make_dataset(input_context):
    xs = np.random.default_rng(2).normal(size=(32, 3)).astype(np.float32)
    ys = xs @ np.array([1.0, -2.0, 3.0], np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((xs, ys))
    if input_context:
        dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return dataset.batch(input_context.get_per_replica_batch_size(global_batch_size))


with strategy.scope():
    weights = tf.Variable(tf.zeros([3]), name="weights")
    optimizer = tf.keras.optimizers.SGD(0.1)
    epoch = tf.Variable(tf.constant(0, tf.int32), name="epoch")

multi_worker_dataset = strategy.distribute_datasets_from_function(make_dataset)

checkpoint = tf.train.Checkpoint(weights=weights, optimizer=optimizer, epoch=epoch)
write_checkpoint_dir = write_filepath(checkpoint_dir, task_type, task_id)
checkpoint_manager = tf.train.CheckpointManager(
    checkpoint, directory=write_checkpoint_dir, max_to_keep=1
)
latest_checkpoint = tf.train.latest_checkpoint(checkpoint_dir)
if latest_checkpoint:
    checkpoint.restore(latest_checkpoint)


@tf.function
def train_step(inputs):
    def step_fn(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            predictions = tf.reduce_sum(x * weights, axis=1)
            loss = tf.nn.compute_average_loss(
                tf.square(predictions - y), global_batch_size=global_batch_size
            )
        grads = tape.gradient(loss, [weights])
        optimizer.apply_gradients(zip(grads, [weights]))
        return loss

    per_replica_losses = strategy.run(step_fn, args=(inputs,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)


while epoch.numpy() < num_epochs:
    total_loss = 0.0
    for inputs in multi_worker_dataset:
        total_loss += train_step(inputs)
    epoch.assign_add(1)
    checkpoint_manager.save()
    if not _is_chief(task_type, task_id):
        tf.io.gfile.rmtree(write_checkpoint_dir)
    else:
        print(f"epoch {epoch.numpy()}: loss {total_loss.numpy():.4f}", flush=True)
