"""How a strategy shows itself: its replicas, and the devices that these have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from replicax._src._typing import Device
from replicax._src.devices import groups_of, resolve, short_name

if TYPE_CHECKING:
    from replicax._src.strategies._hooks import StrategyHooks


def device_names(extended: StrategyHooks) -> str:
    """Returns the names of the devices of the replicas of this process."""
    return ", ".join(_names(group) for group in _groups(extended))


def replica_rows(extended: StrategyHooks) -> list[tuple[Any, ...]]:
    """Returns a row for each replica of this process, and each device with variables alone."""
    stored = {resolve(name) for name in extended.parameter_devices}
    rows: list[tuple[Any, ...]] = []
    for index, group in enumerate(_groups(extended)):
        device = group[0]
        holds = "variables" if device in stored else ""
        rows.append((index, _names(group), getattr(device, "device_kind", ""), holds))
        stored.discard(device)
    for device in sorted(stored, key=short_name):
        rows.append(("", short_name(device), getattr(device, "device_kind", ""), "variables"))
    return rows


def _groups(extended: StrategyHooks) -> list[tuple[Device, ...]]:
    """Returns the logical devices of the replicas of this process."""
    homes = [resolve(name) for name in extended.worker_devices]
    groups = {group[0]: group for group in groups_of(extended._replica_devices)}
    return [groups.get(home, (home,)) for home in homes]


def _names(devices: Sequence[Device]) -> str:
    names = ", ".join(short_name(device) for device in devices)
    return names if len(devices) == 1 else f"({names})"
