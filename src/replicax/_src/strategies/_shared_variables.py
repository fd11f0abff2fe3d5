"""Variables made inside `strategy.run`: one for all replicas.

Every replica runs the code that makes the variable. Replica 0, which runs first, makes it; the
others are handed the same object when they come to the same place in the user's code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from replicax._src._errors import ReplicaMismatchError
from replicax._src.context import EACH, ReplicaContext, replica_id_of, shared_state_of

_PACKAGE = __name__.partition(".")[0]


def shared_by_replicas(
    context: ReplicaContext, arguments: dict[str, Any], make: Callable[[], Any]
) -> Any:
    """The variable that replica 0 made at this place in the user's code; makes it on replica 0."""
    if replica_id_of(context) is EACH:
        return make()
    replica_id, shared = replica_id_of(context), shared_state_of(context)
    made: dict[Any, list[Any]] = shared.setdefault("variables", {})
    seen: dict[Any, int] = shared.setdefault(("variables seen", replica_id), {})
    place = (arguments.get("name"), *_users_line())
    index = seen[place] = seen.get(place, -1) + 1
    so_far = made.setdefault(place, [])
    if index < len(so_far):
        return so_far[index]
    if replica_id != 0:
        raise ReplicaMismatchError(
            f"Replica {replica_id} made a variable ({arguments.get('name') or 'unnamed'}, "
            f"{place[1]}:{place[2]}) that replica 0 did not make. Variables made inside "
            "strategy.run are shared by all replicas, so all of them must make the same ones. Make "
            "it before strategy.run, in strategy.scope()."
        )
    variable = make()
    so_far.append(variable)
    return variable


def _users_line() -> tuple[str, int]:
    frame = sys._getframe(1)
    while frame.f_back is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] != _PACKAGE:
            break
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
