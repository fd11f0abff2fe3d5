"""`MirroredStrategy`: a replica on each device, equal copies of every variable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from replicax.collectives import CrossDeviceOps, NcclAllReduce
from replicax.devices import canonical_names, resolve_all
from replicax.strategies._extended import StrategyExtended
from replicax.strategies._strategy import Strategy


class MirroredExtended(StrategyExtended):
    """One replica per device; variables are mirrored or sync-on-read over all of them."""

    def __init__(self, container_strategy: Any, devices: Any, cross_device_ops: Any):
        super().__init__(container_strategy)
        if isinstance(cross_device_ops, type) or not isinstance(
            cross_device_ops, CrossDeviceOps | None
        ):
            raise TypeError(
                "`cross_device_ops` must be an instance of a rx.distribute.CrossDeviceOps "
                f"subclass, for example rx.distribute.NcclAllReduce(); got {cross_device_ops!r}."
            )
        self._device_names = canonical_names(resolve_all(devices))
        self._cross_device_ops = cross_device_ops or NcclAllReduce()

    @property
    def worker_devices(self) -> tuple[str, ...]:
        return self._device_names


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

    Args:
      devices: device names or `jax.Device`s, one for each replica. None or an empty list means all
        GPUs, else all TPUs, else all (virtual) CPU devices.
      cross_device_ops: how values cross devices; `NcclAllReduce()` by default.
    """

    def __init__(
        self,
        devices: Sequence[Any] | None = None,
        cross_device_ops: CrossDeviceOps | None = None,
    ):
        super().__init__(MirroredExtended(self, devices, cross_device_ops))
