"""MultiWorkerMirroredStrategy with TF_CONFIG: every worker fits, the chief keeps what is saved."""

import json
import os
import sys

import numpy as np
import tensorflow as tf

FOLDER = sys.argv[1]
tf_config = json.loads(os.environ.get("TF_CONFIG", "{}"))
num_workers = len(tf_config["cluster"]["worker"]) if tf_config else 1
strategy = tf.distribute.MultiWorkerMirroredStrategy()
per_worker_batch_size = 8
global_batch_size = per_worker_batch_size * num_workers


def mnist_dataset(batch_size):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 5)).astype(np.float32)
    y = np.argmax(x[:, :3], axis=1).astype(np.int64)
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(64, seed=1).repeat()
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return dataset.with_options(options).batch(batch_size)


def build_and_compile_model():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer(shape=(5,)),
            tf.keras.layers.Dense(16, activation="relu"),
            tf.keras.layers.Dense(3),
        ]
    )
    model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=tf.keras.optimizers.SGD(learning_rate=0.1),
        metrics=["accuracy"],
    )
    return model


def is_chief(task_type, task_id):
    return task_type is None or task_type == "chief" or (task_type == "worker" and task_id == 0)


with strategy.scope():
    model = build_and_compile_model()
history = model.fit(mnist_dataset(global_batch_size), epochs=2, steps_per_epoch=5, verbose=0)
assert np.isfinite(history.history["loss"]).all()
task_type = strategy.cluster_resolver.task_type
task_id = strategy.cluster_resolver.task_id
folder = FOLDER
if not is_chief(task_type, task_id):
    folder = os.path.join(FOLDER, f"workertemp_{task_id}")
    tf.io.gfile.makedirs(folder)
model.save(os.path.join(folder, "model.keras"))
if not is_chief(task_type, task_id):
    tf.io.gfile.rmtree(folder)
else:
    assert tf.io.gfile.exists(os.path.join(folder, "model.keras"))
print("done")
