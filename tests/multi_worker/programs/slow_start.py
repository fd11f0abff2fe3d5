"""Workers that take long to trace their first step: longer than the watchdog is patient."""

from __future__ import annotations

import sys
import time

import jax.numpy as jnp

import replicax as rx


def main() -> None:
    """Makes two steps; tracing the first one takes `argv[2]` seconds on the second worker."""
    strategy = rx.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        total = rx.Variable(0.0, aggregation="SUM")

    @rx.function
    def step() -> None:
        if strategy.cluster_resolver.task_id == 1:
            time.sleep(float(sys.argv[2]))
        strategy.run(lambda: total.assign_add(jnp.float32(1.0)))

    for _ in range(2):
        step()
    print("total", float(total.numpy()), flush=True)


if __name__ == "__main__":
    main()
