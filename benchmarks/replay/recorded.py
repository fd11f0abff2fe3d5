"""Training loops that are recorded, or not."""

import functools
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import replicax as rx
from benchmarks.harness.sides import Side, Work
from benchmarks.training.jax_steps import adam, mirrored
from benchmarks.training.losses import dense_losses, transformer_losses
from benchmarks.training.models import Dense, Transformer

RECORDED: dict[str, dict[str, Any]] = {
    "recording": {},
    "finite": {"finite": True},
    "bits": {"finite": True, "bits": True},
    "copies": {"copies_every": 100},
    "slow": {"slower_than": 1e9},
}
"""What is looked for, beside the recording alone."""

_TRANSFORMER = Transformer(layers=2, width=128, heads=4, length=32, vocabulary=256)

MODELS: dict[str, tuple[Dense | Transformer, int, Callable[..., Any]]] = {
    "two layers, 64 wide, batch 64": (Dense((784, 64)), 64, dense_losses),
    "fifty layers of 16, batch 64": (Dense((16,) * 51), 64, dense_losses),
    "three layers, 512 wide, batch 128": (Dense((784, 512, 512)), 128, dense_losses),
    "transformer, 2 layers, batch 32": (
        _TRANSFORMER,
        32,
        functools.partial(transformer_losses, _TRANSFORMER),
    ),
    "tiny": (Dense((8, 8)), 8, dense_losses),
}
"""What is trained, the rows of a batch, and the losses of the rows."""


class Recorded(Side):
    """Trains on virtual CPU devices.

    Args:
      which: of `RECORDED`, or "without".
      replicas: how many.
    """

    def __init__(self, which: str, replicas: int):
        self._which, self._replicas = which, replicas
        self._recorder: rx.debug.Recorder | None = None
        self._folder = ""
        self.bytes_of_step = 0.0
        """What was written for each; known when it is stopped."""

    def prepare(self, model: str) -> Work:
        net, batch, losses_of = MODELS[model]
        strategy = mirrored(jax.devices()[: self._replicas])
        with strategy.scope():
            weights = [rx.Variable(each) for each in net.weights(np.random.default_rng(0))]
            optimizer = rx.Optimizer(adam())

        def on_replica(x: Any, y: Any) -> Any:
            def loss_fn() -> Any:
                return rx.nn.share_of_mean(losses_of(weights, x, y))

            loss, gradients = rx.value_and_grad(loss_fn, weights)
            optimizer.apply_gradients(zip(gradients, weights, strict=True))
            return loss

        @rx.function
        def train_step(x: Any, y: Any) -> Any:
            return strategy.reduce("SUM", strategy.run(on_replica, args=(x, y)), axis=None)

        examples = net.examples(np.random.default_rng(1), 16 * batch)
        dataset = rx.data.Dataset.from_tensor_slices(examples).batch(batch).repeat()
        batches = iter(strategy.experimental_distribute_dataset(dataset))
        if self._which != "without":
            self._folder = tempfile.mkdtemp()
            checkpoint = rx.train.Checkpoint(weights=weights, optimizer=optimizer)
            self._recorder = rx.debug.Recorder(
                rx.train.CheckpointManager(checkpoint, self._folder),
                train_step,
                traps=rx.debug.Traps(**RECORDED[self._which]),
            )

        def work(count: int) -> Sequence[float]:
            loss: Any = None
            for _ in range(count):
                loss = train_step(*next(batches))
            return [float(loss)]

        return work

    def stop(self) -> None:
        super().stop()
        if self._recorder is not None:
            self._recorder.close()
            segments = Path(self._recorder.directory).glob("worker-0/segment-*")
            written = sum(each.stat().st_size for each in segments)
            self.bytes_of_step = written / max(self._recorder.step, 1)
            self._recorder = None
            shutil.rmtree(self._folder)
