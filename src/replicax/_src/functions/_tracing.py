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
from replicax._src.functions._arguments import Arguments, Kind, Look
from replicax._src.functions._captured import Shape
from replicax._src.functions._flat_variant import CannotMerge, Variant
from replicax._src.functions._leftovers import Leftovers
from replicax._src.functions._making import Making
from replicax._src.functions._passage import Entry
from replicax._src.functions._place import Place
from replicax._src.functions._retry import NumberNeeded, Retry, Uneven, UnevenShapes
from replicax._src.functions._returned import Returned
from replicax._src.functions._trace import ProgramTrace, VariantTrace
from replicax._src.functions._traced_world import TracedWorld
from replicax._src.functions._variants import merge
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
      made_variables: whether variables were made, and this is the program with which one goes on.
    """

    program: ClosedJaxpr
    constants: list[Any]
    trace: ProgramTrace
    returned: Returned
    made_variables: bool = False


def trace_function(
    body: Callable[..., Any],
    user_fn: Callable[..., Any],
    arguments: Arguments,
    place: Place,
    making: Making,
    refs: Collection[Variable],
    leftovers: Leftovers | None = None,
    world: Callable[[ProgramTrace], TracedWorld] = TracedWorld,
) -> Traced:
    """Calls the function once, with tracers for its arguments.

    Args:
      body: what is called.
      user_fn: whose name and line JAX's error messages give.
      arguments: of the call.
      place: where the program will run.
      making: whether variables may be made, and what earlier traces of this call have made.
      refs: the variables that inner functions read and change.
      leftovers: of a variant: what replicas leave in Python, if that has to be right.
      world: makes the world of the trace.

    Raises:
      NumberNeeded: Python needs the number of each replica.
    """
    variant: VariantTrace | None = None
    inputs: Sequence[Any] = ()
    if not arguments.variants:
        inputs = arguments.laid_out(place)
    else:
        assert place.mesh is not None
        variant = VariantTrace(arguments.replica, leftovers)
        if making.is_allowed:
            inputs = arguments.of_first_replica(place.mesh)
    worlds: list[TracedWorld] = []
    found: list[tuple[ProgramTrace, Returned]] = []

    def flat(*tracers: jax.Array) -> list[Any]:
        trace = ProgramTrace(place, making.is_allowed, refs, inputs, variant)
        worlds.append(world(trace))
        with trace.active(worlds[-1]):
            args, kwargs = arguments.rebuilt(tracers, place.mesh)
            returned = Returned(body(*args, **kwargs), trace)
            results, returned.arrays = returned.arrays, []
            results += [jnp.asarray(value) for _, _, value in trace.deferred]
            results += trace.final_values()
            trace.ended_runs.require_nothing_left(results)
        trace.finish()
        found.append((trace, returned))
        return results

    try:
        program, constants = _program_of(flat, user_fn, arguments.input_looks(place.mesh), place)
    except Retry:
        making.given_up(worlds[-1].program)
        raise
    except Exception:
        # Perhaps for these reasons; if not, it fails again.
        if any(each.program.has_told_number for each in worlds):
            making.given_up(worlds[-1].program)
            raise NumberNeeded from None
        if any(each.has_guessed_shapes for each in worlds):
            making.given_up(worlds[-1].program)
            raise Uneven("what replicas gather may have other shapes on others") from None
        raise
    if any(isinstance(each, Tracer) for each in constants):
        raise jax.errors.UnexpectedTracerError(
            "A value of a function that was traced before is used here: it was kept in a "
            "global, a list or an attribute. Return it from that function instead."
        )
    making.require_again(found[0][0])
    return Traced(program, constants, *found[0])


def trace_variants(
    body: Callable[..., Any],
    user_fn: Callable[..., Any],
    arguments: Arguments,
    place: Place,
    making: Making,
    refs: Collection[Variable],
) -> Traced:
    """Traces once for each distinct shape of a replica's arguments, and merges the programs.

    Raises:
      Uneven: they cannot be one program.
    """
    _require_variants(arguments, place)
    traces, made_variables = _trace_each(body, user_fn, arguments, place, making, refs)
    first = traces[0]
    if any(each.trace.meetings != first.trace.meetings for each in traces):
        raise Uneven("replicas meet in different ways with another number of rows")
    if not all(each.returned.is_like(first.returned) for each in traces):
        raise Uneven("what it returns differs in more than shapes with another number of rows")
    looks = arguments.input_looks(place.mesh)
    variants = [_variant(each, first, len(looks)) for each in traces]
    shapes: list[list[Shape]] = []
    alike: list[bool] = []
    assert place.mesh is not None
    may_branch = place.mesh.may_branch

    def flat(*tracers: jax.Array) -> list[Any]:
        outputs, shapes[:], alike[:] = merge(variants, tracers[len(looks) - 1], tracers, may_branch)
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
    return dataclasses.replace(
        first, program=program, constants=constants, made_variables=made_variables
    )


def _trace_each(
    body: Callable[..., Any],
    user_fn: Callable[..., Any],
    arguments: Arguments,
    place: Place,
    making: Making,
    refs: Collection[Variable],
) -> tuple[list[Traced], bool]:
    """Returns the traces of all variants, and whether variables were made."""
    assert place.mesh is not None
    leftovers: Leftovers | None = None

    def traced(number: int, making: Making) -> Traced:
        variant = arguments.of_variant(number)
        try:
            return trace_function(body, user_fn, variant, place, making, refs, leftovers)
        except jax.errors.UnexpectedTracerError:
            if leftovers is None:
                raise
            raise Uneven("a run uses an array that an earlier one has left in Python") from None

    numbers = range(len(arguments.variants))
    made_variables = False
    known: dict[int, Traced] = {}
    later = Making(is_allowed=False)
    if making.is_allowed:  # as the first replica here would
        number = arguments.which_here(place.mesh)[0]
        known[number] = creating = traced(number, making)
        made_variables = bool(creating.trace.made)
        if made_variables:  # and later calls find them
            known[number] = again = traced(number, later)
            own_looks = arguments.of_variant(number).input_looks(place.mesh)
            _require_the_same_again(creating, again, own_looks, user_fn, place)
    traces = [known.get(number) or traced(number, later) for number in numbers]
    if all(each.trace.runs <= 1 for each in traces):
        return traces, made_variables
    last = arguments.which[-1]
    leftovers = Leftovers(last if arguments.is_numbered else None)
    by_number: dict[int, Traced] = {}
    for number in sorted(numbers, key=lambda number: number != last):
        leftovers.start(is_last=number == last)
        by_number[number] = traced(number, later)
    return [by_number[number] for number in numbers], made_variables


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
    if len(arguments.variants) > _MOST_VARIANTS and not arguments.is_numbered:
        raise UnevenShapes(f"{shapes}. A program has {_MOST_VARIANTS} of them at most")
    if place.mesh is None:
        raise UnevenShapes(shapes)
    if len(arguments.which) != place.mesh.size:
        raise UnevenShapes(f"{shapes}, and those on other workers are not known")


def _variant(traced: Traced, first: Traced, arguments: int) -> Variant:
    """Returns a trace with its inputs and outputs in the order of the first one's."""
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


def _require_the_same_again(
    creating: Traced,
    again: Traced,
    looks: Sequence[Look],
    user_fn: Callable[..., Any],
    place: Place,
) -> None:
    """Refuses a function that does more in the call that makes its variables than in later ones.

    That call is traced for some replicas; the program is made of traces that find the variables.
    """
    alike: list[bool] = []

    def flat(*tracers: jax.Array) -> list[Any]:
        variants = [_variant(each, again, len(looks)) for each in (creating, again)]
        _, _, alike[:] = merge(variants, tracers[len(looks) - 1], tracers)
        return []

    further = again.program.jaxpr.invars[len(again.constants) + len(looks) :]
    try:
        is_same = creating.returned.is_like(again.returned)
        _program_of(flat, user_fn, [*looks, *(each.aval for each in further)], place)
    except CannotMerge:  # nor can the variants be merged
        pass
    except Uneven:  # other variables
        is_same = False
    if not (is_same and all(alike)):
        raise ValueError(
            "rx.function: the call that makes the variables computes something else than a later "
            "one, and replicas differ in the shapes of their arguments, or in what Python does "
            "with their numbers. Make the variables before, in strategy.scope(), or call the "
            "function first with shares of one shape."
        )


def _name(input_of_trace: object) -> Any:
    """Returns a name of an input, which the same input of another trace has as well."""
    if isinstance(input_of_trace, Entry):
        return id(input_of_trace.variable), input_of_trace.passage
    return id(input_of_trace)
