"""Where a function will probably run, before it is traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from replicax._src._typing import Device
from replicax._src.collectives import default_device
from replicax._src.context import (
    Frame,
    StrategyLike,
    is_default,
    is_strategy,
    replica_devices_of,
    replica_id_of,
)
from replicax._src.devices import need_mesh
from replicax._src.functions._arguments import Arguments, Look
from replicax._src.functions._code import captured_objects
from replicax._src.functions._place import Place
from replicax._src.values import DistributedValues, storage_of
from replicax._src.variable import Variable


def first_guess(
    strategy: StrategyLike | None,
    frame: Frame,
    arguments: Arguments,
    earlier: tuple[Device, ...] | None,
    python_function: Callable[..., Any],
) -> Place:
    """Returns where the function will probably run; the trace says if that is wrong.

    Args:
      strategy: on whose devices it runs, if that is known.
      frame: in which it is called.
      arguments: of the call.
      earlier: the devices that an earlier trace has found out.
      python_function: which is to be traced.
    """
    replica = eager_replica(frame)
    if strategy is not None:
        return Place(replica_devices_of(strategy))
    if not is_default(frame):
        devices = replica_devices_of(frame.strategy)
        return Place(devices) if replica is None else Place((devices[replica],), replica)
    for value in arguments.inputs:
        buffers = storage_of(value) if isinstance(value, DistributedValues) else None
        if buffers is not None:
            return Place(buffers.mesh.devices)
    counts = {look.count for look in arguments.looks if isinstance(look, Look)} - {1}
    if earlier is not None and (not counts or len(earlier) in counts):
        return Place(earlier)
    for value in (*arguments.leaves, *captured_objects(python_function)):
        found = value.distribute_strategy if isinstance(value, Variable) else value
        if not is_strategy(found):
            continue
        devices = replica_devices_of(found)
        if len(devices) in counts or (need_mesh(devices) and not counts):
            return Place(devices)
    return Place((default_device(),), is_open=True)


def eager_replica(frame: Frame) -> int | None:
    """Returns the replica that calls, if it is one of several that run eagerly."""
    context = frame.replica_context
    if context is None or is_default(frame) or context.num_replicas_in_sync == 1:
        return None
    return replica_id_of(context)
