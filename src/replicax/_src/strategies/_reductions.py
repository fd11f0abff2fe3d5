"""Reductions of a strategy: what has to be combined, and what is the same on all replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from replicax._src import _tree
from replicax._src._arrays import for_mean
from replicax._src._typing import PyTree
from replicax._src.collectives import (
    CommunicationOptions,
    ReduceOp,
    array_of,
    default_device,
    mirror,
    require_summable,
)
from replicax._src.context import world
from replicax._src.strategies._arguments import check_axes
from replicax._src.values import (
    ArrayLike,
    DistributedValues,
    Mirrored,
    PerReplica,
    array_here,
    storage_of,
    value_of_buffers,
)
from replicax._src.variable import DistributedVariable, MirroredVariable

if TYPE_CHECKING:
    from replicax._src.strategies._extended import StrategyExtended
    from replicax._src.strategies._hooks import StrategyHooks

Axes = int | Sequence[int]


def reduced(
    extended: StrategyExtended, op: ReduceOp, leaves: Sequence[Any], axis: Axes | None
) -> list[Any]:
    """Returns the reductions of values as arrays: over the replicas, and over `axis` as well."""
    if axis is None:
        return _totals(extended, op, leaves)
    sums = [_sums(extended, leaf, axis, op) for leaf in leaves]
    totals = _totals(extended, ReduceOp.SUM, sums)
    if op is ReduceOp.SUM:
        return totals
    axes = axis if isinstance(axis, Sequence) else (axis,)
    count, over_workers = world().replicas.number_of_items, extended._sync_group.total
    counts = [count(_spread(extended, leaf), axes, over_workers) for leaf in leaves]
    return [total / number for total, number in zip(totals, counts, strict=True)]


def joined(extended: StrategyHooks, leaf: object, axis: int) -> Any:
    """Returns the replicas' arrays joined along `axis`, as an array on the default device."""
    value = PerReplica([leaf])  # one array for all replicas is gathered already
    if isinstance(leaf, DistributedValues):
        value = world().replicas.map_components(lambda part: _as_array(part, "gather"), leaf)
    return extended._gather_to(value, default_device(), axis)


def _totals(extended: StrategyExtended, op: ReduceOp, values: Sequence[Any]) -> list[Any]:
    device = default_device()
    pairs = [(value, device) for value in values]
    return [array_here(each) for each in extended.batch_reduce_to(op, pairs)]


def _as_array(part: object, what: str) -> jax.Array:
    return array_here(part) if isinstance(part, ArrayLike) else array_of(part, what)


def _sums(extended: StrategyHooks, value: PyTree, axis: Axes, op: ReduceOp) -> PerReplica:
    def total(part: object) -> jax.Array:
        part = _as_array(part, "reduce")
        require_summable(part, "A reduction")
        check_axes(part, axis, "reduce")
        axes: Any = tuple(axis) if isinstance(axis, list) else axis
        with world().beside(part):
            part = for_mean(part) if op is ReduceOp.MEAN else part
            # jnp.sum would make small integers larger ones, which a sum over replicas does not.
            return jnp.sum(part, axis=axes, dtype=part.dtype)

    return world().replicas.map_components(total, _spread(extended, value))


def _spread(extended: StrategyHooks, value: object) -> DistributedValues:
    """Returns `value` with one component per replica, also where all have the same."""
    if isinstance(value, DistributedValues):
        return value
    return Mirrored([value] * extended._local_replicas)


def reduce_pairs(
    extended: StrategyHooks,
    op: ReduceOp,
    pairs: Sequence[tuple[Any, Any]],
    options: CommunicationOptions,
) -> list[Any]:
    """Returns the reduction of each `(value, destinations)` pair."""
    given = [(extended._sync_group.as_value(value), place) for value, place in pairs]
    results = [
        None if may_differ(value) else same_for_all(extended, op, value, place)
        for value, place in given
    ]
    differing = [pair for pair, result in zip(given, results, strict=True) if result is None]
    if not differing:
        return results
    totals = iter(extended._batch_reduce_to(op, differing, options))
    return [next(totals) if result is None else result for result in results]


def may_differ(value: object) -> bool:
    """Returns whether a value may differ from replica to replica, so that it has to be combined."""
    is_mirrored = isinstance(value, Mirrored | MirroredVariable)
    return isinstance(value, DistributedValues) and not is_mirrored


def same_for_all(extended: StrategyHooks, op: ReduceOp, value: object, destinations: object) -> Any:
    """Returns the reduction of what is the same on all replicas."""
    devices = extended._devices_of(destinations)
    replicas = extended._num_replicas_in_sync
    if isinstance(value, DistributedValues):
        if op is ReduceOp.MEAN:
            return value
        raise ValueError(
            "A Mirrored value is the same on all replicas, so its SUM is not what it seems "
            f"({replicas} times the value). Use ReduceOp.MEAN, or multiply "
            "by strategy.num_replicas_in_sync if that is meant."
        )
    if isinstance(value, int | float) and value == 0:
        return 0
    if replicas > 1 and op is ReduceOp.SUM:
        raise ValueError(
            f"ReduceOp.SUM was given a value that is not per replica: {_tree.describe(value)}. "
            "One array is the same on every replica, and its sum over them is probably not "
            "meant. Pass the result of strategy.run, use ReduceOp.MEAN, or multiply by "
            "strategy.num_replicas_in_sync. If the replicas returned a Python number, such as "
            "x.shape[0], return an array: rx.constant(x.shape[0])."
        )
    return mirror(array_of(value, "A reduction"), devices)


def copies_of(value: PyTree) -> Any:
    """Returns a sync-on-read variable as the per-replica value that its copies are."""
    if isinstance(value, DistributedVariable):
        return value_of_buffers(PerReplica, storage_of(value))
    return value
