"""`CentralStorageStrategy`: variables on one device, replicas on many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from replicax._src._typing import Device, override
from replicax._src.devices import (
    canonical_name,
    devices_of_kind,
    replica_mesh,
    resolve,
    resolve_all,
)
from replicax._src.strategies._extended import StrategyExtended
from replicax._src.strategies._strategy import Strategy
from replicax._src.variable import AggregatingVariable, VariableSynchronization


@final
class CentralStorageExtended(StrategyExtended):
    """One replica per compute device; one copy of each variable, on the parameter device."""

    def __init__(
        self,
        container_strategy: Strategy | None,
        compute_devices: Sequence[str | Device] | None,
        parameter_device: str | Device | None,
    ):
        devices = resolve_all(compute_devices)
        super().__init__(container_strategy)
        self._place_on(devices)
        if parameter_device is not None:
            home = resolve(parameter_device)
        else:
            home = devices[0] if len(devices) == 1 else devices_of_kind("CPU")[0]
        self._parameter_device = home

    @property
    @override
    def parameter_devices(self) -> tuple[str, ...]:
        return (canonical_name(self._parameter_device),)

    @override
    def _make_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        if kwargs.get("synchronization") is VariableSynchronization.ON_READ:
            # Copies that differ by replica have to be where the replicas are.
            kwargs["colocate_with"] = self.worker_devices
            return super()._make_variable(next_creator, **kwargs)
        kwargs.pop("colocate_with", None)
        mesh = replica_mesh((self._parameter_device,))
        layout = self._state_layout.rule(mesh, kwargs.pop("layout", None), True)
        return AggregatingVariable(self._strategy, mesh, layout=layout, **kwargs)


class CentralStorageStrategy(Strategy):
    """Variables live on one device; replicas on the compute devices copy them when they read.

    Args:
      compute_devices: devices for the replicas; by default as for `MirroredStrategy`.
      parameter_device: where variables live; by default the only compute device, else the CPU.
    """

    def __init__(
        self,
        compute_devices: Sequence[Any] | None = None,
        parameter_device: str | Device | None = None,
    ):
        super().__init__(CentralStorageExtended(self, compute_devices, parameter_device))
