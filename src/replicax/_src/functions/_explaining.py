"""`fn.explain(...)`: a function is traced and compiled for arguments, and not run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from replicax._src import _tree
from replicax._src.context import current_frame, default_strategy
from replicax._src.devices import PlannedDevices
from replicax._src.functions._arguments import Arguments
from replicax._src.functions._as_python import AsPython
from replicax._src.functions._code import captured_objects
from replicax._src.functions._elsewhere import arguments_there, moved, strategies_in
from replicax._src.functions._explanation import Explanation
from replicax._src.functions._retry import Uneven
from replicax._src.variable import VariableGone

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
    devices: PlannedDevices,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Explanation:
    """Returns a report on what the program would be on planned devices."""
    report = explain(function, args, kwargs).report  # its first call may make variables
    objects = [*captured_objects(function.python_function), *_tree.leaves_of((args, kwargs))]
    objects += [current_frame().strategy, *(report.variables if report else ())]
    strategies = [each for each in strategies_in(objects) if each is not default_strategy()]
    if not strategies:
        raise ValueError(
            f"explain(on={devices.name!r}) of {function._name!r}: it uses no strategy, so there is "
            "nothing to be put on other devices. Call strategy.run in it."
        )
    with moved(strategies, devices) as meshes:
        args, kwargs = arguments_there((args, kwargs), meshes[0])
        there = type(function)(function.python_function, None, function._name)
        there._programs.has_created = function._programs.has_created
        return explain(there, args, kwargs)
