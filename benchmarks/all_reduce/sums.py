"""Sums over the replicas of one process, or of several."""

import json
import os
import time
from typing import Any

import jax
import jax.numpy as jnp

import replicax as rx
from benchmarks.harness import Side, Work
from benchmarks.training.jax_steps import use_cpu_devices

# Sums that one program makes one after the other, so that the cost of a call hardly counts.
SUMS_IN_A_PROGRAM = 20


class Sums(Side):
    """One process; alone it has several replicas, and one of them if it is one of several.

    Args:
      devices: how many virtual CPU devices it has; 0: the accelerators of the machine.
      rank: of this process.
      addresses: of all.
    """

    version = jax.__version__

    def __init__(self, devices: int, rank: int, addresses: list[str]):
        if devices:
            use_cpu_devices(devices)
        if len(addresses) == 1:
            strategy = rx.distribute.MirroredStrategy()
        else:
            os.environ["TF_CONFIG"] = json.dumps(
                {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
            )
            strategy = rx.distribute.MultiWorkerMirroredStrategy()
        self.strategy = strategy
        self.work: dict[int, Work] = {}

        @rx.function
        def many_sums(x):
            def replica_fn(x):
                def one(_, x):
                    context = rx.distribute.get_replica_context()
                    assert context is not None
                    return context.all_reduce("SUM", x)

                return jax.lax.fori_loop(0, SUMS_IN_A_PROGRAM, one, x)

            return strategy.run(replica_fn, args=(x,))

        self.many_sums = many_sums

    def prepare(self, size: int) -> Work:
        # Zeros: a sum of sums stays finite, and the devices do not know it beforehand.
        zeros = self.strategy.experimental_distribute_values_from_function(
            lambda _: jnp.zeros(max(size // 4, 1), jnp.float32)
        )

        def work(count: int) -> list[Any]:
            for _ in range(count):
                sums = self.many_sums(zeros)
                jax.block_until_ready(self.strategy.experimental_local_results(sums))
            return []

        return work

    def make(self, size: int) -> tuple[int, int]:
        """Prepares sums of a size; returns how many replicas there are, and sums in a program."""
        replicas = self.strategy.num_replicas_in_sync
        ones = self.strategy.experimental_distribute_values_from_function(lambda _: jnp.float32(1))
        total = self.strategy.reduce("SUM", ones, axis=None)
        assert float(total) == replicas, total
        self.work[size] = self.prepare(size)
        self.work[size](1)
        return replicas, SUMS_IN_A_PROGRAM

    def seconds(self, size: int, calls: int) -> float:
        """Returns the seconds of one sum, in the mean over some calls."""
        begin = time.perf_counter()
        self.work[size](calls)
        return (time.perf_counter() - begin) / calls / SUMS_IN_A_PROGRAM
