"""Words that tests of replicas share: give each replica a value, look at what each has."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import pytest

import replicax as rx
from tests.under_test import STRATEGIES

SEVERAL = [name for name, make in STRATEGIES.items() if make().num_replicas_in_sync > 1]

# Narrow the `strategy` fixture to those with more than one replica, to a few
# of them (where every device compiles for seconds), or to those with exactly two.
several_replicas = pytest.mark.parametrize("strategy", SEVERAL, indirect=True)
few_replicas = pytest.mark.parametrize(
    "strategy", ["mirrored_2", "mirrored_3", "central_storage_2"], indirect=True
)
two_replicas = pytest.mark.parametrize(
    "strategy", ["mirrored_2", "central_storage_2"], indirect=True
)


def mirrored(count: int = 2, **kwargs: Any) -> Any:
    """Returns a MirroredStrategy over the first `count` virtual devices."""
    return rx.distribute.MirroredStrategy([f"CPU:{index}" for index in range(count)], **kwargs)


def by_replica(strategy: Any, fn: Callable[[int], Any]) -> Any:
    """Returns a per-replica value: `fn(replica id)` for each."""
    return strategy.experimental_distribute_values_from_function(
        lambda context: fn(context.replica_id_in_sync_group)
    )


def on_devices(strategy: Any, parts: Sequence[Any]) -> Any:
    """Returns a per-replica value with each part on its replica's own device."""
    devices = strategy.extended._replica_devices
    placed = [jax.device_put(part, device) for part, device in zip(parts, devices, strict=True)]
    return rx.distribute.PerReplica(placed)


def parts_of(strategy: Any, value: Any) -> list[np.ndarray]:
    """Returns what each replica has of `value`, also where all have the same object."""
    found = [np.asarray(part) for part in strategy.experimental_local_results(value)]
    return found * strategy.num_replicas_in_sync if len(found) == 1 else found


def context() -> Any:
    """Returns the current replica context, which there must be."""
    found = rx.distribute.get_replica_context()
    assert found is not None
    return found
