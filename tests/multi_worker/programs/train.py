"""A small training program that saves as it goes, suffers what is planned for it, and keeps books.

    replicax launch --workers 2 --max-restarts 3 train.py FOLDER --epochs 2

The same without the launcher, with `TF_CONFIG`. Options: see `_options`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx
from replicax._src.checkpoints import _folder
from tests.multi_worker.programs.audit import Book
from tests.multi_worker.programs.faults import FILLER, Faults


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=120)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--save-every", type=int, default=3)
    parser.add_argument("--seed", type=int, help="of the shuffling; without it, one is drawn")
    parser.add_argument("--noise", action="store_true", help="draw random numbers in every step")
    parser.add_argument("--handler", action="store_true", help="save when told to end")
    parser.add_argument("--verify", action="store_true", help="look at every byte of checkpoints")
    parser.add_argument("--ballast", type=int, default=0, help="MB more in every checkpoint")
    return parser.parse_args()


class Training:
    """A model of two layers, its data, and what a checkpoint holds of it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.strategy = rx.distribute.MultiWorkerMirroredStrategy()
        rng = np.random.default_rng(0)
        x = rng.normal(size=(options.rows, 16)).astype(np.float32)
        y = np.sin(x.sum(1)).astype(np.float32)
        first = rng.normal(size=(16, 32)).astype(np.float32) * 0.2
        second = rng.normal(size=32).astype(np.float32) * 0.2
        with self.strategy.scope():
            self.weights = [rx.Variable(first, name="first"), rx.Variable(second, name="second")]
            self.optimizer = rx.Optimizer(optax.adam(1e-2))
            self.optimizer.build(self.weights)
            self.step = rx.Variable(0, name="step", aggregation="ONLY_FIRST_REPLICA")
            self.generator = rx.random.Generator.from_seed(5)
            ballast = rng.normal(size=options.ballast << 18).astype(np.float32)
            self.ballast = rx.Variable(ballast, name="ballast")
        rows = np.arange(options.rows, dtype=np.int32)
        dataset = rx.data.Dataset.from_tensor_slices((x, y, rows))
        dataset = dataset.shuffle(options.rows, seed=options.seed).repeat(options.epochs)
        batches = self.strategy.experimental_distribute_dataset(dataset.batch(options.batch))
        self.iterator = iter(batches)
        self.checkpoint = rx.train.Checkpoint(
            weights=self.weights,
            optimizer=self.optimizer,
            step=self.step,
            generator=self.generator,
            ballast=self.ballast,
            iterator=self.iterator,
        )
        self._update = rx.function(self._update_eagerly)

    def _update_eagerly(self, batch: Any) -> Any:
        first, second = self.weights
        size = self.options.batch

        def loss_of_replica(batch: Any) -> Any:
            x, y, _ = batch
            if self.options.noise:
                x = x + 0.1 * self.generator.normal(x.shape)

            def loss() -> Any:
                return jnp.sum((jnp.tanh(x @ first.value()) @ second.value() - y) ** 2) / size

            value, gradients = rx.value_and_grad(loss, self.weights)
            self.optimizer.apply_gradients(zip(gradients, self.weights, strict=True))
            return value

        losses = self.strategy.run(loss_of_replica, args=(batch,))
        self.step.assign_add(1)
        return self.strategy.reduce("SUM", losses, axis=None)

    def train_on(self, batch: Any) -> tuple[int, float, list[int]]:
        """One step; returns its number, the loss, and which rows this worker saw."""
        local = self.strategy.experimental_local_results(batch[2])
        rows = [int(row) for part in local for row in np.asarray(part)]
        loss = float(self._update(batch))
        return self.number, loss, rows

    @property
    def number(self) -> int:
        """How many steps were made so far."""
        return int(self.step.numpy())

    def state(self) -> str:
        """A hash of everything that training changes."""
        found = hashlib.md5()
        for variable in [*self.weights, *self.optimizer.variables, self.step]:
            found.update(np.asarray(variable.numpy()).tobytes())
        return found.hexdigest()


def damaged_in(folder: Path) -> list[str]:
    """The checkpoints that are listed, and cannot be read."""
    found = []
    for path, _ in _folder.checkpoints_in(str(folder)):
        try:
            _folder.verify(path)
        except rx.errors.CheckpointError as error:
            found.append(str(error))
    return found


def main() -> None:
    """Trains to the end of the data, from wherever the last checkpoint is."""
    options = _options()
    training = Training(options)
    resolver = training.strategy.cluster_resolver
    worker, workers = resolver.task_id or 0, training.strategy.num_replicas_in_sync
    generation = int(os.environ.get("REPLICAX_GENERATION", "0"))
    book = Book(options.folder, generation, worker)
    faults = Faults(options.folder, worker, workers, generation)
    folder = options.folder / "checkpoints"
    (folder / FILLER).unlink(missing_ok=True)  # somebody has made room
    damaged = damaged_in(folder) if options.verify and worker == 0 else []
    manager = rx.train.CheckpointManager(training.checkpoint, folder, max_to_keep=3)
    handler = None
    if options.handler:
        handler = rx.distribute.experimental.PreemptionCheckpointHandler(resolver, manager)
    else:
        manager.restore_or_initialize()
    start = training.number
    book.write(
        restored=start,
        state=training.state(),
        workers=workers,
        pid=os.getpid(),
        damaged=damaged,
    )
    print("restored", start, flush=True)
    faults.at(0)

    def step(batch: Any) -> None:
        number, loss, rows = training.train_on(batch)
        book.write(step=number, loss=loss, rows=rows, state=training.state())
        print("step", number, flush=True)
        faults.at(number)
        if number % options.save_every == 0:
            faults.before_save(number, folder)
            manager.save()

    for _ in range(start, options.rows * options.epochs // options.batch):
        if handler is None:
            step(next(training.iterator))
        else:
            handler.run(step, next(training.iterator))
    manager.wait()
    book.write(end=training.number, state=training.state())
    print("end", training.state(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
