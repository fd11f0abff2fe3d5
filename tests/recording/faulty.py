"""A job of several workers in which something goes wrong; as a user would write it.

    faulty.py FOLDER FAULT [FAULT ...]

For each fault there is a model of its own, trained for a few steps with a recorder. What happens to
the memory of one worker happens in the job alone, and not where its steps are replayed.
"""

import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax

import replicax as rx

BATCH, STEPS, FILES = 16, 8, 4
BAD_STEP = 6  # in which it goes wrong
SLOW_STEPS = 26  # of which the first ones tell how long a step takes

TRAPS = {
    "row": rx.debug.Traps(finite=True),
    "rate": rx.debug.Traps(bound=1e4),
    "variable": rx.debug.Traps(finite=True, copies_every=1),
    "bit": rx.debug.Traps(bound=1e6, bits=True),
    "sleep": rx.debug.Traps(slower_than=10.0),
}


def write_rows(folder: Path) -> list[str]:
    """Writes files of rows; in the third one there is a bad number."""
    x = np.random.default_rng(0).normal(size=(FILES, BATCH * STEPS // FILES, 4)).astype("<f4")
    x[2, (BAD_STEP - 1) * BATCH // FILES + 1, 3] = np.nan
    for number, rows in enumerate(x):
        (folder / f"rows-{number}.bin").write_bytes(rows.tobytes())
    return [str(folder / f"rows-{number}.bin") for number in range(FILES)]


class Training:
    """One model, and what it is trained on."""

    def __init__(self, strategy: Any, folder: Path, fault: str):
        self.strategy, self.fault = strategy, fault
        self.worker = rx.distribute.cluster_resolver.TFConfigClusterResolver().task_id or 0
        self.is_job = "TF_CONFIG" in os.environ
        self.seconds: list[float] = []
        weights = np.random.default_rng(1).normal(size=(4, 8)).astype(np.float32) * 0.3
        with strategy.scope():
            self.kernel = rx.Variable(weights, name="kernel")
            self.output = rx.Variable(weights[0], name="output")
            self.mask = rx.Variable(
                np.uint32(0),
                trainable=False,
                synchronization="ON_READ",
                aggregation="ONLY_FIRST_REPLICA",
            )
            rate = optax.piecewise_constant_schedule(0.05, {BAD_STEP - 1: 1e6})
            self.optimizer = rx.Optimizer(optax.sgd(rate if fault == "rate" else 0.05))
        self.variables = [self.kernel, self.output]
        state = rx.train.Checkpoint(model=self.variables, optimizer=self.optimizer)
        self.manager = rx.train.CheckpointManager(state, folder / fault)
        self.recorder = rx.debug.Recorder(
            self.manager,
            self.train_step,
            folder / f"recording-{fault}",
            traps=TRAPS[fault],
            on_trap="continue",
        )

    @rx.function
    def train_step(self, x: Any) -> Any:
        """Makes a step; returns its loss."""
        losses = self.strategy.run(self.on_replica, args=(x,))
        return self.strategy.reduce("SUM", losses, axis=None)

    def on_replica(self, x: Any) -> Any:
        def loss_fn() -> Any:
            hidden = jnp.tanh(x @ self.kernel)
            errors = hidden @ self.output - jnp.sin(x[:, 0])
            return rx.nn.share_of_mean(errors**2)

        loss, gradients = rx.value_and_grad(loss_fn, self.variables)
        words = jax.lax.bitcast_convert_type(gradients[1], jnp.uint32)
        words = words.at[3].set(words[3] ^ self.mask.read_value())
        gradients[1] = jax.lax.bitcast_convert_type(words, jnp.float32)
        self.optimizer.apply_gradients(zip(gradients, self.variables, strict=True))
        return loss

    def happen(self) -> None:
        """Lets happen what happens before the bad step."""
        if self.fault == "sleep" and self.worker == 2:
            time.sleep(max(3.0, 30 * statistics.median(self.seconds)))  # also on a busy machine
        if self.fault == "bit":
            self.flip(0x40000000 if self.worker == 1 else 0)
        if self.fault == "variable" and self.worker == 3:
            # What a program that writes where it should not would do.
            array = self.output._stored.assembled
            shards = [
                jax.device_put(np.asarray(each.data) * 1.5, each.device)
                for each in array.addressable_shards
            ]
            self.output._set_whole(
                jax.make_array_from_single_device_arrays(array.shape, array.sharding, shards)
            )

    def flip(self, bits: int) -> None:
        """Lets the memory of this worker flip bits of a gradient, which nobody is told of."""
        with mock.patch.object(self.recorder._outside, "_written", {}):
            self.mask.assign(np.uint32(bits))

    def run(self, data: Any) -> None:
        """Trains."""
        steps = SLOW_STEPS if self.fault == "sleep" else STEPS
        bad = steps - 2 if self.fault == "sleep" else BAD_STEP
        batches = self.strategy.experimental_distribute_dataset(data.repeat())
        with self.recorder:
            for number, x in zip(range(1, steps + 1), batches):
                if number == bad and self.is_job:
                    self.happen()
                began = time.monotonic()
                self.train_step(x)
                self.seconds.append(time.monotonic() - began)
                if self.fault == "bit":
                    self.flip(0)
                if number == 4:
                    self.manager.save()


def main() -> None:
    folder, faults = Path(sys.argv[1]), sys.argv[2:]
    strategy = rx.distribute.MultiWorkerMirroredStrategy()
    files = [str(folder / f"rows-{n}.bin") for n in range(FILES)]
    rows = rx.data.FixedLengthRecordDataset(files, record_bytes=16)
    rows = rows.map(lambda row: np.frombuffer(row, "<f4"))
    whole = rx.data.Dataset.from_tensor_slices(
        np.random.default_rng(2).normal(size=(BATCH * STEPS, 4)).astype(np.float32)
    )
    for fault in faults:
        data = rows if fault == "row" else whole
        Training(strategy, folder, fault).run(data.batch(BATCH))


if __name__ == "__main__":
    main()
