"""A function as it would be on planned devices: `fn.explain(..., on="v5e:16x16")`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from replicax._src import _tree
from replicax._src._planned_arrays import PlannedArray
from replicax._src._typing import PyTree
from replicax._src.context import StrategyLike, is_strategy, on_planned_devices
from replicax._src.devices import PlannedDevices, ReplicaMesh, planned_devices, replica_mesh
from replicax._src.functions._captured import look_of
from replicax._src.functions._retry import Uneven
from replicax._src.values import (
    DistributedValues,
    Mirrored,
    PerReplica,
    ReplicaBuffers,
    is_leaf,
    value_of_buffers,
)
from replicax._src.variable import Variable


def as_plan(on: object) -> PlannedDevices:
    """Returns the devices that an argument `on` names."""
    if isinstance(on, PlannedDevices):
        return on
    if isinstance(on, str):
        return planned_devices(on)
    raise TypeError(
        f"`on` is a name such as 'v5e:16x16', or rx.config.planned_devices(...); got {on!r}."
    )


def strategies_in(objects: Iterable[Any]) -> list[StrategyLike]:
    """Returns the strategies among some objects, and those of the variables among them."""
    found: dict[int, Any] = {}
    for each in objects:
        owner = each.distribute_strategy if isinstance(each, Variable) else each
        if is_strategy(owner):
            found[id(owner)] = owner
    return list(found.values())


@contextlib.contextmanager
def moved(
    strategies: Iterable[StrategyLike], devices: PlannedDevices
) -> Iterator[tuple[ReplicaMesh, ...]]:
    """Inside the block, strategies are on planned devices; yields the meshes of their replicas."""
    with contextlib.ExitStack() as stack:
        meshes = [
            replica_mesh(stack.enter_context(on_planned_devices(each, devices)))
            for each in strategies
        ]
        yield tuple(meshes)


def arguments_there(arguments: PyTree, mesh: ReplicaMesh) -> Any:
    """Arguments as they would be there: every replica has as much as one has here."""

    def there(leaf: object) -> Any:
        if isinstance(leaf, Variable) or not isinstance(leaf, DistributedValues):
            return leaf
        try:
            look = look_of(leaf)
        except Uneven:
            look = look_of(PerReplica([leaf.values[0]]))
        array = PlannedArray.of_shape(look[0], look[1], mesh.replicated)
        kind = Mirrored if isinstance(leaf, Mirrored) else PerReplica
        return value_of_buffers(kind, ReplicaBuffers(mesh, assembled=array))

    return _tree.map_structure(there, arguments, is_leaf)
