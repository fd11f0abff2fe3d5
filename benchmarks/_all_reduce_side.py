"""One side of `all_reduce.py`: sums arrays over its replicas, and says how long one sum takes.

Alone it has so many virtual CPU devices as the variable DEVICES says, or the accelerators of the
machine; as one worker of several, one device.
"""

import json
import os
import time
from typing import Any

import jax
import jax.numpy as jnp
from _workers import Requests, arguments, serve

import replicax as rx

# Sums that one program makes one after the other, so that the cost of a call hardly counts.
SUMS_IN_A_PROGRAM = 20


def make_strategy() -> Any:
    rank, addresses = arguments()
    devices = os.environ["DEVICES"]
    if devices == "accelerators":
        return rx.distribute.MirroredStrategy()
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", int(devices))
    if len(addresses) == 1:
        return rx.distribute.MirroredStrategy()
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": rank}}
    )
    return rx.distribute.MultiWorkerMirroredStrategy()


def start() -> tuple[str, Requests]:
    strategy = make_strategy()
    replicas = strategy.num_replicas_in_sync
    sums: dict[int, Any] = {}

    @rx.function
    def many_sums(x):
        def replica_fn(x):
            def one(_, x):
                context = rx.distribute.get_replica_context()
                assert context is not None
                return context.all_reduce("SUM", x)

            return jax.lax.fori_loop(0, SUMS_IN_A_PROGRAM, one, x)

        return strategy.run(replica_fn, args=(x,))

    def check() -> None:
        ones = strategy.experimental_distribute_values_from_function(lambda _: jnp.float32(1))
        total = strategy.reduce("SUM", ones, axis=None)
        assert float(total) == replicas, total

    def prepare(size: int) -> dict[str, Any]:
        check()
        # Zeros: a sum of sums stays finite, and the devices do not know it beforehand.
        sums[size] = strategy.experimental_distribute_values_from_function(
            lambda _: jnp.zeros(max(size // 4, 1), jnp.float32)
        )
        jax.block_until_ready(local(many_sums(sums[size])))
        return {"replicas": replicas, "sums": SUMS_IN_A_PROGRAM}

    def local(value: Any) -> Any:
        return strategy.experimental_local_results(value)

    def timed(request: list[int]) -> dict[str, Any]:
        size, calls = request
        begun = time.perf_counter()
        for _ in range(calls):
            jax.block_until_ready(local(many_sums(sums[size])))
        return {"seconds": (time.perf_counter() - begun) / calls / SUMS_IN_A_PROGRAM}

    return jax.__version__, {"prepare": prepare, "time": timed}


if __name__ == "__main__":
    serve(start)
