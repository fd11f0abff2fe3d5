"""The default strategy: one replica, plain variables, no communication.

It is current wherever no other is in scope. Importing this file fills the slots in
`context/_stack.py`, for the strategy and for the eager world; these are the links upwards in the
package.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, final

from replicax._src._typing import Device, override
from replicax._src.collectives import destination_devices
from replicax._src.context import Frame, ReplicaContext, fill_default_slot, fill_world_slot
from replicax._src.executors import EagerWorld
from replicax._src.strategies._extended import StrategyExtended
from replicax._src.strategies._strategy import Strategy
from replicax._src.variable import Variable


@final
class DefaultExtended(StrategyExtended):
    """One replica on the default device; variables are plain ones."""

    @override
    def _make_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Variable:
        place = kwargs.pop("colocate_with", None)
        device: Device | None = None if place is None else destination_devices(place)[0]
        return next_creator(device=device, **kwargs)

    @override
    def _non_slot_devices(self, var_list: Iterable[Variable]) -> Any:
        return min(var_list, key=lambda variable: variable.name)

    @override
    def variable_created_in_scope(self, v: object) -> bool:
        """Returns whether `v` is a variable of no other strategy."""
        return isinstance(v, Variable) and v.distribute_strategy is None

    @contextlib.contextmanager
    @override
    def _updating(self, index: int, device: Device) -> Iterator[None]:
        yield  # the one replica's context is where updates happen anyway

    @override
    def _validate_colocate_with(self, target: object) -> None:
        destination_devices(target)


class DefaultStrategy(Strategy):
    """What `rx.distribute.get_strategy()` returns outside of every scope."""

    def __init__(self) -> None:
        super().__init__(DefaultExtended(self))


_default = DefaultStrategy()
fill_world_slot(EagerWorld())
fill_default_slot(Frame(_default, ReplicaContext(_default, 0)))
