"""`fn.explain(...)`: a function is traced and compiled for arguments, and not run.

With `on="v5e:16x16"` that is done as if its strategies were on planned devices.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from replicax._src import _tree
from replicax._src._planned_arrays import PlannedArray
from replicax._src._typing import PyTree
from replicax._src.context import (
    StrategyLike,
    current_frame,
    default_strategy,
    is_strategy,
    on_planned_devices,
)
from replicax._src.devices import PlannedDevices, ReplicaMesh, planned_devices, replica_mesh
from replicax._src.functions._arguments import Arguments
from replicax._src.functions._captured import look_of
from replicax._src.functions._code import captured_objects
from replicax._src.functions._explanation import Explanation
from replicax._src.functions._programs import AsPython
from replicax._src.functions._retry import Uneven
from replicax._src.values import (
    DistributedValues,
    Mirrored,
    PerReplica,
    ReplicaBuffers,
    is_leaf,
    value_of_buffers,
)
from replicax._src.variable import Variable, VariableGone

if TYPE_CHECKING:
    from replicax._src.functions._function import Function


def explain(
    function: Function[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Explanation:
    """Returns a report on the program for these arguments."""
    given, named = function._bound_arguments(args, kwargs)
    name, retraces = function._name, function._programs.retraces
    try:
        arguments = Arguments(given, named)
    except Uneven as reason:
        return Explanation(name, None, str(AsPython(str(reason))), retraces)
    program = function._programs.find(function.python_function, None, current_frame(), arguments)
    if isinstance(program, AsPython):
        return Explanation(name, None, str(program), retraces)
    try:
        report = program.report(arguments)
    except VariableGone:  # its name may stand for another one now
        function._programs.clear()
        return explain(function, args, kwargs)
    return Explanation(name, report, "as one program", retraces)


def explain_elsewhere(
    function: Function[..., Any],
    on: object,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Explanation:
    """Returns a report on what the program would be on the devices that `on` names."""
    devices = _as_plan(on)
    report = explain(function, args, kwargs).report  # its first call may make variables
    objects = [*captured_objects(function.python_function), *_tree.leaves_of((args, kwargs))]
    objects += [current_frame().strategy, *(report.variables if report else ())]
    owners = [x.distribute_strategy if isinstance(x, Variable) else x for x in objects]
    strategies = list({id(each): each for each in owners if is_strategy(each)}.values())
    strategies = [each for each in strategies if each is not default_strategy()]
    if not strategies:
        raise ValueError(
            f"explain(on={devices.name!r}) of {function._name!r}: it uses no strategy, so there is "
            "nothing to be put on other devices. Call strategy.run in it."
        )
    with _moved(strategies, devices) as meshes:
        args, kwargs = _arguments_there((args, kwargs), meshes[0])
        there = type(function)(function.python_function, None, function._name)
        there._programs.has_created = function._programs.has_created
        return explain(there, args, kwargs)


def _as_plan(on: object) -> PlannedDevices:
    if isinstance(on, PlannedDevices):
        return on
    if isinstance(on, str):
        return planned_devices(on)
    raise TypeError(
        f"`on` is a name such as 'v5e:16x16', or rx.config.planned_devices(...); got {on!r}."
    )


@contextlib.contextmanager
def _moved(
    strategies: Iterable[StrategyLike], devices: PlannedDevices
) -> Iterator[tuple[ReplicaMesh, ...]]:
    """Inside the block, strategies are on planned devices; yields the meshes of their replicas."""
    with contextlib.ExitStack() as stack:
        meshes = [
            replica_mesh(stack.enter_context(on_planned_devices(each, devices)))
            for each in strategies
        ]
        yield tuple(meshes)


def _arguments_there(arguments: PyTree, mesh: ReplicaMesh) -> Any:
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
