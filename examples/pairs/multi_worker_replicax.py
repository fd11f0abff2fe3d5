"""A training loop of your own in two processes, with replicax.

In the shape of TensorFlow's tutorials on multi-worker training: each worker runs this program, and
finds the others in `TF_CONFIG`. A data set is made for each worker, and the program goes on from
checkpoints that it has written. Its twin, `multi_worker_tensorflow.py`, prints the same.

    replicax launch --workers 2 examples/pairs/multi_worker_replicax.py FOLDER
"""

import json
import os
import sys

import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx

tf_config = json.loads(os.environ["TF_CONFIG"])
num_workers = len(tf_config["cluster"]["worker"])
strategy = rx.distribute.MultiWorkerMirroredStrategy()
task_id = strategy.cluster_resolver.task_id
is_chief = task_id == 0

PER_WORKER_BATCH_SIZE = 16
GLOBAL_BATCH_SIZE = PER_WORKER_BATCH_SIZE * num_workers
EPOCHS = 4
# All workers save to one folder, and the first one writes.
folder = sys.argv[1]


def make_rows():
    """Points in the plane, and on which side of a circle they are."""
    points = np.random.default_rng(0).uniform(-1, 1, size=(256, 2)).astype(np.float32)
    return points, (np.sum(points**2, axis=1) < 0.6).astype(np.float32)


def dataset_fn(input_context):
    batch_size = input_context.get_per_replica_batch_size(GLOBAL_BATCH_SIZE)
    dataset = rx.data.Dataset.from_tensor_slices(make_rows())
    dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return dataset.batch(batch_size).prefetch(2)


dist_dataset = strategy.distribute_datasets_from_function(dataset_fn)

with strategy.scope():
    rng = np.random.default_rng(1)  # the same first weights for both libraries
    shapes = [(2, 16), (16,), (16, 1), (1,)]
    weights = [rx.Variable(rng.normal(scale=0.5, size=shape).astype("f4")) for shape in shapes]
    optimizer = rx.Optimizer(optax.sgd(0.2, momentum=0.9))
    optimizer.build(weights)
    epoch = rx.Variable(0)
    accuracy = rx.metrics.BinaryAccuracy(threshold=0.0)


def predict(points):
    w1, b1, w2, b2 = weights
    hidden = jnp.tanh(jnp.matmul(points, w1) + b1)
    return (jnp.matmul(hidden, w2) + b2)[:, 0]


@rx.function
def train_step(points, labels):
    def replica_step(points, labels):
        def loss_fn():
            scores = predict(points)
            losses = optax.sigmoid_binary_cross_entropy(scores, labels)
            loss = rx.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH_SIZE)
            return loss, scores

        (loss, scores), gradients = rx.value_and_grad(loss_fn, weights, has_aux=True)
        optimizer.apply_gradients(zip(gradients, weights))
        accuracy.update_state(labels, scores)
        return loss

    losses = strategy.run(replica_step, args=(points, labels))
    return strategy.reduce(rx.distribute.ReduceOp.SUM, losses, axis=None)


checkpoint = rx.train.Checkpoint(weights=weights, optimizer=optimizer, epoch=epoch)
manager = rx.train.CheckpointManager(checkpoint, folder, max_to_keep=1)
latest_checkpoint = rx.train.latest_checkpoint(sys.argv[1])
if latest_checkpoint:
    checkpoint.restore(latest_checkpoint)

while epoch.numpy() < EPOCHS:
    losses = [train_step(*batch) for batch in dist_dataset]
    correct = accuracy.result()
    accuracy.reset_state()
    epoch.assign_add(1)
    manager.save()
    if is_chief:
        print(f"epoch {epoch.numpy()}: loss {np.mean(losses):.4f}, accuracy {correct:.4f}")
