"""A worker of `multi_worker.py` in plain JAX: `jit`, `shard_map` and a `psum` for each gradient."""

from collections.abc import Callable
from typing import Any

import jax
from _step_models import Model
from _step_variants import IN_FLIGHT, ByHand, wait_for_all
from _workers import Requests, Train, arguments, serve, training


def start() -> tuple[str, Requests]:
    rank, addresses = arguments()
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 1)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(addresses[0], len(addresses), rank, initialization_timeout=60)

    def prepare(model: Model) -> Train:
        return launching(ByHand(model, jax.devices()).step)

    return jax.__version__, training(prepare) | cache()


def launching(step: Callable[[], Any]) -> Train:
    """Launches steps with a few in flight, and waits until all are done."""

    def train(count: int) -> list[Any]:
        losses = []
        for _ in range(count):
            losses.append(step())
            if len(losses) > IN_FLIGHT:
                jax.block_until_ready(losses[-1 - IN_FLIGHT])
        wait_for_all()
        return losses

    return train


def cache() -> Requests:
    """{"cache": true} gives how many programs were wanted, and how many were on the disk."""
    wanted, found = "compile_requests_use_cache", "cache_hits"
    counts = {wanted: 0, found: 0}

    def count(event: str, **_: Any) -> None:
        name = event.rpartition("/")[2]
        if name in counts:
            counts[name] += 1

    jax.monitoring.register_event_listener(count)
    return {"cache": lambda _: {"wanted": counts[wanted], "found": counts[found]}}


if __name__ == "__main__":
    serve(start)
