"""The training of `07_keras_fit.py`, evaluated by another process meanwhile. What is new is marked.

The program starts itself once more, as the task `evaluator` of its cluster. Whoever trains saves a
checkpoint after each epoch, keeps the two best, and does not wait for the evaluator.
"""
# pyright: reportArgumentType=false
# Keras's parameters are known by the types of their defaults only.

import json  # new
import os
import subprocess  # new
import sys  # new
import tempfile  # new

os.environ["KERAS_BACKEND"] = "jax"
import keras
import numpy as np

import replicax as rx

BATCH = 64
EPOCHS = 5

# The evaluator is one of the tasks in TF_CONFIG, and works alone.  # new
strategy = rx.distribute.MultiWorkerMirroredStrategy()  # new
is_evaluator = strategy.cluster_resolver.task_type == "evaluator"  # new
folder = sys.argv[1] if is_evaluator else tempfile.mkdtemp()  # new


def make_data() -> tuple[np.ndarray, np.ndarray]:
    """Points in the plane, and the wave that the network is to learn."""
    x = np.random.default_rng(0).uniform(-2, 2, size=(BATCH * 20, 2)).astype(np.float32)
    return x, np.sin(2 * x[:, :1]) * np.cos(x[:, 1:])


class Evaluated(keras.callbacks.Callback):  # new
    def on_test_end(self, logs=None):  # new
        step = int(model.optimizer.iterations)  # new
        print(f"evaluated after step {step}: {(logs or {})['loss']:.4f}", flush=True)  # new


class Saved(keras.callbacks.Callback):  # new
    def on_epoch_end(self, epoch, logs=None):  # new
        manager.save(metrics=logs)  # new


keras.utils.set_random_seed(0)
x, y = make_data()
with strategy.scope():
    inputs = keras.Input((2,))
    hidden = keras.layers.Dense(64, activation="tanh")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    optimizer = keras.optimizers.Adam(1e-2)
    model.compile(optimizer, "mse")

data = rx.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)  # new
if is_evaluator:  # new
    callbacks = [Evaluated()]  # new
    rx.train.SidecarEvaluator(model, data, folder, None, EPOCHS, callbacks).start()  # new
    sys.exit()  # new

task = {"cluster": {"worker": ["localhost:1"]}, "task": {"type": "evaluator", "index": 0}}  # new
told = {**os.environ, "TF_CONFIG": json.dumps(task)}  # new
evaluator = subprocess.Popen([sys.executable, __file__, folder], env=told)  # new
checkpoint = rx.train.Checkpoint(model=model, optimizer=optimizer)  # new
best = {"best_metric": "loss", "best_mode": "min"}  # new
with rx.train.CheckpointManager(checkpoint, folder, max_to_keep=2, **best) as manager:  # new
    history = model.fit(data, epochs=EPOCHS, verbose=0, callbacks=[Saved()]).history  # new
for epoch, loss in enumerate(history["loss"]):
    print(f"epoch {epoch + 1}: loss {loss:.4f}")
assert evaluator.wait(timeout=120) == 0  # new
print("best:", os.path.basename(manager.best_checkpoint or ""))  # new
