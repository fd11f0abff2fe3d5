"""A program that asks for no recording, and has a checkpoint manager: `unrecorded.py FOLDER`."""

import os
import signal
import sys
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx

folder = sys.argv[1]
strategy = rx.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    w = rx.Variable(np.ones((2, 1), np.float32), name="w")
    optimizer = rx.Optimizer(optax.adam(1e-2))
    mean = rx.metrics.Mean("loss")


def on_replica(x: Any) -> Any:
    def loss_fn() -> Any:
        root = jnp.sqrt(x @ w)[:, 0]
        return rx.nn.share_of_mean(root)

    loss, gradients = rx.value_and_grad(loss_fn, [w])
    optimizer.apply_gradients(zip(gradients, [w], strict=True))
    mean.update_state(loss)
    return loss


@rx.function
def look(x: Any) -> Any:
    """Changes nothing, and is called first."""
    return strategy.reduce("SUM", strategy.run(jnp.sum, args=(x,)), axis=None)


@rx.function
def train_step(x: Any) -> Any:
    return strategy.reduce("SUM", strategy.run(on_replica, args=(x,)), axis=None)


rows = np.random.default_rng(0).uniform(1, 2, size=(48, 2)).astype(np.float32)
rows[38] = -1.0  # it has no square root
data = rx.data.Dataset.from_tensor_slices(rows).batch(8)
manager = rx.train.CheckpointManager(rx.train.Checkpoint(w=w, optimizer=optimizer), folder)
for number, batch in enumerate(strategy.experimental_distribute_dataset(data)):
    look(batch)
    loss = train_step(batch)
    if number == 1:
        manager.save()
    if number == 3 and "--kill" in sys.argv:
        float(loss)
        os.kill(os.getpid(), signal.SIGKILL)
