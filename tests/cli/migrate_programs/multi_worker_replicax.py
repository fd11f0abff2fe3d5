"""Several workers, as `TF_CONFIG` says, with checkpoints: each worker runs this same program."""

import json
import os
import sys

import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx

tf_config = json.loads(os.environ["TF_CONFIG"])
num_workers = len(tf_config["cluster"]["worker"])
checkpoint_dir = os.path.join(sys.argv[1], "ckpt")

communication_options = rx.distribute.experimental.CommunicationOptions(
    implementation=rx.distribute.experimental.CommunicationImplementation.RING
)
strategy = rx.distribute.MultiWorkerMirroredStrategy(communication_options=communication_options)
task_type = strategy.cluster_resolver.task_type
task_id = strategy.cluster_resolver.task_id

per_worker_batch_size = 8
global_batch_size = per_worker_batch_size * num_workers
num_epochs = 2


def _is_chief(task_type, task_id):
    return task_type is None or task_type == "chief" or (task_type == "worker" and task_id == 0)


def make_dataset(input_context):
    xs = np.random.default_rng(2).normal(size=(32, 3)).astype(np.float32)
    ys = xs @ np.array([1.0, -2.0, 3.0], np.float32)
    dataset = rx.data.Dataset.from_tensor_slices((xs, ys))
    if input_context:
        dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return dataset.batch(input_context.get_per_replica_batch_size(global_batch_size))


with strategy.scope():
    weights = rx.Variable(jnp.zeros([3]), name="weights")
    optimizer = rx.Optimizer(optax.sgd(0.1))
    epoch = rx.Variable(rx.constant(0, jnp.int32), name="epoch")

multi_worker_dataset = strategy.distribute_datasets_from_function(make_dataset)

checkpoint = rx.train.Checkpoint(weights=weights, optimizer=optimizer, epoch=epoch)
# All workers save to one folder, and the first writes.
checkpoint_manager = rx.train.CheckpointManager(checkpoint, directory=checkpoint_dir, max_to_keep=1)
latest_checkpoint = rx.train.latest_checkpoint(checkpoint_dir)
if latest_checkpoint:
    checkpoint.restore(latest_checkpoint)


@rx.function
def train_step(inputs):
    def step_fn(inputs):
        x, y = inputs

        def loss_fn():
            predictions = jnp.sum(x * weights, axis=1)
            loss = rx.nn.compute_average_loss(
                jnp.square(predictions - y), global_batch_size=global_batch_size
            )
            return loss

        loss, grads = rx.value_and_grad(loss_fn, [weights])
        optimizer.apply_gradients(zip(grads, [weights]))
        return loss

    per_replica_losses = strategy.run(step_fn, args=(inputs,))
    return strategy.reduce(rx.distribute.ReduceOp.SUM, per_replica_losses, axis=None)


while epoch.numpy() < num_epochs:
    total_loss = 0.0
    for inputs in multi_worker_dataset:
        total_loss += train_step(inputs)
    epoch.assign_add(1)
    checkpoint_manager.save()
    if _is_chief(task_type, task_id):
        print(f"epoch {epoch.numpy()}: loss {np.asarray(total_loss):.4f}", flush=True)
