"""Small programs that are recorded, in this process and as scripts."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx
from tests.under_test import cpus

BATCH = 8


class Program:
    """A mirrored training loop of a few weights, with data of its own."""

    def __init__(self, folder: Path, replicas: int = 2, bad_row: int | None = None, **options: Any):
        self.strategy = rx.distribute.MirroredStrategy(cpus(replicas))
        random = np.random.default_rng(0)
        x = random.uniform(1, 2, size=(BATCH * 6, 2)).astype(np.float32)
        if bad_row is not None:
            x[bad_row, 1] = np.nan
        y = np.sin(x[:, 0])
        with self.strategy.scope():
            self.w = rx.Variable(random.normal(size=(2, 1)).astype(np.float32), name="w")
            self.optimizer = rx.Optimizer(optax.sgd(1e-2, momentum=0.9))
        self.step = rx.function(self._step)
        data = (
            rx.data.Dataset.from_tensor_slices((x, y)).shuffle(16, seed=1)
            if (bad_row is None)
            else rx.data.Dataset.from_tensor_slices((x, y))
        )
        self.data = self.strategy.experimental_distribute_dataset(data.batch(BATCH))
        self.checkpoint = rx.train.Checkpoint(w=self.w, optimizer=self.optimizer)
        self.manager = rx.train.CheckpointManager(self.checkpoint, folder / "checkpoints")
        self.recorder = rx.debug.Recorder(self.manager, self.step, folder / "recording", **options)

    def _step(self, x: Any, y: Any) -> Any:
        losses = self.strategy.run(self._on_replica, args=(x, y))
        return self.strategy.reduce("SUM", losses, axis=None)

    def _on_replica(self, x: Any, y: Any) -> Any:
        def loss_fn() -> Any:
            return rx.nn.share_of_mean(((x @ self.w)[:, 0] - y) ** 2)

        loss, gradients = rx.value_and_grad(loss_fn, [self.w])
        self.optimizer.apply_gradients(zip(gradients, [self.w], strict=True))
        return loss

    def train(self, epochs: int = 2, save_every: int = 4) -> list[Any]:
        """Trains; returns the losses."""
        losses: list[Any] = []
        for _ in range(epochs):
            for batch in self.data:
                losses.append(self.step(*batch))
                if len(losses) % save_every == 0:
                    self.manager.save()
        return [np.asarray(loss) for loss in losses]


def is_nan(value: Any) -> bool:
    return bool(jnp.isnan(value))
