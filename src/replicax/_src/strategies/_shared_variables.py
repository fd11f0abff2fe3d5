"""Variables made inside `strategy.run`: one for all replicas.

Every replica runs the code that makes the variable. Replica 0, which runs first, makes it; the
others are handed the same object when they come to the same place in the user's code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from replicax._src._errors import ReplicaMismatchError
from replicax._src._warnings import users_line
from replicax._src.context import EACH, ReplicaContext, replica_id_of, shared_state_of


def shared_by_replicas(
    context: ReplicaContext, arguments: dict[str, Any], make: Callable[[], Any]
) -> Any:
    """Returns the variable that replica 0 makes at this place in the user's code."""
    if replica_id_of(context) is EACH:
        return make()
    replica_id, shared = replica_id_of(context), shared_state_of(context)
    made: dict[Any, list[Any]] = shared.setdefault("variables", {})
    seen: dict[Any, int] = shared.setdefault(("variables seen", replica_id), {})
    line = users_line()
    place = (arguments.get("name"), line.file, line.number)
    index = seen[place] = seen.get(place, -1) + 1
    so_far = made.setdefault(place, [])
    if index < len(so_far):
        return so_far[index]
    if replica_id != 0:
        raise ReplicaMismatchError(
            f"Replica {replica_id} made a variable ({arguments.get('name') or 'unnamed'}, "
            f"{line.file}:{line.number}) that replica 0 did not make. Variables made inside "
            "strategy.run are shared by all replicas, so all of them must make the same ones. Make "
            "it before strategy.run, in strategy.scope()."
        )
    variable = make()
    so_far.append(variable)
    return variable
