"""A compiled program: what it takes, and where its results go.

The call is what a training loop pays for at every step, so it is written out: gather the arrays of
the variables, call what JAX compiled, put the new arrays in their places.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr
from jax.sharding import PartitionSpec

from replicax._src import _jax_internals
from replicax._src._errors import add_note
from replicax._src._typing import PyTree
from replicax._src.cluster import current_membership
from replicax._src.collectives import default_device
from replicax._src.devices import (
    ReplicaMesh,
    append_result,
    replica_mesh,
    short_name,
    token,
)
from replicax._src.functions._agreement import BY_DATA, SAME, require_agreement
from replicax._src.functions._arguments import Arguments, Kind, Look, lay_out
from replicax._src.functions._explanation import Report, collectives_of
from replicax._src.functions._hidden_places import hide_places
from replicax._src.functions._joint_reductions import join_reductions
from replicax._src.functions._late_transposes import transpose_late
from replicax._src.functions._making import Making
from replicax._src.functions._many import loop_of
from replicax._src.functions._observing import Discarding, Examined
from replicax._src.functions._passage import Entry, Passage, array_for
from replicax._src.functions._place import Place
from replicax._src.functions._pooling import compare_in_windows
from replicax._src.functions._remedies import remark_on
from replicax._src.functions._returned import component_of
from replicax._src.functions._trace import ProgramTrace
from replicax._src.functions._tracing import trace_function, trace_variants
from replicax._src.planning import Plan, bytes_on_each
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
    own_storage,
    set_whole,
)


class Program:
    """One trace of a user's function, compiled for one set of argument shapes."""

    def __init__(
        self,
        body: Callable[..., Any],
        user_fn: Callable[..., Any],
        arguments: Arguments,
        place: Place,
        making: Making,
        refs: Collection[Variable] = (),
    ):
        self.place = place
        self.mesh = place.mesh
        self._what = ""  # what other workers have to call, too
        self._is_numbered = arguments.is_numbered
        self._discards = isinstance(body, Discarding)
        with _compiling(user_fn):
            trace = trace_variants if arguments.variants else trace_function
            found = trace(body, user_fn, arguments, place, making, refs)
        self._constants, traced = found.constants, found.trace
        self._returned = found.returned
        self.creates = bool(traced.made)
        self.made_variables = found.made_variables
        self.defers = [(weakref.ref(variable), how) for variable, how, _ in traced.deferred]
        self.jaxpr, compiled = self._improved(found.program)
        if self.mesh is not None:
            require_agreement(self.jaxpr.jaxpr, self._differences(arguments, traced))
            self._what = self.mesh.agreed_name(
                "programs", lambda: _described(user_fn, arguments, self.jaxpr)
            )
        # The function may have made and dropped a variable; it stays until the first call is done.
        self._until_called: Any = [each for each in traced.inputs if isinstance(each, Entry)]
        self._sort_inputs(traced, len(arguments.input_looks(self.mesh)))
        name = getattr(user_fn, "__name__", "function")
        self.run = self._compiled(name if name.isidentifier() else "function", compiled)

    def _improved(self, program: ClosedJaxpr) -> tuple[ClosedJaxpr, ClosedJaxpr]:
        """Returns the traced program as reports and replays see it, and as the compiler gets it."""
        on_cpu, mesh = self.place.devices[0].platform == "cpu", self.mesh
        with _jax_internals.under_mesh(None if mesh is None else mesh.inside):
            if on_cpu:
                program = compare_in_windows(program)
            # With logical devices, the compiler has collectives of its own.
            if mesh is None or mesh.logical_devices > 1:
                return program, program
            packing = mesh.packing
            if on_cpu:
                program = transpose_late(program)
                packing = packing._replace(most_alike=None)  # since places are hidden
            program = join_reductions(program, packing, mesh.size)
            return program, hide_places(program, mesh.size) if on_cpu else program

    def _differences(self, arguments: Arguments, traced: ProgramTrace) -> list[int]:
        """Returns how much each input may differ from replica to replica."""
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

    def _compiled(self, name: str, jaxpr: ClosedJaxpr) -> Callable[..., Any]:
        program = _jax_internals.as_one_operation(jaxpr)
        constants = [lay_out(each, self.place) for each in self._constants]
        self._rest = [*self._captured, *constants]
        del self._constants
        order, count = self._order, self._returned.count + len(self.defers)
        in_place, elsewhere = self._outputs_in_place, self._outputs_elsewhere
        weak = [index for index, is_weak in enumerate(self._returned.weak) if is_weak]
        flag = self._returned.count - 1 if self._discards else None
        carried = self._carried

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
            new = [values[index] for index in (*in_place, *elsewhere)]
            if flag is not None:
                old = [given[index] for index in carried]
                new = [jnp.where(outputs[flag], *pair) for pair in zip(old, new, strict=True)]
            return outputs[:count], new[: len(in_place)], new[len(in_place) :]

        run.__name__ = run.__qualname__ = name
        self._step = run
        self._loops: dict[Any, Any] = {}
        return self._jitted(run)

    def _jitted(self, fn: Callable[..., Any]) -> Any:
        if self.mesh is None:
            return jax.jit(fn, donate_argnums=0)
        whole = PartitionSpec()
        written, read = self._specs

        @functools.wraps(fn)
        def run(*inputs: Any) -> Any:
            return *fn(*inputs), token()

        takes, gives = (written, read, whole, whole), (whole, written, whole, whole)
        mapped = self.mesh.mapped(run, takes, gives)
        if self.mesh.logical_devices == 1:
            return jax.jit(mapped, donate_argnums=0)
        # How variables lie over the logical devices is not for the compiler to choose.
        in_place = [self.mesh.sharding(layout) for layout in self._layouts]
        return jax.jit(mapped, donate_argnums=0, out_shardings=(None, in_place, None, None))

    def report(self, arguments: Arguments) -> Report:
        """Returns what the program does; the compiler is asked for its costs."""
        inputs = self._as_traced(arguments).laid_out(self.place)
        written = [_like(variable, self.mesh) for variable in self._state.variables()]
        read = [_like(held.alive(), self.mesh) for held in self._read]
        with self._own_mesh():
            compiled = self.run.lower(written, read, inputs, self._rest).compile()
        costs = compiled.cost_analysis() or {}
        memory = compiled.memory_analysis()
        flops = costs.get("flops") if isinstance(costs, dict) else None
        return self._report(flops, None if memory is None else _peak(memory))

    def _report(
        self, flops: float | None, peak_bytes: int | None, plan: Plan | None = None
    ) -> Report:
        changed, read = self.variables()
        in_place = self._state.variables()
        return Report(
            devices=tuple(short_name(device) for device in self.place.devices),
            collectives=collectives_of(self.jaxpr.jaxpr),
            flops=flops,
            peak_bytes=peak_bytes,
            donated=[each.name for each in in_place],
            donated_bytes=sum(bytes_on_each(_like(each, self.mesh)) for each in in_place),
            elsewhere=[each.name for each in changed[len(in_place) :]],
            read=[each.name for each in read],
            variables=[*changed, *read],
            plan=plan,
        )

    def variables(self) -> tuple[list[Variable], list[Variable]]:
        """Returns the variables that it changes, and those that it reads alone."""
        changed = [*self._state.variables(), *(held.alive() for held in self._elsewhere)]
        read = [held.alive() for held in self._read]
        known = set(map(id, changed))
        return changed, [each for each in read if id(each) not in known]

    def examined(self, arguments: Arguments) -> Examined:
        """Returns the program and what a call with these arguments would give it now."""
        inputs = self._as_traced(arguments).laid_out(self.place)
        written = self._state.variables()
        given = [
            *((each.name, own_storage(each).assembled) for each in written),
            *((held.alive().name, held.array(self)) for held in self._read),
            *((f"argument {index}", each) for index, each in enumerate(inputs)),
            *(("a value that it captures", each) for each in self._rest),
        ]
        order: list[Any] = [None] * len(self._order)
        for index, each in zip(self._order, given):
            order[index] = each
        order = [*given[len(self._order) :], *order]
        outputs = [f"result {index}" for index in range(self._returned.count)]
        outputs += ["a deferred value"] * len(self.defers)
        values = [""] * (len(self._outputs_in_place) + len(self._outputs_elsewhere))
        places = (*self._outputs_in_place, *self._outputs_elsewhere)
        for index, each in zip(places, (*written, *(held.alive() for held in self._elsewhere))):
            values[index] = f"variable {each.name}"
        mesh = self.mesh
        count = 1 if mesh is None else len(mesh.devices)
        return Examined(
            self.jaxpr,
            count,
            [
                [each] if mesh is None else [mesh.component(each, i) for i in range(count)]
                for _, each in order
            ],
            [name for name, _ in order],
            [*outputs, *values],
        )

    # ------------------------------------------------------------------ calling

    def __call__(self, arguments: Arguments) -> Any:
        if not (arguments.variants or self._is_numbered):
            return self._called(self.run, arguments.laid_out(self.place))
        arguments = self._as_traced(arguments)
        assert self.mesh is not None
        which = arguments.which_here(self.mesh)
        return self._called(self.run, arguments.laid_out(self.place), which=which)

    def _as_traced(self, arguments: Arguments) -> Arguments:
        """Arguments with the variants that this program has."""
        if not self._is_numbered:
            return arguments
        assert self.mesh is not None
        return arguments.for_each_replica(self.mesh.size)

    @property
    def can_loop(self) -> bool:
        """Whether `call_many` can be used."""
        return not self.defers and not self._returned.shapes

    def call_many(self, many: Sequence[Arguments], last_only: bool) -> Any:
        """Makes a call for each of `many`, in one program; returns all results, or the last."""
        key = (len(many), last_only)
        run = self._loops.get(key)
        if run is None:
            run = self._loops[key] = self._jitted(loop_of(self._step, self._carried, last_only))
        count = 0 if last_only else len(many)
        inputs = [self._as_traced(each).laid_out(self.place) for each in many]
        return self._called(run, inputs, count)

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
        with self._guarded():
            try:
                self._call(done, run, self._state.take(done), inputs)
            except Exception as error:
                if remark := remark_on(error):
                    add_note(error, remark)
                self._state.note_lost(error)
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
        returned = self._returned
        for (reference, how), value in zip(self.defers, results[returned.count :]):
            change(_alive(reference), how, value)
        return returned.again(results[: returned.count], count, which)

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

    def _guarded(self) -> contextlib.AbstractContextManager[Any]:
        """Nobody else may use the variables meanwhile; most calls need no more than that."""
        is_first = self._until_called is not None
        if self._what or is_first or not jax.sharding.get_abstract_mesh().empty:
            return self._guarded_well(is_first)
        return UPDATING

    @contextlib.contextmanager
    def _guarded_well(self, is_first: bool) -> Iterator[None]:
        """For calls that other workers take part in, that compile, or under a mesh of the user."""
        in_turn = self.mesh.one_thread() if self.mesh is not None and self._what else _NOTHING
        compiling = _compiling(self.run) if is_first else _NOTHING
        with in_turn, compiling, UPDATING, self._own_mesh():
            yield

    def _own_mesh(self) -> contextlib.AbstractContextManager[Any]:
        """Returns a context manager in which the mesh is ours, not one that the user has set."""
        if jax.sharding.get_abstract_mesh().empty:
            return _NOTHING
        return jax.set_mesh(replica_mesh(self.place.devices).mesh)


_NOTHING = contextlib.nullcontext()


def _compiling(fn: Callable[..., Any]) -> contextlib.AbstractContextManager[Any]:
    """Tells the workers that wait for this one that it may take long."""
    membership = current_membership()
    if membership is None:
        return _NOTHING
    return membership.phase(f"compiling {getattr(fn, '__name__', 'function')}")


def _described(
    user_fn: Callable[..., Any], arguments: Arguments, program: ClosedJaxpr
) -> tuple[str, str] | None:
    """Returns the name of a program, and what workers compare: the same text in any process."""
    collectives = collectives_of(program.jaxpr)
    if not collectives:  # it is each worker's own business: a prediction on the first one, say
        return None
    looks = [look for look in arguments.looks if isinstance(look, Look)]
    return getattr(user_fn, "__qualname__", "function"), (
        f"rx.function {getattr(user_fn, '__qualname__', '')!r} of {looks}, "
        f"{len(program.jaxpr.eqns)} operations, collectives: {', '.join(map(str, collectives))}"
    )


def _like(variable: Variable, mesh: ReplicaMesh | None) -> jax.ShapeDtypeStruct:
    sharding = None if mesh is None else mesh.sharding(variable.layout)
    return jax.ShapeDtypeStruct(variable.shape, variable.dtype, sharding=sharding)


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
    """Returns whether a result of the program is on the variable's own devices already."""
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
        """Returns the variable's value, as the program takes it."""
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
