"""A worker in JAX: with replicax, which saves too, and by hand."""

import os
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import replicax as rx
from benchmarks.harness.sides import Side, Work, set_tf_config
from benchmarks.training.jax_steps import (
    ByHand,
    Replicax,
    launching,
    use_cpu_devices,
    wait_for_all,
)
from benchmarks.training.models import MODELS

PARTS = 10  # variables of the state that is saved


class JaxWorker(Side):
    """What both have in common: counts of the programs that were wanted and found in the cache."""

    version = jax.__version__

    def __init__(self) -> None:
        use_cpu_devices(1)
        self._counts = {"cache_hits": 0, "compile_requests_use_cache": 0}
        jax.monitoring.register_event_listener(self._count)

    def _count(self, event: str, **_: Any) -> None:
        name = event.rpartition("/")[2]
        if name in self._counts:
            self._counts[name] += 1

    def cache_use(self) -> str:
        """Returns how many programs were on the disk, of how many."""
        return "/".join(map(str, self._counts.values()))


class ByHandWorker(JaxWorker):
    """`jit`, `shard_map` and a `psum` for each gradient."""

    def __init__(self, rank: int, addresses: list[str]):
        super().__init__()
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(addresses[0], len(addresses), rank, initialization_timeout=60)

    def prepare(self, name: str) -> Work:
        return launching(ByHand(MODELS[name], jax.devices()).launch)


class ReplicaxWorker(JaxWorker):
    """`MultiWorkerMirroredStrategy` in an `rx.function`."""

    def __init__(self, rank: int, addresses: list[str]):
        super().__init__()
        set_tf_config(rank, addresses)
        self.rank, self.strategy = rank, rx.distribute.MultiWorkerMirroredStrategy()

    def prepare(self, name: str) -> Work:
        return launching(Replicax(MODELS[name], self.strategy).launch)

    def make_variables(self, count: int, are_same: bool) -> float:
        """Returns the seconds of making so many, from values that are the same on all workers."""
        rng = np.random.default_rng(0 if are_same else self.rank)
        values = rng.standard_normal((count, 16, 16), np.float32)
        self.strategy.reduce("SUM", self.strategy.run(lambda: 1.0), axis=None)  # begin together
        begin = time.perf_counter()
        with self.strategy.scope():
            made = [rx.Variable(value, name=f"v{i}") for i, value in enumerate(values)]
        jax.block_until_ready([variable.value() for variable in made])
        return time.perf_counter() - begin

    def make_state(self, megabytes: float, folder: str) -> None:
        """Makes variables of that size, and a manager that saves them."""
        rng = np.random.default_rng(0)
        shape = (round(megabytes * 1e6 / PARTS / 4 / 100), 100)
        with self.strategy.scope():
            variables = [rx.Variable(rng.random(shape, np.float32)) for _ in range(PARTS)]
        checkpoint = rx.train.Checkpoint(variables=variables)

        @rx.function
        def step() -> None:
            for variable in variables:
                self.strategy.extended.update(variable, lambda each: each.assign_add(each * 1e-3))

        self.step = step
        self.manager = rx.train.CheckpointManager(checkpoint, folder, max_to_keep=1)
        self.arrays = [variable.numpy() for variable in variables]
        self.file = Path(folder, "savez")

    def save(self) -> tuple[float, float]:
        """Returns the seconds that a save stops the loop, and those until it is on the disk.

        The first are those of `save`, with those by which it makes the next step longer.
        """
        usual = self._timed_step()
        begin = time.perf_counter()
        self.manager.save()
        stopped = time.perf_counter() - begin
        stopped += max(self._timed_step() - usual, 0)
        self.manager.wait()
        return stopped, time.perf_counter() - begin

    def _timed_step(self) -> float:
        begin = time.perf_counter()
        self.step()
        wait_for_all()
        return time.perf_counter() - begin

    def savez(self) -> float:
        """Returns the seconds of `np.savez` and `os.fsync`, on the first worker."""
        if self.rank != 0:
            return 0.0
        begin = time.perf_counter()
        with open(f"{self.file}.new", "wb") as unfinished:
            np.savez(unfinished, *self.arrays)
            unfinished.flush()
            os.fsync(unfinished.fileno())
        os.replace(f"{self.file}.new", self.file)
        return time.perf_counter() - begin
