"""Replicas in a program that is being traced: one call of the replica function for all of them.

It is called with each replica's components as tracers. Where replicas meet there is nobody to wait
for, only values that differ from replica to replica.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from replicax._src._tree import leaves_of, map_structure
from replicax._src._typing import Device, PyTree
from replicax._src.context import (
    EachReplicaContext,
    Frame,
    Handler,
    ReplicaContext,
    StrategyLike,
    World,
    entered,
)
from replicax._src.devices import replicas_on
from replicax._src.functions._trace import ProgramTrace
from replicax._src.values import (
    Mirrored,
    is_leaf,
    per_replica_type,
    regroup_traced,
    select_replica,
    value_of_buffers,
)
from replicax._src.variable import DistributedVariable, copies_differ, mesh_of


def run_in_trace(
    program: ProgramTrace,
    world_of: Callable[[ProgramTrace], World],
    strategy: StrategyLike,
    devices: tuple[Device, ...],
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Returns what `fn(*args, **kwargs)` returns on the replicas, merged into one structure.

    Args:
      program: that is being traced.
      world_of: makes the world of such a program.
      strategy: that runs the replicas.
      devices: of these.
      fn: the replica function.
      args: of each replica, with `kwargs`.
      kwargs: the same, by name.
    """
    program.require_devices(strategy, devices)
    program.runs += 1
    if replicas_on(devices) == 1:
        with entered(Frame(strategy, ReplicaContext(strategy, 0))):
            return fn(*select_replica(0, args), **select_replica(0, kwargs))
    mesh = program.mesh
    assert mesh is not None
    start = program.operations_so_far()
    with program.replicas(fn) as provenance:

        def meet(
            key: Hashable, what: str, payload: PyTree, handler: Handler, keep_same: bool
        ) -> Any:
            program.end_turns()
            program.note_meeting(key)
            is_same = provenance.is_same if keep_same else None
            if keep_same and _has_numbers(payload):
                program.require_one_shape("meet with a number that may be their number of rows")
            with entered(Frame(strategy)), program.ended_runs.meeting():
                result = handler(regroup_traced(payload, mesh, is_same=is_same))
            return provenance.handed_out(result)

        context = EachReplicaContext(strategy, meet)
        args, kwargs = provenance.handed_out((args, kwargs))
        with entered(Frame(strategy, context)):
            result = fn(*args, **kwargs)
        if program.variant is not None and program.variant.leftovers is not None:
            leftovers = program.variant.leftovers

            def run_beside(arguments: Any) -> None:
                beside = program.beside(leftovers.replica)
                with beside.active(world_of(beside)):
                    run_in_trace(beside, world_of, strategy, devices, fn, *arguments)
                beside.finish()

            leftovers.leave((args, kwargs), mesh.inside, fn, run_beside)
        if _has_numbers(result):
            program.require_one_shape("return a number that may be their number of rows")
        merged = regroup_traced(result, mesh, is_same=provenance.is_same)

        def with_copies(leaf: object) -> Any:
            """Returns each replica's copy of a variable that they return: `return v.assign(x)`."""
            if not isinstance(leaf, DistributedVariable) or mesh_of(leaf) is not mesh:
                return leaf
            kind = per_replica_type(mesh.devices) if copies_differ(leaf) else Mirrored
            return value_of_buffers(kind, program.storage_of(leaf))

        merged = map_structure(with_copies, merged, is_leaf)
    program.end_run(start, merged)
    return merged


def _has_numbers(structure: PyTree) -> bool:
    return any(isinstance(leaf, int | float | complex) for leaf in leaves_of(structure, is_leaf))
