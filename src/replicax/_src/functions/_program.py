"""A compiled program: what it takes, and where its results go.

The call is what a training loop pays for at every step, so it is written out: gather the arrays of
the variables, call what JAX compiled, put the new arrays in their places.
"""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.sharding import PartitionSpec

from replicax._src import _jax_internals
from replicax._src._arrays import as_result, is_number
from replicax._src._errors import add_note
from replicax._src._typing import Device, PyTree, Tracer
from replicax._src.cluster import current_membership
from replicax._src.collectives import default_device
from replicax._src.context import EACH
from replicax._src.devices import (
    REPLICA_AXIS,
    ReplicaMesh,
    append_result,
    put,
    replica_mesh,
    short_name,
    token,
)
from replicax._src.functions._agreement import BY_DATA, SAME, require_agreement
from replicax._src.functions._arguments import Arguments, Kind, Look, flatten, lay_out
from replicax._src.functions._captured import Shape
from replicax._src.functions._explanation import Report, collectives_of
from replicax._src.functions._keys import constant_key
from replicax._src.functions._many import loop_of, stacked_nothing
from replicax._src.functions._place import Place
from replicax._src.functions._remedies import remark_on
from replicax._src.functions._retry import Uneven, UnevenShapes
from replicax._src.functions._snapshot import snapshot
from replicax._src.functions._trace import Entry, Passage, ProgramTrace, array_for
from replicax._src.functions._traced_world import TracedWorld
from replicax._src.functions._variants import CannotMerge, Variant, merge
from replicax._src.values import (
    DistributedValues,
    Mirrored,
    ReplicaBuffers,
    is_leaf,
    per_replica_type,
    value_of_buffers,
)
from replicax._src.variable import (
    UPDATING,
    Change,
    ProgramState,
    Variable,
    VariableGone,
    change,
    copies_differ,
    devices_of,
    laid_out_like,
    set_whole,
)

_MOST_VARIANTS = 4  # shares are full, partial or empty; each further shape is compiled as well


class Program:
    """One trace of a user's function, compiled for one set of argument shapes."""

    def __init__(
        self,
        body: Callable[..., Any],
        user_fn: Callable[..., Any],
        arguments: Arguments,
        place: Place,
        may_create: bool,
        refs: Collection[Variable] = (),
    ):
        self.place = place
        self.mesh = place.mesh
        self._what = ""  # what other workers have to call, too
        self._is_merged = bool(arguments.variants)
        self._shapes: dict[int, list[Shape]] = {}  # of results whose shape differs, by variant
        with _compiling(user_fn):
            trace = self._trace_variants if arguments.variants else self._trace
            self.jaxpr, traced = trace(body, user_fn, arguments, may_create, refs)
        self.creates = traced.has_created
        self.defers = [(weakref.ref(variable), how) for variable, how, _ in traced.deferred]
        if self.mesh is not None:
            require_agreement(self.jaxpr.jaxpr, self._differences(arguments, traced))
            self._what = self.mesh.agreed_name(
                "programs", lambda: _described(user_fn, arguments, self.jaxpr)
            )
        # The function may have made and dropped a variable; it stays until the first call is done.
        self._until_called: Any = [each for each in traced.inputs if isinstance(each, Entry)]
        self._sort_inputs(traced, len(arguments.input_looks(self.mesh)))
        name = getattr(user_fn, "__name__", "function")
        self.run = self._compiled(name if name.isidentifier() else "function")

    # ------------------------------------------------------------------ tracing

    def _trace(
        self,
        body: Callable[..., Any],
        user_fn: Callable[..., Any],
        arguments: Arguments,
        may_create: bool,
        refs: Collection[Variable],
    ) -> tuple[Any, ProgramTrace]:
        is_variant = bool(arguments.variants)
        inputs = None if is_variant else arguments.laid_out(self.place)

        traces: list[ProgramTrace] = []

        def flat(*tracers: jax.Array) -> list[Any]:
            trace = ProgramTrace(self.place, may_create, refs, inputs)
            traces.append(trace)
            with trace.active(TracedWorld(trace)):
                args, kwargs = arguments.rebuilt(tracers, self.mesh)
                results = self._flattened(body(*args, **kwargs), trace)
                results += [jnp.asarray(value) for _, _, value in trace.deferred]
                results += trace.final_values()
            trace.finish()
            return results

        program = self._program_of(flat, user_fn, arguments.input_looks(self.mesh))
        if any(isinstance(each, Tracer) for each in self._constants):
            raise jax.errors.UnexpectedTracerError(
                "A value of a function that was traced before is used here: it was kept in a "
                "global, a list or an attribute. Return it from that function instead."
            )
        return program, traces[0]

    def _program_of(self, flat: Callable[..., Any], user_fn: Any, looks: Sequence[Any]) -> Any:
        names = [f"number {index}" for index in range(len(looks))]
        axes = [] if self.mesh is None else [(REPLICA_AXIS, self.mesh.size)]
        program, self._constants = _jax_internals.trace_to_program(
            flat, user_fn, names, looks, axes, None if self.mesh is None else self.mesh.inside
        )
        return program

    def _trace_variants(
        self,
        body: Callable[..., Any],
        user_fn: Callable[..., Any],
        arguments: Arguments,
        may_create: bool,
        refs: Collection[Variable],
    ) -> tuple[Any, ProgramTrace]:
        """One trace for each distinct shape of a replica's arguments, merged into one program."""
        shapes_here = f"the replicas have different shapes: {arguments.said_shapes()}"
        if len(arguments.variants) > _MOST_VARIANTS:
            raise UnevenShapes(f"{shapes_here}. A program has {_MOST_VARIANTS} of them at most")
        if self.mesh is None or not self.mesh.takes_variants:
            raise UnevenShapes(shapes_here)
        variants: list[Variant] = []
        returned: list[Any] = []
        count = len(arguments.input_looks(self.mesh))
        first: ProgramTrace | None = None
        template: Any = None
        for number in range(len(arguments.variants)):
            variant = arguments.of_variant(number)
            program, traced = self._trace(body, user_fn, variant, may_create, refs)
            if first is None:
                first, template = traced, program.jaxpr.invars[len(self._constants) + count :]
            positions = _positions(first.inputs, count)
            if _positions(traced.inputs, count).keys() != positions.keys():
                raise Uneven("it reads other variables with another number of rows")
            written = [id(entry.variable) for entry in traced.written]
            wanted = [id(entry.variable) for entry in first.written]
            if set(written) != set(wanted):
                raise Uneven("it assigns other variables with another number of rows")
            inputs = [positions[_name(each)] for each in traced.inputs]
            outputs = [self._number_of_arrays + written.index(each) for each in wanted]
            variants.append(
                Variant(
                    program,
                    [*self._constants, *range(count), *inputs],
                    [*range(self._number_of_arrays), *outputs],
                )
            )
            leaves = [(kind, constant_key(leaf)) for kind, leaf in self._results]
            returned.append((self._structure, leaves, self._assigned))
        assert first is not None
        if any(each != returned[0] for each in returned):
            raise Uneven("what it returns differs in more than shapes with another number of rows")
        shapes: list[list[Shape]] = []
        alike: list[bool] = []

        def flat(*tracers: Any) -> list[Any]:
            merged, shapes[:], alike[:] = merge(variants, tracers[count - 1], tracers)
            return merged

        looks = [*arguments.input_looks(self.mesh), *(each.aval for each in template)]
        try:
            program = self._program_of(flat, user_fn, looks)
        except CannotMerge as reason:
            raise Uneven(str(reason)) from None
        kinds = [kind for kind, leaf in self._results if leaf is None and kind is not Kind.CONSTANT]
        for entry, is_alike in zip(first.written, alike[len(kinds) :], strict=True):
            if not (is_alike or copies_differ(entry.variable)):
                name = entry.variable.name
                raise Uneven(f"what it assigns to {name!r} depends on the number of rows")
        for index, kind in enumerate(kinds):
            if kind is not Kind.PER_REPLICA and not alike[index]:
                raise Uneven("what it returns depends on the number of rows")
            if len(set(shapes[index])) > 1:
                self._shapes[index] = shapes[index]
            if not math.prod(map(max, *shapes[index])) and shapes[index][0]:
                raise Uneven("a result has no items")
        return program, first

    def _differences(self, arguments: Arguments, traced: ProgramTrace) -> list[int]:
        """How much each input may differ from replica to replica."""
        looks = arguments.input_looks(self.mesh)
        levels = [SAME] * len(self._constants)
        assert self.mesh is not None
        # An array that a worker passes is its own.
        same = {Kind.MIRRORED} if self.mesh.spans_workers else {Kind.MIRRORED, Kind.ARRAY}
        levels += [SAME if look.kind in same else BY_DATA for look in looks]
        for each in traced.inputs:
            is_same = (
                isinstance(each, Entry) and each.cut is None and not copies_differ(each.variable)
            )
            levels.append(SAME if is_same else BY_DATA)
        return levels

    def _flattened(self, result: PyTree, trace: ProgramTrace) -> list[Any]:
        """The arrays of what the function returned; the rest is the same at every call."""
        # On one device the components of a per-replica value are arrays like any others.
        leaves, self._rebuild, self._structure = flatten(
            result, _is_variable if self.mesh is None else is_leaf
        )
        self._results: list[tuple[Kind, Any]] = []
        self._assigned: list[int | None] = []  # the logical devices that results are kept on
        self._weak: list[bool] = []
        arrays: list[Any] = []
        for leaf in leaves:
            kind, array = self._result(leaf)
            if array is not None and not array.size and trace.has_no_empty_results:
                # Programs for several devices cannot give arrays without items either.
                kind, leaf, array = Kind.EMPTY, self._without_items(kind, array), None
            self._results.append((kind, leaf if array is None else None))
            if array is not None:
                arrays.append(array)
                self._weak.append(_is_weak(array))
                self._assigned.append(trace.assigned(array))
        self._bare = all(kind is Kind.ARRAY for kind, _ in self._results)
        self._number_of_arrays = len(arrays)
        return arrays

    def _without_items(self, kind: Kind, array: jax.Array) -> Any:
        assert self.mesh is not None
        with _jax_internals.outside_of_traces():
            zeros = jnp.zeros(array.shape, array.dtype)
            zeros = _jax_internals.weakened(zeros) if _is_weak(array) else zeros
            if kind is Kind.ARRAY:
                return zeros
            wrap = Mirrored if kind is Kind.MIRRORED else per_replica_type(self.mesh.devices)
            return wrap([put(zeros, device) for device in self.mesh.devices])

    def _result(self, leaf: object) -> tuple[Kind, Any]:
        if isinstance(leaf, DistributedValues) and not leaf._passed_whole:
            return Kind.of(leaf), as_result(leaf._component(EACH))
        if isinstance(leaf, Variable):
            return self._result(snapshot(leaf))
        if isinstance(leaf, Tracer):
            return Kind.ARRAY, leaf
        if is_number(leaf):
            return Kind.ARRAY, as_result(leaf)
        return Kind.CONSTANT, None

    # ------------------------------------------------------------------ compiling

    def _sort_inputs(self, traced: ProgramTrace, arguments: int) -> None:
        """Puts the inputs into three groups: to be written, only read, arguments and constants."""
        written: list[tuple[int, Entry]] = []
        read: list[tuple[int, Entry]] = []
        captured: list[int] = []
        for index, each in enumerate(traced.inputs, start=arguments):
            if isinstance(each, Entry):
                in_place = each.passage is Passage.WHOLE and _lives_at(each, self.place)
                (written if each.written and in_place else read).append((index, each))
            else:
                captured.append(index)
        self._order = [
            *(index for index, _ in written),
            *(index for index, _ in read),
            *range(arguments),
            *captured,
        ]
        self._state = ProgramState([entry.variable for _, entry in written])
        self._read = [_Held(entry) for _, entry in read]
        in_place = {id(entry) for _, entry in written}
        elsewhere = [entry for entry in traced.written if id(entry) not in in_place]
        self._elsewhere = [_Held(entry) for entry in elsewhere]
        # Which of the traced values go back to where they were taken from, and which elsewhere.
        outputs = {id(entry): index for index, entry in enumerate(traced.written)}
        self._outputs_in_place = [outputs[id(entry)] for _, entry in written]
        self._outputs_elsewhere = [outputs[id(entry)] for entry in elsewhere]
        # For a loop: the inputs that the outputs of one step are in the next.
        inputs = {id(entry): index for index, (_, entry) in enumerate([*written, *read])}
        self._carried = [
            *range(len(written)),
            *(inputs[id(entry)] for entry in elsewhere),
        ]
        self._captured = traced.captured_arrays()
        if self.mesh is not None:
            # How programs take the variables, and give those back that they write in place.
            self._layouts = [entry.variable.layout for _, entry in written]
            self._specs = [_specs(self.mesh, each) for each in (written, read)]

    def _compiled(self, name: str) -> Callable[..., Any]:
        program = jaxpr_as_fun(self.jaxpr)
        constants = [lay_out(each, self.place) for each in self._constants]
        self._rest = [*self._captured, *constants]
        del self._constants
        order, count = self._order, self._number_of_arrays + len(self.defers)
        in_place, elsewhere = self._outputs_in_place, self._outputs_elsewhere
        weak = [index for index, is_weak in enumerate(self._weak) if is_weak]

        def run(written: list[Any], read: list[Any], arguments: list[Any], rest: list[Any]) -> Any:
            given = [*written, *read, *arguments, *rest]
            inputs: list[Any] = [None] * len(order)
            for index, value in zip(order, given):
                inputs[index] = value
            constants = given[len(order) :]
            outputs = program(*constants, *inputs)
            for index in weak:  # the inputs that they were computed from are not, laid out
                outputs[index] = _jax_internals.weakened(outputs[index])
            values = outputs[count:]
            return (
                outputs[:count],
                [values[index] for index in in_place],
                [values[index] for index in elsewhere],
                token(),
            )

        run.__name__ = run.__qualname__ = name
        self._step = run
        self._loops: dict[Any, Any] = {}
        return self._jitted(run)

    def _jitted(self, fn: Callable[..., Any]) -> Any:
        if self.mesh is None:
            return jax.jit(fn, donate_argnums=0)
        whole = PartitionSpec()
        written, read = self._specs
        mapped = self.mesh.mapped(fn, (written, read, whole, whole), (whole, written, whole, whole))
        if self.mesh.logical_devices == 1:
            return jax.jit(mapped, donate_argnums=0)
        # How variables lie over the logical devices is not for the compiler to choose.
        in_place = [self.mesh.sharding(layout) for layout in self._layouts]
        return jax.jit(mapped, donate_argnums=0, out_shardings=(None, in_place, None, None))

    def report(self, arguments: Arguments) -> Report:
        """What the program does; the compiler is asked for its costs."""
        inputs = arguments.laid_out(self.place)
        variables = self._state.variables()
        written = [_like(variable, self.mesh) for variable in variables]
        only_read = [held.alive() for held in self._read]
        elsewhere = [held.alive() for held in self._elsewhere]
        written_elsewhere = {id(variable) for variable in elsewhere}
        read = [_like(variable, self.mesh) for variable in only_read]
        compiled = self.run.lower(written, read, inputs, self._rest).compile()
        costs = compiled.cost_analysis() or {}
        memory = compiled.memory_analysis()
        return Report(
            devices=tuple(short_name(device) for device in self.place.devices),
            collectives=collectives_of(self.jaxpr.jaxpr),
            flops=costs.get("flops") if isinstance(costs, dict) else None,
            peak_bytes=None if memory is None else _peak(memory),
            donated=[variable.name for variable in variables],
            donated_bytes=sum(_bytes_on_each(each) for each in written),
            elsewhere=[variable.name for variable in elsewhere],
            read=[each.name for each in only_read if id(each) not in written_elsewhere],
        )

    # ------------------------------------------------------------------ calling

    def __call__(self, arguments: Arguments) -> Any:
        return self._called(self.run, arguments.laid_out(self.place), which=arguments.which)

    @property
    def can_loop(self) -> bool:
        """Whether `call_many` can be used."""
        return not self.defers and not self._is_merged

    def call_many(self, many: Sequence[Arguments], last_only: bool) -> Any:
        """One call for each of `many`, in one program; their results stacked, or the last ones."""
        key = (len(many), last_only)
        run = self._loops.get(key)
        if run is None:
            run = self._loops[key] = self._jitted(loop_of(self._step, self._carried, last_only))
        count = 0 if last_only else len(many)
        return self._called(run, [each.laid_out(self.place) for each in many], count)

    def _called(
        self,
        run: Callable[..., Any],
        inputs: PyTree,
        count: int = 0,
        which: Sequence[int] = (),
    ) -> Any:
        if self.mesh is not None:
            self.mesh.wait_for(inputs)
        done: list[Any] = []
        is_first = self._until_called is not None
        in_turn = self.mesh.one_thread() if self.mesh is not None and self._what else _NOTHING
        with in_turn, _compiling(self.run) if is_first else _NOTHING, UPDATING, self._own_mesh():
            try:
                self._call(done, run, self._state.take(done), inputs)
            except Exception as error:
                if remark := remark_on(error):
                    add_note(error, remark)
                if lost := self._state.lost():
                    add_note(
                        error,
                        f"(the program was updating {', '.join(lost[:6])} in place when it failed; "
                        "assign these variables anew, from a checkpoint for example)",
                    )
                raise
            finally:  # also if Ctrl-C came when the program had run
                if done:
                    try:
                        self._write_back(*done[0][1:3])
                    except KeyboardInterrupt:
                        self._write_back(*done[0][1:3])
                        raise
                else:
                    self._state.give_back(done)
        self._until_called = None
        results = done[0][0]
        # Not under the lock: the replicas meet, and each has to take it.
        for (reference, how), value in zip(self.defers, results[self._number_of_arrays :]):
            change(_alive(reference), how, value)
        return self._returned(results[: self._number_of_arrays], count, which)

    def _write_back(self, in_place: list[Any], elsewhere: list[Any]) -> None:
        self._state.put(in_place)
        for held, value in zip(self._elsewhere, elsewhere, strict=True):
            held.write(self, value)

    def _call(
        self, done: list[Any], run: Callable[..., Any], written: list[Any], inputs: PyTree
    ) -> None:
        read = [held.array(self) for held in self._read]
        args = (written, read, inputs, self._rest)
        if self.mesh is not None:
            self.mesh.call(run, done, *args, what=self._what)
        elif self.place.devices[0] is default_device():
            append_result(done, run, args)
        else:
            with jax.default_device(self.place.devices[0]):
                append_result(done, run, args)

    def _own_mesh(self) -> contextlib.AbstractContextManager[Any]:
        """A mesh that the user has set is not ours."""
        if jax.sharding.get_abstract_mesh().empty:
            return contextlib.nullcontext()
        return jax.set_mesh(replica_mesh(self.place.devices).mesh)

    def _returned(self, results: Sequence[Any], count: int, which: Sequence[int]) -> Any:
        """What the function returned; `count` for stacked results, if there are any."""
        if self._bare and self.mesh is None:
            return self._rebuild(results)
        if self._shapes:
            results = list(results)
            for index, shapes in self._shapes.items():
                results[index] = self._cut(results[index], [shapes[number] for number in which])
        given = zip(results, self._assigned, strict=True)
        return self._rebuild(
            [
                leaf
                if kind is Kind.CONSTANT
                else stacked_nothing(leaf, count)
                if kind is Kind.EMPTY
                else self._as_result(kind, *next(given))
                for kind, leaf in self._results
            ]
        )

    def _as_result(self, kind: Kind, array: jax.Array, logical_device: int | None) -> Any:
        mesh = self.mesh
        if mesh is None or isinstance(array, DistributedValues):
            return array
        if kind is Kind.ARRAY:
            if logical_device is not None:
                return mesh.component(array, 0, logical_device)
            return component_of(array, mesh)
        wrap = Mirrored if kind is Kind.MIRRORED else per_replica_type(mesh.devices)
        if logical_device is None:
            return value_of_buffers(wrap, ReplicaBuffers(mesh, assembled=array))
        replicas = range(len(mesh.devices))
        parts = [mesh.component(array, replica, logical_device) for replica in replicas]
        return wrap([_jax_internals.uncommitted(part) for part in parts])

    def _cut(self, array: jax.Array, shapes: Sequence[Shape]) -> Any:
        """A padded result with the shape that it has on each replica."""
        assert self.mesh is not None
        parts = [self.mesh.component(array, index) for index in range(len(shapes))]
        return per_replica_type(self.mesh.devices)(
            [
                _jax_internals.uncommitted(
                    part if part.shape == shape else part[tuple(map(slice, shape))]
                )
                for part, shape in zip(parts, shapes, strict=True)
            ]
        )


_NOTHING = contextlib.nullcontext()


def _name(input_of_trace: Any) -> Any:
    """The same for the same input of another trace."""
    if isinstance(input_of_trace, Entry):
        return id(input_of_trace.variable), input_of_trace.passage
    return id(input_of_trace)


def _positions(inputs: Sequence[Any], start: int) -> dict[Any, int]:
    return {_name(each): index for index, each in enumerate(inputs, start=start)}


def _compiling(fn: Callable[..., Any]) -> contextlib.AbstractContextManager[Any]:
    """Tells the workers that wait for this one that it may take long."""
    membership = current_membership()
    if membership is None:
        return _NOTHING
    return membership.phase(f"compiling {getattr(fn, '__name__', 'function')}")


def _described(
    user_fn: Callable[..., Any], arguments: Arguments, program: ClosedJaxpr
) -> tuple[str, str] | None:
    """The name of a program, and what workers compare: the same text in any process."""
    collectives = collectives_of(program.jaxpr)
    if not collectives:  # it is each worker's own business: a prediction on the first one, say
        return None
    looks = [look for look in arguments.looks if isinstance(look, Look)]
    return getattr(user_fn, "__qualname__", "function"), (
        f"rx.function {getattr(user_fn, '__qualname__', '')!r} of {looks}, "
        f"{len(program.jaxpr.eqns)} operations, collectives: {', '.join(map(str, collectives))}"
    )


def _is_weak(array: jax.Array) -> bool:
    return getattr(array, "weak_type", False)  # random keys have no such thing


def _is_variable(value: object) -> bool:
    return isinstance(value, Variable)


def component_of(array: jax.Array, mesh: ReplicaMesh, device: Device | None = None) -> jax.Array:
    """A replicated result as an array on one device: the given one, or where results are wanted."""
    wanted = device or default_device()
    index = mesh.devices.index(wanted) if wanted in mesh.devices else 0
    part = mesh.component(array, index)
    if device is None and part.sharding.num_devices > 1:
        return part
    return put(part, wanted)


def _like(variable: Variable, mesh: ReplicaMesh | None) -> jax.ShapeDtypeStruct:
    sharding = None if mesh is None else mesh.sharding(variable.layout)
    return jax.ShapeDtypeStruct(variable.shape, variable.dtype, sharding=sharding)


def _bytes_on_each(array: jax.ShapeDtypeStruct) -> int:
    """The size of an array on each of its devices."""
    shape = array.shape if array.sharding is None else array.sharding.shard_shape(array.shape)
    return math.prod(shape) * array.dtype.itemsize


def _peak(memory: Any) -> int:
    """Arguments, results and what is needed in between; donated buffers count once."""
    return (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        + memory.temp_size_in_bytes
        - memory.alias_size_in_bytes
    )


def _specs(mesh: ReplicaMesh, entries: Sequence[tuple[int, Entry]]) -> list[PartitionSpec]:
    return [
        PartitionSpec() if entry.cut is None else mesh.replica_spec(entry.variable.layout)
        for _, entry in entries
    ]


def _lives_at(entry: Entry, place: Place) -> bool:
    """Whether a result of the program is on the variable's own devices already."""
    return devices_of(entry.variable) == place.devices


def _alive(reference: weakref.ref[Variable]) -> Any:
    variable = reference()
    if variable is None:
        raise VariableGone
    return variable


class _Held:
    """A variable of a program, held weakly: a model that the user drops takes it along."""

    __slots__ = ("passage", "variable")

    def __init__(self, entry: Entry):
        self.variable: Any = weakref.ref(entry.variable)
        self.passage = entry.passage

    def array(self, program: Program) -> Any:
        """The variable's value, as the program takes it."""
        return array_for(self.alive(), self.passage, program.place)

    def alive(self) -> Any:
        return _alive(self.variable)

    def write(self, program: Program, value: jax.Array) -> None:
        variable = self.alive()
        if self.passage is Passage.COPY:
            change(variable.values[program.place.replica], Change.ASSIGN, value)
        else:
            if program.mesh is not None:
                value = component_of(value, program.mesh, devices_of(variable)[0])
            set_whole(variable, laid_out_like(variable, value))
