"""`extended.update`: a function on each copy of a variable, or on each device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from replicax._src import _tree
from replicax._src._typing import Device, PyTree
from replicax._src.context import copy_for, world
from replicax._src.values import DistributedValues, component, is_leaf, local_count
from replicax._src.variable import DistributedVariable, Variable, own_storage

if TYPE_CHECKING:
    from replicax._src.strategies._hooks import StrategyHooks


def update_variable(
    extended: StrategyHooks,
    variable: Variable,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    group: bool,
) -> PyTree:
    """Calls `fn(copy, *args, **kwargs)` for each copy; returns the results as `update` does."""
    devices = extended._devices_of(variable)
    if not isinstance(variable, DistributedVariable):
        with extended._updating(0, devices[0]):
            result = fn(variable, *args, **kwargs)
        return result if group else _tree.map_structure(lambda x: (x,), result, is_leaf)
    copies = devices[: own_storage(variable).copies]
    merged = update_devices(
        extended,
        copies,
        lambda index, *args, **kwargs: fn(component(variable, index), *args, **kwargs),
        args,
        kwargs,
    )
    return merged if group else ungrouped(extended, merged, len(devices) // len(copies))


def update_devices(
    extended: StrategyHooks,
    devices: Sequence[Device],
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> PyTree:
    """Calls `fn(number, *args, **kwargs)` for each device, or for all at once; merges the results.

    The arguments are those of one copy: mirrored values are replaced by their component.
    """

    def update(index: Any) -> PyTree:
        part_args, part_kwargs = select_components(index, (args, kwargs))
        return fn(index, *part_args, **part_kwargs)

    return world().replicas.update_copies(devices, extended._updating, update)


def ungrouped(extended: StrategyHooks, merged: PyTree, devices_of_a_copy: int = 1) -> PyTree:
    """Returns the results of an update with a tuple at each leaf: an item for each device."""

    def for_devices(leaf: object) -> tuple[Any, ...]:
        if isinstance(leaf, DistributedValues):
            return extended._local_results(leaf)
        return (leaf,) * devices_of_a_copy

    return _tree.map_structure(for_devices, merged, is_leaf)


def select_components(index: Any, structure: PyTree) -> PyTree:
    """Returns one copy's view of `structure`: the components of values and variables."""

    def pick(leaf: object) -> object:
        if isinstance(leaf, DistributedValues):
            return component(leaf, copy_for(index, local_count(leaf)))
        return leaf

    return _tree.map_structure(pick, structure, is_leaf)
