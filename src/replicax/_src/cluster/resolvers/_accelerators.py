"""Counts accelerators. JAX is loaded when asked, because that starts its devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

_KINDS = {"cuda": "GPU", "rocm": "GPU"}


def local_accelerators() -> dict[str, int]:
    """Returns the number of this process's accelerators by kind, such as {"GPU": 8}."""
    import jax

    return _count(jax.local_devices())


def count_accelerators(rank: int) -> dict[str, int]:
    """Returns the same for one worker of the running job; {} if there is no such worker."""
    import jax

    return _count(device for device in jax.devices() if device.process_index == rank)


def _count(devices: Iterable[Any]) -> dict[str, int]:
    platforms = [str(device.platform) for device in devices]
    return dict(Counter(_KINDS.get(each, each.upper()) for each in platforms if each != "cpu"))
