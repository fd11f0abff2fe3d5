"""`OneDeviceStrategy`: everything on one device. The smallest complete strategy; start here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, final

from replicax._src._typing import Device, override
from replicax._src.devices import resolve
from replicax._src.strategies._extended import StrategyExtended
from replicax._src.strategies._strategy import Strategy
from replicax._src.variable import Variable


@final
class OneDeviceExtended(StrategyExtended):
    """One replica on the given device; variables are plain ones that live there."""

    def __init__(self, container_strategy: Strategy | None, device: str | Device):
        super().__init__(container_strategy)
        self._place_on((resolve(device),))

    @override
    def _make_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Variable:
        device = self._devices_for(kwargs.pop("colocate_with", None))[0]
        return next_creator(device=device, strategy=self._strategy, **kwargs)

    @override
    def _non_slot_devices(self, var_list: Iterable[Variable]) -> Any:
        return self.worker_devices[0]


class OneDeviceStrategy(Strategy):
    """Runs on one device, with the same program as on many.

    >>> import replicax as rx
    >>> strategy = rx.distribute.OneDeviceStrategy("CPU:1")
    >>> with strategy.scope():
    ...     v = rx.Variable(1.0)
    >>> v.device
    '/job:localhost/replica:0/task:0/device:CPU:1'

    Args:
      device: a device name such as `"GPU:0"`, or a `jax.Device`.
    """

    def __init__(self, device: str | Device):
        super().__init__(OneDeviceExtended(self, device))
