"""A function traced into a program: once, or once for each shape that replicas' arguments have."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr

from replicax._src import _jax_internals
from replicax._src._typing import Tracer
from replicax._src.devices import REPLICA_AXIS
from replicax._src.functions._arguments import Arguments, Kind
from replicax._src.functions._captured import Shape
from replicax._src.functions._place import Place
from replicax._src.functions._retry import Uneven, UnevenShapes
from replicax._src.functions._returned import Returned
from replicax._src.functions._trace import Entry, ProgramTrace
from replicax._src.functions._traced_world import TracedWorld
from replicax._src.functions._variants import CannotMerge, Variant, merge
from replicax._src.variable import Variable, copies_differ

_MOST_VARIANTS = 4  # shares are full, partial or empty; each further shape is compiled as well


@dataclasses.dataclass(frozen=True)
class Traced:
    """A traced function.

    Attributes:
      program: takes the constants, the arguments, and the inputs that the trace has found. Gives
        what was returned, what is deferred, and the values of the variables that were written.
      constants: arrays that it captured.
      trace: the variables that it uses.
      returned: what the function returned.
    """

    program: ClosedJaxpr
    constants: list[Any]
    trace: ProgramTrace
    returned: Returned


def trace_function(
    body: Callable[..., Any],
    user_fn: Callable[..., Any],
    arguments: Arguments,
    place: Place,
    may_create: bool,
    refs: Collection[Variable],
    world: Callable[[ProgramTrace], TracedWorld] = TracedWorld,
) -> Traced:
    """Calls the function once, with tracers for its arguments.

    Args:
      body: what is called.
      user_fn: whose name and line JAX's error messages give.
      arguments: of the call.
      place: where the program will run.
      may_create: whether variables may be made.
      refs: the variables that inner functions read and change.
      world: makes the world of the trace.
    """
    inputs = None if arguments.variants else arguments.laid_out(place)
    found: list[tuple[ProgramTrace, Returned]] = []

    def flat(*tracers: jax.Array) -> list[Any]:
        trace = ProgramTrace(place, may_create, refs, inputs)
        with trace.active(world(trace)):
            args, kwargs = arguments.rebuilt(tracers, place.mesh)
            returned = Returned(body(*args, **kwargs), trace)
            results, returned.arrays = returned.arrays, []
            results += [jnp.asarray(value) for _, _, value in trace.deferred]
            results += trace.final_values()
        trace.finish()
        found.append((trace, returned))
        return results

    program, constants = _program_of(flat, user_fn, arguments.input_looks(place.mesh), place)
    if any(isinstance(each, Tracer) for each in constants):
        raise jax.errors.UnexpectedTracerError(
            "A value of a function that was traced before is used here: it was kept in a "
            "global, a list or an attribute. Return it from that function instead."
        )
    return Traced(program, constants, *found[0])


def trace_variants(
    body: Callable[..., Any],
    user_fn: Callable[..., Any],
    arguments: Arguments,
    place: Place,
    may_create: bool,
    refs: Collection[Variable],
) -> Traced:
    """Traces once for each distinct shape of a replica's arguments, and merges the programs.

    Raises:
      Uneven: they cannot be one program.
    """
    _require_variants(arguments, place)
    traces = [
        trace_function(body, user_fn, arguments.of_variant(number), place, may_create, refs)
        for number in range(len(arguments.variants))
    ]
    first = traces[0]
    if any(each.trace.meetings != first.trace.meetings for each in traces):
        raise Uneven("replicas meet in different ways with another number of rows")
    if not all(each.returned.is_like(first.returned) for each in traces):
        raise Uneven("what it returns differs in more than shapes with another number of rows")
    looks = arguments.input_looks(place.mesh)
    variants = [_variant(each, first, len(looks)) for each in traces]
    shapes: list[list[Shape]] = []
    alike: list[bool] = []

    def flat(*tracers: jax.Array) -> list[Any]:
        outputs, shapes[:], alike[:] = merge(variants, tracers[len(looks) - 1], tracers)
        return outputs

    further = first.program.jaxpr.invars[len(first.constants) + len(looks) :]
    try:
        program, constants = _program_of(
            flat, user_fn, [*looks, *(each.aval for each in further)], place
        )
    except CannotMerge as reason:
        raise Uneven(str(reason)) from None
    _require_the_same_on_all(first, shapes, alike)
    first.returned.shapes = {
        index: shapes[index] for index in range(first.returned.count) if len(set(shapes[index])) > 1
    }
    return dataclasses.replace(first, program=program, constants=constants)


def _program_of(
    flat: Callable[..., list[Any]], user_fn: Callable[..., Any], looks: Sequence[Any], place: Place
) -> tuple[ClosedJaxpr, list[Any]]:
    names = [f"number {index}" for index in range(len(looks))]
    mesh = place.mesh
    axes = [] if mesh is None else [(REPLICA_AXIS, mesh.size)]
    return _jax_internals.trace_to_program(
        flat, user_fn, names, looks, axes, None if mesh is None else mesh.inside
    )


def _require_variants(arguments: Arguments, place: Place) -> None:
    shapes = f"the replicas have different shapes: {arguments.said_shapes()}"
    if len(arguments.variants) > _MOST_VARIANTS:
        raise UnevenShapes(f"{shapes}. A program has {_MOST_VARIANTS} of them at most")
    if place.mesh is None or not place.mesh.takes_variants:
        raise UnevenShapes(shapes)


def _variant(traced: Traced, first: Traced, arguments: int) -> Variant:
    """A trace with its inputs and outputs in the order of the first one's."""
    positions = {
        _name(each): index for index, each in enumerate(first.trace.inputs, start=arguments)
    }
    if {_name(each) for each in traced.trace.inputs} != positions.keys():
        raise Uneven("it reads other variables with another number of rows")
    written = [id(entry.variable) for entry in traced.trace.written]
    wanted = [id(entry.variable) for entry in first.trace.written]
    if set(written) != set(wanted):
        raise Uneven("it assigns other variables with another number of rows")
    assert not traced.trace.deferred  # that is for one eager replica
    count = traced.returned.count
    return Variant(
        traced.program,
        [
            *traced.constants,
            *range(arguments),
            *(positions[_name(each)] for each in traced.trace.inputs),
        ],
        [*range(count), *(count + written.index(each) for each in wanted)],
    )


def _require_the_same_on_all(
    first: Traced, shapes: Sequence[Sequence[Shape]], alike: Sequence[bool]
) -> None:
    """Refuses what should be equal on all replicas, and depends on their number of rows.

    A trace speaks for some replicas, and takes what is not theirs alone for the same on all.
    """
    kinds = first.returned.kinds
    for entry, is_alike in zip(first.trace.written, alike[len(kinds) :], strict=True):
        if not (is_alike or copies_differ(entry.variable)):
            name = entry.variable.name
            raise Uneven(f"what it assigns to {name!r} depends on the number of rows")
    for kind, by_variant, is_alike in zip(kinds, shapes, alike):
        if kind is not Kind.PER_REPLICA and not is_alike:
            raise Uneven("what it returns depends on the number of rows")
        if not math.prod(map(max, *by_variant)):
            raise Uneven("a result has no items")


def _name(input_of_trace: object) -> Any:
    """The same for the same input of another trace."""
    if isinstance(input_of_trace, Entry):
        return id(input_of_trace.variable), input_of_trace.passage
    return id(input_of_trace)
