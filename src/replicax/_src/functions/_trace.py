"""A program while it is being traced: which variables it reads, what it writes, who varies.

`rx.function` calls the user's function once, with tracers for its arguments. Meanwhile a
`TracedWorld` is the thread's world. A variable that is read becomes a further input; one
that is written becomes an output; one that is made gets its first value at once, from what was
traced so far. With several replicas the trace speaks for all of them: a value is what *each*
replica has of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from replicax._src import _jax_internals
from replicax._src._errors import WrongContextError
from replicax._src._typing import Device, PyTree, Tracer
from replicax._src.collectives import own_part, part_shape, whole_of_parts
from replicax._src.context import (
    EACH,
    ReplicaId,
    StrategyLike,
    World,
    entered_world,
    get_replica_context,
    replica_id_of,
)
from replicax._src.devices import REPLICA_AXIS, ReplicaMesh, need_mesh, replica_mesh
from replicax._src.functions._captured import laid_out_over, look_of
from replicax._src.functions._leftovers import EndedRuns, Leftovers
from replicax._src.functions._passage import Entry, Passage, array_for, passage_of
from replicax._src.functions._place import Place
from replicax._src.functions._retry import (
    NotOneProgram,
    OnlyPython,
    OtherDevicesNeeded,
    RefNeeded,
    Uneven,
)
from replicax._src.functions._turns import Provenance, Turns
from replicax._src.values import (
    DistributedValues,
    TracedBuffers,
    local_count,
)
from replicax._src.variable import (
    Change,
    DistributedVariable,
    Variable,
    copies_differ,
    mesh_of,
    start_from,
)

# JAX keeps what it traced by the function and this value. Where variables stand for other values
# than before, a value of its own makes JAX look again into jitted functions, bodies of loops and
# the like, which may read them.
_trace_stamp = jax.make_user_context(None)


@dataclasses.dataclass(frozen=True)
class VariantTrace:
    """For which replicas a trace speaks.

    Attributes:
      replica: the one replica; None if there may be several, whose arguments have certain shapes.
      leftovers: what replicas leave in Python, if there is a later run that may find it.
    """

    replica: int | None = None
    leftovers: Leftovers | None = None


class ProgramTrace:
    """The state of one trace."""

    def __init__(
        self,
        place: Place,
        may_create: bool,
        refs: Collection[Variable],
        arguments: Sequence[Any],
        variant: VariantTrace | None = None,
    ):
        """
        Args:
          place: where the program will run.
          may_create: whether variables may be made.
          refs: the variables that inner functions read and change.
          arguments: the arrays that the function was called with, laid out for the program. They
            are looked at where variables are made.
          variant: for which replicas the trace speaks, if not for all.
        """
        self._refs = {id(variable) for variable in refs}
        self._arguments = arguments
        self.variant = variant
        self.runs = 0  # how often replicas run
        self.has_told_number = False  # replicas have asked for their number
        self.meetings: list[Hashable] = []  # in what replicas meet
        self.mesh = place.mesh
        self._place = place
        self._replica = place.replica
        self._may_create = may_create
        self._trace = _jax_internals.staging_trace()
        self._entries: dict[int, Entry] = {}
        self._captured: dict[int, tuple[DistributedValues, Any, Any]] = {}
        self._provenance: Provenance | None = None
        self._assigned: dict[int, tuple[Any, int]] = {}
        self._stamps = contextlib.ExitStack()
        self.ended_runs = EndedRuns(self._trace)
        self.inputs: list[Any] = []  # entries and captured values, in the order of their inputs
        self.deferred: list[tuple[Variable, Change, Any]] = []  # those that replicas make together
        self.made: list[Variable] = []
        self.changed: list[Variable] = []  # in order, as often as they were

    def beside(self, replica: int | None) -> ProgramTrace:
        """Another trace, of a part of this program, for one replica or some; nobody runs it."""
        return ProgramTrace(self._place, False, (), (), VariantTrace(replica))

    @contextlib.contextmanager
    def active(self, world: World) -> Iterator[None]:
        """Inside the block, `world` is the thread's, in which this program is traced."""
        with self._stamps, entered_world(world):
            self._stamps.enter_context(_trace_stamp(object()))
            yield

    @property
    def has_no_empty_results(self) -> bool:
        """Whether arrays without items are no outputs: programs for several devices have none.

        In a variant they are, and are padded to the shape that they have on other replicas.
        """
        return self.mesh is not None and self.variant is None

    @property
    def written(self) -> list[Entry]:
        """The variables that the program changes."""
        entries = self._entries.values()
        return [entry for entry in entries if entry.written and entry.passage is not Passage.EMPTY]

    def final_values(self) -> list[Any]:
        """Returns what the program leaves in the variables that it wrote, as in `written`."""
        return [self._value(entry) for entry in self.written]

    def captured_arrays(self) -> list[Any]:
        """Returns the captured values among `inputs`, laid out over the program's devices."""
        return [array for _, _, array in self._captured.values()]

    def finish(self) -> None:
        """Lets go of everything that belongs to the trace and not to the program."""
        for entry in self._entries.values():
            entry.value = entry.ref = None
        self.deferred = [(variable, how, None) for variable, how, _ in self.deferred]
        self._captured = {
            key: (value, None, array) for key, (value, _, array) in self._captured.items()
        }
        self._trace = self._provenance = None
        self._assigned = {}
        self.ended_runs = EndedRuns(None)
        self._arguments = ()

    # ------------------------------------------------------------------ variables

    def value_of(self, variable: Variable) -> jax.Array:
        """Returns the value of a variable as the program takes it, or as it is by now."""
        return self._whole(self._entry(variable))

    def storage_of(self, variable: Variable) -> TracedBuffers:
        if any(variable is each for each, _, _ in self.deferred):
            raise OnlyPython(f"it reads {variable.name!r} after it changed it for all replicas")
        value = self.value_of(variable)
        differ = self.mesh is not None and copies_differ(variable)
        if self._provenance is not None and in_replica():
            self._provenance.note_handed_out(value)
            if not isinstance(variable, DistributedVariable):
                self._provenance.turns.note_read(variable)
        return TracedBuffers(mesh_of(variable), value, mirrored=not differ)

    def set_value(self, variable: Variable, array: jax.Array) -> None:
        entry = self._entry(variable)
        if _jax_internals.is_vmapping(self._trace):
            raise WrongContextError(
                f"Variable {variable.name!r} is assigned inside jax.vmap, where there is a value "
                "for each element and one variable. Return the values from the mapped function, "
                "combine them, and assign the result outside."
            )
        if _jax_internals.is_in_loop_condition(self._trace):
            raise WrongContextError(
                f"Variable {variable.name!r} is assigned in the condition of a jax.lax.while_loop. "
                "Assign it in the body of the loop."
            )
        if _jax_internals.is_recomputing(self._trace):
            raise WrongContextError(
                f"Variable {variable.name!r} is assigned inside jax.checkpoint in a function that "
                "is differentiated, which computes it twice. Return the value from the "
                "checkpointed function, and assign it outside."
            )
        if entry.cut is not None:
            array = own_part(jnp.asarray(array, variable.dtype), entry.cut, self.mesh)
        self._write(entry, array)

    def require_own(self, variable: Variable, index: ReplicaId) -> None:
        """Gives up if the program of one eager replica needs another one's copy."""
        if self._replica not in (None, index) and copies_differ(variable):
            raise OnlyPython(f"a replica uses another one's copy of {variable.name!r}")

    def defer(self, variable: Variable, how: Change, value: jax.Array) -> None:
        """Notes a change that eager replicas make together: it happens when the program has run."""
        inside = _jax_internals.staging_trace() is not self._trace
        if inside or _jax_internals.is_vmapping(self._trace):
            raise OnlyPython(f"eager replicas meet in a loop or a branch, for {variable.name!r}")
        self.deferred.append((variable, how, value))

    def part_of(self, variable: Variable) -> Any:
        """Returns each replica's part of a variable that is cut over them."""
        return self._value(self._entry(variable))

    def cut_of(self, variable: Variable) -> int | None:
        """Returns the dimension in which replicas have parts of a variable; None if whole."""
        return None if variable.layout.replica_dim is None else self._entry(variable).cut

    def set_part(self, variable: Variable, array: jax.Array) -> None:
        """Sets what `part_of` gives."""
        self._write(self._entry(variable), array)

    def _write(self, entry: Entry, array: jax.Array) -> None:
        entry.written = True
        entry.gathered = None
        variable = entry.variable
        self.changed.append(variable)
        if entry.ref is None and _jax_internals.staging_trace() is self._trace:
            entry.value = array
            # What JAX traced so far has seen the old value.
            self._stamps.close()
            self._stamps.enter_context(_trace_stamp(object()))
            return
        if entry.is_read_inside:
            raise RefNeeded(variable)
        if entry.ref is None:
            entry.ref = _jax_internals.new_ref(self._trace, entry.value)
        entry.ref[...] = jnp.asarray(array, variable.dtype)

    def create(self, variable: Variable, mesh: ReplicaMesh | None, value: jax.Array) -> None:
        """Starts a variable on the devices of `mesh` from a value that the program computes."""
        if not self._may_create:
            raise ValueError(
                f"rx.function: a variable ({variable.name!r}) was made on a call after the first. "
                "A compiled function may make variables once. Keep the variable and make it only "
                "`if self.v is None:`, or make it before, in strategy.scope()."
            )
        inside = _jax_internals.staging_trace() is not self._trace
        if inside or _jax_internals.is_vmapping(self._trace):
            raise WrongContextError(
                f"Variable {variable.name!r} is made inside a function that JAX traces by itself "
                "(lax.scan, lax.cond, jax.vmap, jax.jit, ...). Make it before, and use it there."
            )
        if self._replica is not None:
            raise OnlyPython(f"eager replicas make the variable {variable.name!r} together")
        self.made.append(variable)
        value = jax.lax.stop_gradient(value)
        with _jax_internals.outside_of_traces(), self._place.computing():
            start_from(variable, mesh, self._evaluated(value))

    def _evaluated(self, value: jax.Array) -> Any:
        """Returns the value itself; where replicas differ, the first one's."""
        if not isinstance(value, Tracer):
            return value
        operations = _jax_internals.operations_behind(self._trace, value)
        is_simple = self.mesh is None or self.mesh.logical_devices == 1
        if is_simple and not (
            any(operation.effects for operation in operations)
            or _jax_internals.mentions_axis(operations, REPLICA_AXIS)
        ):
            found = _jax_internals.evaluate(
                self._trace, operations, value, lambda index: self._first(self._input(index))
            )
            # It may be a number that the program has as it is.
            return found if isinstance(found, jax.Array) else jnp.asarray(found, value.dtype)

        self.require_one_shape("a variable's first value comes from all of them")

        def program(*given: object) -> Any:
            return _jax_internals.evaluate(self._trace, operations, value, given.__getitem__)

        inputs = [self._input(index) for index in range(len(self._arguments) + len(self.inputs))]
        if self.mesh is None:
            return jax.jit(program)(*inputs)
        specs = tuple(
            self.mesh.replica_spec(each.variable.layout)
            if isinstance(each, Entry) and each.cut is not None
            else PartitionSpec()
            for each in [None] * len(self._arguments) + self.inputs
        )
        return self._first(self.mesh.spmd(program, specs)(*inputs))

    def _input(self, index: int) -> Any:
        """Returns what the program will be given for one of its inputs."""
        if index < len(self._arguments):
            return self._arguments[index]
        each = self.inputs[index - len(self._arguments)]
        if isinstance(each, Entry):
            return array_for(each.variable, each.passage, self._place)
        return self._captured[id(each)][2]

    def _first(self, array: jax.Array) -> Any:
        return array if self.mesh is None else self.mesh.component(array, 0)

    def update_in_turn(self, variable: Variable, how: Change, value: jax.Array) -> None:
        """Changes a variable without copies for each replica, one after the other."""
        assert self._provenance is not None and self.mesh is not None
        old = self._value(self._entry(variable))
        new = self._provenance.turns.after_change(variable, how, value, old, self.mesh)
        self.set_value(variable, new)

    def end_turns(self) -> None:
        """Called when all replicas are here: variables without copies have the last one's value."""
        assert self._provenance is not None and self.mesh is not None
        for variable in self._provenance.turns.changed(self._trace):
            value = self._value(self._entry(variable))
            last = TracedBuffers(self.mesh, value).component(len(self.mesh.devices) - 1)
            self.set_value(variable, last)
        self._provenance.turns = Turns()

    def assign(self, value: object, logical_device: int) -> None:
        """Notes that a value, if it is a result, is to be kept on one logical device."""
        self._assigned[id(value)] = (value, logical_device)

    def assigned(self, value: object) -> int | None:
        """Returns the logical device that a value was assigned to."""
        return self._assigned.get(id(value), (None, None))[1]

    def note_meeting(self, key: Hashable) -> None:
        """Notes in what replicas meet."""
        self.meetings.append(key)

    def require_one_shape(self, what: str) -> None:
        """Gives up if this is a variant: it knows what some of the replicas do, and no others."""
        if self.variant is not None:
            raise Uneven(f"replicas differ, and {what}")

    def leave_to_python(self, reason: str) -> None:
        """Gives up: the function has to run as plain Python."""
        raise OnlyPython(reason)

    def _value(self, entry: Entry) -> Any:
        if entry.ref is not None:
            if _jax_internals.is_in_loop_condition(self._trace):
                raise WrongContextError(
                    f"Variable {entry.variable.name!r} is read in the condition of a "
                    "jax.lax.while_loop and assigned in its body, which JAX cannot do. Carry the "
                    "value in the loop's state, and assign it after the loop."
                )
            return entry.ref[...]
        if _jax_internals.staging_trace() is not self._trace:
            entry.is_read_inside = True
        return entry.value

    def _whole(self, entry: Entry) -> Any:
        """Returns the value in full, put together once, outside of branches and loops.

        But inside of `jax.checkpoint`, for each one: what it computes again backwards is so put
        together again, and not kept.
        """
        if entry.cut is None:
            return self._value(entry)
        if entry.ref is not None or _jax_internals.is_checkpointed(self._trace):
            return whole_of_parts(self._value(entry), entry.cut)
        if entry.gathered is None:
            with _jax_internals.at_level(self._trace):
                entry.gathered = whole_of_parts(entry.value, entry.cut)
        if _jax_internals.staging_trace() is not self._trace:
            entry.is_read_inside = True
        return entry.gathered

    def _entry(self, variable: Variable) -> Entry:
        entry = self._entries.get(id(variable))
        if entry is None:
            passage = passage_of(variable, self._place)
            shape, dtype = variable.shape, variable.dtype
            if passage is Passage.EMPTY:
                entry = Entry(variable, passage, jnp.zeros(shape, dtype))
                self._entries[id(variable)] = entry
                return entry
            cut = variable.layout.replica_dim if passage is Passage.WHOLE else None
            if cut is not None:
                shape = part_shape(shape, cut, self.mesh)
            tracer = _jax_internals.new_input(self._trace, shape, dtype)
            entry = self._entries[id(variable)] = Entry(variable, passage, tracer, cut)
            if id(variable) in self._refs:
                entry.ref = _jax_internals.new_ref(self._trace, tracer)
            self.inputs.append(entry)
        return entry

    # ------------------------------------------------------------------ replicas

    def replica_number(self, replica_id: ReplicaId) -> Any:
        if replica_id is EACH:
            if self.variant is not None and self.variant.replica is not None:
                return self.variant.replica
            self.has_told_number = True
            return jax.lax.axis_index(REPLICA_AXIS)
        return replica_id

    def require_devices(self, strategy: StrategyLike, devices: tuple[Device, ...]) -> None:
        """Makes sure that the program is for the replicas on these devices."""
        if not need_mesh(devices):
            if self._place.is_open and devices != self._place.devices:
                raise OtherDevicesNeeded(devices)
            return  # its one replica's work is done wherever the program runs
        if self.mesh is replica_mesh(devices):
            return
        if self.mesh is None:
            raise OtherDevicesNeeded(devices)
        raise NotOneProgram(f"{strategy!r} runs on other devices than an earlier strategy")

    @contextlib.contextmanager
    def replicas(self, fn: object) -> Iterator[Provenance]:
        """Around the call of the replica function `fn`."""
        outer = self._provenance
        self._provenance = provenance = Provenance(self._trace, fn)
        try:
            yield provenance
            self.end_turns()
        finally:
            self._provenance = outer

    def operations_so_far(self) -> int:
        """Returns how many operations the program has."""
        return _jax_internals.operations_so_far(self._trace)

    def end_run(self, start: int, result: PyTree) -> None:
        """Replicas have run, since the operation at `start`, and give `result`."""
        values = [(entry.value, entry.gathered, entry.ref) for entry in self._entries.values()]
        self.ended_runs.note(start, result, itertools.chain.from_iterable(values))

    def value_of_captured(self, value: DistributedValues) -> Any:
        """Returns each replica's component of a value that is no argument of the function."""
        known = self._captured.get(id(value))
        if known is None:
            assert self.mesh is not None
            if any(isinstance(part, Tracer) for part in value.values):  # made in this function
                number = jax.lax.axis_index(REPLICA_AXIS) % local_count(value)
                return jnp.stack([jnp.asarray(part) for part in value.values])[number]
            array = laid_out_over(self.mesh, value)
            is_weak = look_of(value)[2]
            tracer = _jax_internals.new_input(self._trace, array.shape, array.dtype, is_weak)
            known = self._captured[id(value)] = (value, tracer, array)
            self.inputs.append(value)
        return known[1]


def in_replica() -> bool:
    """Returns whether code here speaks for each replica of the program."""
    context = get_replica_context()
    return context is not None and replica_id_of(context) is EACH
