"""`MirroredStrategy`: replicas on devices or groups of them, with equal variables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from replicax._src._typing import Device, override
from replicax._src.collectives import CrossDeviceOps, NcclAllReduce
from replicax._src.devices import groups_of
from replicax._src.strategies._extended import StrategyExtended
from replicax._src.strategies._logical_devices import grouped
from replicax._src.strategies._moved import moved
from replicax._src.strategies._state_layout import StateLayout, as_state_layout, layout_for
from replicax._src.strategies._strategy import Strategy


class MirroredExtended(StrategyExtended):
    """Variables are mirrored or sync-on-read over all replicas."""

    def __init__(
        self,
        container_strategy: Strategy | None,
        devices: tuple[Device, ...],
        cross_device_ops: CrossDeviceOps | None = None,
        state_layout: StateLayout | None = None,
    ):
        super().__init__(container_strategy)
        self._place_on(devices)
        if isinstance(cross_device_ops, type) or not isinstance(
            cross_device_ops, CrossDeviceOps | None
        ):
            raise TypeError(
                "`cross_device_ops` must be an instance of a rx.distribute.CrossDeviceOps "
                f"subclass, for example rx.distribute.NcclAllReduce(); got {cross_device_ops!r}."
            )
        self._cross_device_ops = cross_device_ops or NcclAllReduce()
        self._state_layout = layout_for(devices, as_state_layout(state_layout))

    @contextlib.contextmanager
    @override
    def _moved_to(self, planned: tuple[Device, ...]) -> Iterator[tuple[Device, ...]]:
        count = len(groups_of(self._replica_devices)[0])
        devices = grouped(planned, count)
        there = MirroredExtended(
            self._strategy, devices, self._cross_device_ops, self._state_layout
        )
        with moved(self, there, devices):
            yield devices


class MirroredStrategy(Strategy):
    """Synchronous training on the devices of one machine.

    Each device runs a replica. Variables made in its scope have an equal copy on every device,
    updated together through an all-reduce.

    >>> import replicax as rx
    >>> strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> with strategy.scope():
    ...     x = rx.Variable(1.)
    >>> x
    MirroredVariable:{
      0: <rx.Variable 'Variable:0' shape=() dtype=float32, numpy=1.0>,
      1: <rx.Variable 'Variable/replica_1:0' shape=() dtype=float32, numpy=1.0>
    }

    A replica may have several devices, over which its tensors and variables can be split:

    >>> strategy = rx.distribute.MirroredStrategy(
    ...     ["CPU:0", "CPU:1", "CPU:2", "CPU:3"], logical_devices_per_replica=2)
    >>> strategy.num_replicas_in_sync
    2

    Args:
      devices: device names or `jax.Device`s, one for each replica. None or an empty list means all
        GPUs, else all TPUs, else all (virtual) CPU devices.
      cross_device_ops: how values are combined across devices; `NcclAllReduce()` by default.
      logical_devices_per_replica: how many consecutive devices of the list form one replica.
      state_layout: an `rx.distribute.StateLayout`, for state that is kept in parts.
    """

    def __init__(
        self,
        devices: Sequence[Any] | None = None,
        cross_device_ops: CrossDeviceOps | None = None,
        *,
        logical_devices_per_replica: int = 1,
        state_layout: StateLayout | None = None,
    ):
        replicas = grouped(devices, logical_devices_per_replica)
        super().__init__(MirroredExtended(self, replicas, cross_device_ops, state_layout))
