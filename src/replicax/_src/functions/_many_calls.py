"""`step.steps(...)`: one call of a program for each run of items that look alike."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from replicax._src import _jax_internals
from replicax._src.context import Frame, current_frame, is_compiling
from replicax._src.functions._arguments import Arguments
from replicax._src.functions._many import joined
from replicax._src.functions._program import Program
from replicax._src.functions._retry import Uneven
from replicax._src.variable import VariableGone

if TYPE_CHECKING:
    from replicax._src.functions._function import Function


def call_many(
    function: Function[..., Any], items: Sequence[Any], last_only: bool, body: Callable[..., Any]
) -> Any:
    """Returns the results of calls of `body` on each of `items`, by the programs of `function`."""
    frame = current_frame()
    if runs_inside(frame):
        singles = [(body(item), 1) for item in items]
        return singles[-1][0] if last_only else joined(singles)
    if function._observer is not None:  # who is to see each call
        singles = [(function._observed(body, None, frame, (item,), {}), 1) for item in items]
        return singles[-1][0] if last_only else joined(singles)
    results: list[Any] = []
    alike = itertools.groupby(
        [(item, _arguments_of(function, item)) for item in items],
        key=lambda pair: None if pair[1] is None else pair[1].key,
    )
    for key, group in alike:
        pairs: list[Any] = list(group)
        program: Any = None
        if key is not None:
            program = function._programs.find(body, None, frame, pairs[0][1])
            if isinstance(program, Program) and program.creates:
                results.append((program(pairs.pop(0)[1]), 1))
                if pairs:
                    program = function._programs.find(body, None, frame, pairs[0][1])
        if isinstance(program, Program) and len(pairs) > 1 and program.can_loop:
            many = [arguments for _, arguments in pairs]
            try:
                result = program.call_many(many, last_only)
            except VariableGone:  # its name may stand for another one now
                function._programs.clear()
                result = call_many(function, [item for item, _ in pairs], last_only, body)
            results.append((result, len(pairs)))
        else:
            results += [(function._call(body, None, frame, (item,), {}), 1) for item, _ in pairs]
    if last_only:
        return results[-1][0]
    if len(results) == 1 and results[0][1] > 1:
        return results[0][0]
    return joined(results)


def runs_inside(frame: Frame) -> bool:
    """Returns whether a call is a part of a program that is being traced, or of an update."""
    return is_compiling() or _jax_internals.is_tracing() or frame.update_replica_id is not None


def _arguments_of(function: Function[..., Any], item: object) -> Arguments | None:
    """Returns the arguments of a call with `item`; None if it cannot be compiled."""
    args, kwargs = function._bound_arguments((item,), {})
    try:
        return Arguments(args, kwargs)
    except Uneven:
        return None
