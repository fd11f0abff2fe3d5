"""Trains on handwritten digits with any number of workers, and goes on where it was after a fault.

With one worker, with two, and with two of which one is killed in the middle:

    python examples/many_workers.py
    replicax launch --workers 2 examples/many_workers.py
    replicax launch --workers 2 --max-restarts 1 examples/many_workers.py --crash-at 60

Every worker runs this program from the first line to the last. What it has saved is not bound to so
many workers: with another number it goes on as well. Another folder, `--checkpoints`, starts anew.
"""

import argparse
import hashlib
import os
import signal
from pathlib import Path

import jax
import numpy as np
import optax
from sklearn.datasets import load_digits

import replicax as rx

BATCH = 64  # rows in a step, of all workers together
TRAIN, TEST = 22 * BATCH, 6 * BATCH


class Model:
    """Two dense layers: 64 pixels, 128, 10 digits."""

    def __init__(self, seed: int):
        random = np.random.default_rng(seed)
        self.hidden = rx.Variable(random.normal(0, 0.15, (64, 128)).astype(np.float32))
        self.hidden_bias = rx.Variable(np.zeros(128, np.float32))
        self.output = rx.Variable(random.normal(0, 0.1, (128, 10)).astype(np.float32))
        self.output_bias = rx.Variable(np.zeros(10, np.float32))

    @property
    def variables(self) -> list[rx.Variable]:
        return [self.hidden, self.hidden_bias, self.output, self.output_bias]

    def __call__(self, images: jax.Array) -> jax.Array:
        hidden = jax.nn.relu(images @ self.hidden + self.hidden_bias)
        return hidden @ self.output + self.output_bias


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a classifier of handwritten digits.")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--checkpoints", type=Path, default=Path("many_workers_checkpoints"))
    parser.add_argument("--crash-at", type=int, help="all but the first are killed here, once")
    options = parser.parse_args()

    # First of all: it finds the other workers and waits for them. Alone, it is one worker.
    strategy = rx.distribute.MultiWorkerMirroredStrategy()
    is_first = strategy.extended.should_save_summary

    images, labels = load_digits(return_X_y=True)
    rows = (images / 16).astype(np.float32), labels.astype(np.int32)
    # Batches of all workers, of which each reads its part. With a seed, the order of the rows is
    # the same on all of them, and after a restart.
    dataset = rx.data.Dataset.from_tensor_slices(tuple(each[:TRAIN] for each in rows))
    dataset = dataset.shuffle(TRAIN, seed=1).batch(BATCH).repeat()
    batches = iter(strategy.experimental_distribute_dataset(dataset))
    test = rx.data.Dataset.from_tensor_slices(tuple(each[-TEST:] for each in rows)).batch(TEST)
    test_batches = strategy.experimental_distribute_dataset(test)

    with strategy.scope():
        model = Model(seed=0)
        optimizer = rx.Optimizer(optax.adam(2e-3))
        accuracy = rx.metrics.SparseCategoricalAccuracy()

    @rx.function
    def train_step(images, labels):
        def replica_step(images, labels):
            def loss_fn():
                losses = optax.softmax_cross_entropy_with_integer_labels(model(images), labels)
                return rx.nn.compute_average_loss(losses, global_batch_size=BATCH)

            loss, gradients = rx.value_and_grad(loss_fn, model.variables)
            optimizer.apply_gradients(zip(gradients, model.variables, strict=True))
            return loss

        return strategy.reduce("SUM", strategy.run(replica_step, args=(images, labels)), axis=None)

    @rx.function
    def test_step(images, labels):
        strategy.run(lambda x, y: accuracy.update_state(y, model(x)), args=(images, labels))

    # All workers save and restore together; the first one writes, in the background. The position
    # of the iterator is in the checkpoint, so that no row is lost or taken twice.
    checkpoint = rx.train.Checkpoint(model=model, optimizer=optimizer, batches=batches, step=0)
    check = rx.debug.check_replicas_every(50, model, optimizer)
    with rx.train.CheckpointManager(
        checkpoint, options.checkpoints, max_to_keep=2, save_interval=TRAIN // BATCH
    ) as manager:
        restored = manager.restore_or_initialize()
        if is_first:
            print(f"{strategy} goes on from {restored}" if restored else f"{strategy} begins")
        while checkpoint.step < options.epochs * TRAIN // BATCH:
            loss = train_step(*next(batches))
            checkpoint.step += 1
            check()
            manager.save()  # at the first step, and at every 22nd from there
            if is_first and checkpoint.step % 22 == 0:
                print(f"step {checkpoint.step:3}  loss {float(loss):.4f}")
            if checkpoint.step == options.crash_at and not is_first and restored is None:
                os.kill(os.getpid(), signal.SIGKILL)

    for images, labels in test_batches:
        test_step(images, labels)
    result = float(accuracy.result())  # on all workers: it adds up what each has seen
    if is_first:
        weights = b"".join(variable.numpy().tobytes() for variable in model.variables)
        digest = hashlib.sha256(weights).hexdigest()[:12]
        print(f"test accuracy {result:.4f} after {checkpoint.step} steps, weights {digest}")


if __name__ == "__main__":
    main()
