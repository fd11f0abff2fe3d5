"""What other rooms may do with the inside of replica contexts, which users are not to see."""

# Of this room: tests/test_architecture.py draws the line between rooms.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from replicax._src._errors import WrongContextError
from replicax._src._typing import PyTree
from replicax._src.context._replica import Handler, ReplicaContext
from replicax._src.context._stack import Frame, entered


def replica_id_of(context: ReplicaContext) -> Any:
    """Returns the replica's number among those of this process; `EACH` in a trace for all."""
    return context._replica_id


def replica_number_of(context: ReplicaContext) -> Any:
    """Returns the replica's number among those of all workers."""
    return context._number


def shared_state_of(context: ReplicaContext) -> dict[Any, Any]:
    """Returns what the replicas of one run have in common."""
    return context._shared


def meet_replicas(
    context: ReplicaContext,
    key: Hashable,
    what: str,
    payload: PyTree,
    handler: Handler,
    keep_same: bool = False,
) -> Any:
    """Brings `payload` to a meeting of all replicas; returns this replica's result.

    `handler` is called once, in cross-replica context, with the payloads merged into one
    structure of per-replica values. This replica gets its components of what it returns. With
    one replica there is nothing to merge and nothing to select.

    Args:
      context: of the replica that calls.
      key: must be equal on all replicas.
      what: what this replica did, for error messages.
      payload: a structure, alike on all replicas.
      handler: what happens at the meeting.
      keep_same: leave what is the very same object on all replicas as that object.
    """
    if context._meet_others is not None:
        return context._meet_others(key, what, payload, handler, keep_same)
    if context.num_replicas_in_sync != 1:
        raise WrongContextError(
            f"{what}: this ReplicaContext was made by hand, so there are no other replicas to "
            "meet. Use the one that rx.distribute.get_replica_context() returns inside "
            "strategy.run."
        )
    with entered(Frame(context.strategy)):
        return handler(payload)


def leave_meetings(context: ReplicaContext) -> None:
    """Called when the replica has ended: it takes part in no more meetings."""
    context._meet_others = None
