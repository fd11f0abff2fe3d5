"""Reductions of a strategy: what has to be combined, and what is the same on all replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from replicax._src import _tree
from replicax._src._typing import PyTree
from replicax._src.collectives import CommunicationOptions, ReduceOp, array_of, mirror
from replicax._src.values import (
    DistributedValues,
    Mirrored,
    PerReplica,
    storage_of,
    value_of_buffers,
)
from replicax._src.variable import DistributedVariable, MirroredVariable

if TYPE_CHECKING:
    from replicax._src.strategies._extended import StrategyExtended


def reduce_pairs(
    extended: StrategyExtended,
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


def same_for_all(
    extended: StrategyExtended, op: ReduceOp, value: object, destinations: object
) -> Any:
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
