"""Workers that tell how many programs they had to compile; one fails in the first generation."""

from __future__ import annotations

import collections
import os
import sys
from typing import Any

import jax
import jax.numpy as jnp

import replicax as rx


def main() -> None:
    """Makes one step, and tells."""
    seen: collections.Counter[str] = collections.Counter()

    def count(event: str, **_: Any) -> None:
        seen[event.rpartition("/")[2]] += 1

    jax.monitoring.register_event_listener(count)
    strategy = rx.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        total = rx.Variable(jnp.zeros(8), aggregation="SUM")

    def add_own_number() -> None:
        # A sum over the workers: of a constant, XLA would know it without asking them.
        context = rx.distribute.get_replica_context()
        assert context is not None
        number = context.replica_id_in_sync_group
        total.assign_add(jnp.full(8, number, jnp.float32))

    @rx.function
    def step() -> None:
        strategy.run(add_own_number)

    step()
    total.numpy()
    folder = os.environ["JAX_COMPILATION_CACHE_DIR"]
    mode = oct(os.stat(folder).st_mode & 0o777)
    asked, hits = seen["compile_requests_use_cache"], seen["cache_hits"]
    print("compiled", asked - hits, "of", asked, mode, folder, flush=True)
    if os.environ["REPLICAX_GENERATION"] == "0":
        step()  # so that both have come this far
        total.numpy()
        sys.exit(1)


if __name__ == "__main__":
    main()
