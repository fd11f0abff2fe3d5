"""A strategy as it would be on planned devices, for a while: `fn.explain(..., on="v5e:16x16")`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from replicax._src._typing import Device
from replicax._src.devices import Layout, ReplicaMesh, replica_mesh
from replicax._src.strategies._state_layout import fitting_dim
from replicax._src.variable import moved_to, variables_of

if TYPE_CHECKING:
    from replicax._src.strategies._extended import StrategyExtended


@contextlib.contextmanager
def moved(
    extended: StrategyExtended, elsewhere: StrategyExtended, devices: tuple[Device, ...]
) -> Iterator[None]:
    """Inside the block, a strategy and its variables are on other devices, without values.

    Args:
      extended: of the strategy.
      elsewhere: what takes its place.
      devices: of the replicas there.
    """
    strategy, mesh = extended._strategy, replica_mesh(devices)
    strategy._extended = elsewhere
    try:
        with contextlib.ExitStack() as stack:
            for variable in variables_of(strategy):
                layout = _layout_there(variable.layout, variable.shape, mesh)
                stack.enter_context(moved_to(variable, mesh, layout))
            yield
    finally:
        strategy._extended = extended


def _layout_there(layout: Layout, shape: tuple[int, ...], mesh: ReplicaMesh) -> Layout:
    """Returns the same layout for another number of replicas."""
    over_logical = Layout(layout.parts)
    if layout == over_logical or mesh.size == 1:
        return over_logical
    return Layout(layout.parts, fitting_dim(shape, layout.parts, mesh.size))
