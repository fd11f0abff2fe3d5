"""Sums over the replicas of one process, or of several."""

from typing import Any

import jax
import jax.numpy as jnp

import replicax as rx
from benchmarks.harness.sides import Side, Work, set_tf_config
from benchmarks.training.jax_steps import use_cpu_devices

# Sums that one program makes one after the other, so that the cost of a call hardly counts.
SUMS_IN_A_CALL = 20


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
            self.strategy = rx.distribute.MirroredStrategy()
        else:
            set_tf_config(rank, addresses)
            self.strategy = rx.distribute.MultiWorkerMirroredStrategy()

    def replicas(self) -> int:
        return self.strategy.num_replicas_in_sync

    def sums_in_a_call(self) -> int:
        return SUMS_IN_A_CALL

    def prepare(self, size: int) -> Work:
        distribute = self.strategy.experimental_distribute_values_from_function
        total = self.strategy.reduce("SUM", distribute(lambda _: jnp.float32(1)), axis=None)
        assert float(total) == self.replicas(), total
        # Zeros: a sum of sums stays finite, and the devices do not know it beforehand.
        zeros = distribute(lambda _: jnp.zeros(max(size // 4, 1), jnp.float32))

        @rx.function
        def many_sums(x):
            def replica_fn(x):
                def one(_, x):
                    context = rx.distribute.get_replica_context()
                    assert context is not None
                    return context.all_reduce("SUM", x)

                return jax.lax.fori_loop(0, SUMS_IN_A_CALL, one, x)

            return self.strategy.run(replica_fn, args=(x,))

        def work(count: int) -> list[Any]:
            for _ in range(count):
                sums = many_sums(zeros)
                jax.block_until_ready(self.strategy.experimental_local_results(sums))
            return []

        return work
