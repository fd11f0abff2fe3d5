"""A program while it is being traced: which variables it reads, what it writes, who varies.

`rx.function` calls the user's function once, with tracers for its arguments. Meanwhile a
`ProgramTrace` is the thread's current program. A variable that is read becomes a further input; one
that is written becomes an output; one that is made gets its first value from the program. With
several replicas the trace speaks for all of them: a value is what *each* replica has of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from replicax import _jax_internals, _tree
from replicax._errors import WrongContextError
from replicax._typing import Device, Tracer
from replicax.context import EACH, get_replica_context, thread_state
from replicax.devices import REPLICA_AXIS, ReplicaMesh, replica_mesh
from replicax.functions._captured import laid_out_over
from replicax.values import DistributedValues, OneBuffer, ReplicaBuffers, TracedBuffers, is_leaf
from replicax.variables import DistributedVariable, SyncOnReadVariable, Variable

# JAX keeps what it traced by the function and this value. A value of its own for each state of the
# variables makes JAX look again into jitted functions, scan bodies and the like, which may read
# them.
trace_token = jax.make_user_context(None)


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a program runs.

    Attributes:
      devices: of the replicas.
      replica: the replica that it is for, if eager replicas call it.
      is_open: whether nothing but a default speaks for these devices.
    """

    devices: tuple[Device, ...]
    replica: int | None = None
    is_open: bool = False

    @property
    def mesh(self) -> ReplicaMesh | None:
        """The mesh of a program for several replicas."""
        return replica_mesh(self.devices) if len(self.devices) > 1 else None


class OtherDevicesNeeded(BaseException):
    """Internal: the function runs replicas on these devices; trace it anew, for them.

    This and `NotOneProgram` are BaseExceptions, so that a user's `except Exception` does not catch
    them.
    """

    def __init__(self, devices: tuple[Device, ...]):
        super().__init__("the program is for other devices")
        self.devices = devices


class NotOneProgram(BaseException):
    """Internal: the function must run as Python, with its parts compiled; the text says why."""


@dataclasses.dataclass(eq=False)
class Entry:
    """A variable in a program.

    Attributes:
      variable: the variable.
      kind: how it gets in and out: "whole" (as it lies on the program's devices), "value" (from
        and to other devices), "copy" (that of the one replica that the program is for), "empty"
        (it has no items, which programs for several devices cannot take).
      input: the tracer of its value at the start, or None if the program makes it.
      value: its value now.
      ref: the mutable cell that has the value instead, once an inner function assigned it.
      written: whether the program changes it.
      own: whether replicas have assigned values of their own to a variable without copies.
    """

    variable: Variable
    kind: str
    input: Any
    value: Any
    ref: Any = None
    written: bool = False
    own: bool = False


class ProgramTrace:
    """The state of one trace; `thread_state.program` while it goes on."""

    def __init__(self, place: Place, may_create: bool):
        """
        Args:
          place: where the program will run.
          may_create: whether variables may be made.
        """
        self.mesh = place.mesh
        self._place = place
        self._replica = place.replica
        self._may_create = may_create
        self._trace = _jax_internals.staging_trace()
        self._entries: dict[int, Entry] = {}
        self._captured: dict[int, tuple[DistributedValues, Any, Any]] = {}
        self._provenance: _Provenance | None = None
        self._stamps = contextlib.ExitStack()
        self.inputs: list[Any] = []  # entries and captured values, in the order of their inputs
        self.created: list[Variable] = []

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """The thread's current program, inside the block."""
        outer = thread_state.program, thread_state.interceptors
        thread_state.program, thread_state.interceptors = self, []
        with self._stamps:
            self._stamps.enter_context(trace_token(object()))
            try:
                yield
            finally:
                thread_state.program, thread_state.interceptors = outer

    @property
    def written(self) -> list[Entry]:
        """The variables that the program changes."""
        entries = self._entries.values()
        return [entry for entry in entries if entry.written and entry.kind != "empty"]

    def final_values(self) -> list[Any]:
        """What the program leaves in the variables that it wrote, in the order of `written`."""
        return [self._value(entry) for entry in self.written]

    def captured_arrays(self) -> list[Any]:
        """The captured values among `inputs`, laid out over the program's devices."""
        return [array for _, _, array in self._captured.values()]

    # ------------------------------------------------------------------ variables

    def buffers_of(self, variable: Variable) -> TracedBuffers:
        value = self._value(self._entry(variable))
        differ = self.mesh is not None and variable._copies_differ
        if self._provenance is not None and isinstance(variable, DistributedVariable):
            self._provenance.note_handed_out(value)
        return TracedBuffers(variable._stored.mesh, value, mirrored=not differ)

    def set_value(self, variable: Variable, array: Any) -> None:
        entry = self._entry(variable)
        if _jax_internals.is_vmapping():
            raise WrongContextError(
                f"Variable {variable.name!r} is assigned inside jax.vmap, where there is a value "
                "for each element and one variable. Return the values from the mapped function, "
                "combine them, and assign the result outside."
            )
        entry.written = True
        if entry.ref is None and _jax_internals.staging_trace() is self._trace:
            entry.value = array
            # What JAX traced so far has seen the old value.
            self._stamps.close()
            self._stamps.enter_context(trace_token(object()))
            return
        if entry.ref is None:
            entry.ref = _jax_internals.new_ref(self._trace, entry.value)
        entry.ref[...] = jnp.asarray(array, variable.dtype)

    def create(self, variable: Variable, value: Any) -> None:
        """A new variable, whose first value the program computes."""
        if not self._may_create:
            raise ValueError(
                f"rx.function: a variable ({variable.name!r}) was made on a call after the first. "
                "A compiled function may make variables once. Keep the variable and make it only "
                "`if self.v is None:`, or make it before, in strategy.scope()."
            )
        if _jax_internals.staging_trace() is not self._trace or _jax_internals.is_vmapping():
            raise WrongContextError(
                f"Variable {variable.name!r} is made inside a function that JAX traces by itself "
                "(lax.scan, lax.cond, jax.vmap, jax.jit, ...). Make it before, and use it there."
            )
        context = get_replica_context()
        if self.mesh is not None and context is not None and context._replica_id is EACH:
            value = TracedBuffers(self.mesh, value).component(0)  # the first replica's counts
        entry = Entry(variable, self._kind(variable), None, value, written=True)
        if entry.kind == "empty":
            with jax.ensure_compile_time_eval():
                variable._stored = empty_buffers(variable)
        self._entries[id(variable)] = entry
        self.created.append(variable)

    def update_in_turn(self, variable: Variable, kind: str, value: Any) -> None:
        """A variable without copies, changed by each replica, one after the other."""
        entry = self._entry(variable)
        old = self._value(entry)
        if kind == "assign":
            new, entry.own = jnp.broadcast_to(value, jnp.shape(old)), True
        else:
            delta = value if kind == "assign_add" else -value
            if not entry.own:  # a replica sees what those before it have added
                deltas = jax.lax.all_gather(delta, REPLICA_AXIS)
                number = jax.lax.axis_index(REPLICA_AXIS)
                before = jnp.arange(deltas.shape[0]) <= number
                before = before.reshape((-1,) + (1,) * (deltas.ndim - 1))
                delta = jnp.sum(jnp.where(before, deltas, jnp.zeros_like(deltas)), axis=0)
            new = old + delta.astype(old.dtype)
        self.set_value(variable, new)
        assert self._provenance is not None
        self._provenance.diverged[id(variable)] = entry

    def _value(self, entry: Entry) -> Any:
        return entry.value if entry.ref is None else entry.ref[...]

    def _entry(self, variable: Variable) -> Entry:
        entry = self._entries.get(id(variable))
        if entry is None:
            kind = self._kind(variable)
            template = variable._template
            if kind == "empty":
                zeros = jnp.zeros(template.shape, template.dtype)
                entry = self._entries[id(variable)] = Entry(variable, kind, zeros, zeros)
                return entry
            tracer = _jax_internals.new_input(self._trace, template.shape, template.dtype)
            entry = self._entries[id(variable)] = Entry(variable, kind, tracer, tracer)
            self.inputs.append(entry)
        return entry

    def _kind(self, variable: Variable) -> str:
        mesh: ReplicaMesh | None = variable._stored.mesh
        if self.mesh is not None and 0 in variable.shape:
            return "empty"
        if self._replica is not None and mesh is not None and mesh.size > 1:
            return "copy"
        if mesh is self.mesh:
            return "whole"
        if self.mesh is None and self._replica is None:
            assert mesh is not None
            if mesh.size > 1:
                raise OtherDevicesNeeded(mesh.devices)
            return "whole"
        if isinstance(variable, SyncOnReadVariable) and mesh is not None and mesh.size > 1:
            raise NotOneProgram(
                f"variable {variable.name!r} has copies on other devices than the function's"
            )
        return "value"

    # ------------------------------------------------------------------ replicas

    def replica_number(self, replica_id: Any) -> jax.Array:
        if replica_id is EACH:
            return jax.lax.axis_index(REPLICA_AXIS)
        return jnp.asarray(replica_id, jnp.int32)

    def require_devices(self, strategy: Any, devices: tuple[Device, ...]) -> None:
        """Makes sure that the program is for the replicas on these devices."""
        if len(devices) == 1:
            if self._place.is_open and devices != self._place.devices:
                raise OtherDevicesNeeded(devices)
            return  # its one replica's work is done wherever the program runs
        if self.mesh is replica_mesh(devices):
            return
        if self.mesh is None:
            raise OtherDevicesNeeded(devices)
        raise NotOneProgram(f"{strategy!r} runs on other devices than an earlier strategy")

    @contextlib.contextmanager
    def replicas(self) -> Iterator[_Provenance]:
        """Around the call of a replica function."""
        self._provenance = provenance = _Provenance(self._trace)
        try:
            yield provenance
        finally:
            self._provenance = None
        for entry in provenance.diverged.values():
            assert self.mesh is not None
            last = TracedBuffers(self.mesh, self._value(entry)).component(self.mesh.size - 1)
            self.set_value(entry.variable, last)
            entry.own = False

    def value_of_captured(self, value: DistributedValues) -> Any:
        """Each replica's component of a value that the function did not get as an argument."""
        known = self._captured.get(id(value))
        if known is None:
            assert self.mesh is not None
            array = laid_out_over(self.mesh, value)
            tracer = _jax_internals.new_input(self._trace, array.shape, array.dtype)
            known = self._captured[id(value)] = (value, tracer, array)
            self.inputs.append(value)
        return known[1]


def empty_buffers(variable: Variable) -> Any:
    """The value of a variable without items."""
    zeros = jnp.zeros(variable.shape, variable.dtype)
    mesh = variable._stored.mesh
    if mesh is None:
        return OneBuffer(zeros)
    return ReplicaBuffers(mesh, assembled=jax.device_put(zeros, mesh.replicated))


class _Provenance:
    """Which arrays a replica function has from outside, the very same on all replicas.

    Merging is by identity (see `values/_regroup.py`), and a trace has one object for all replicas.
    """

    def __init__(self, trace: Any):
        self._trace = trace
        self._start = _jax_internals.operations_so_far(trace)
        self._handed_out: dict[int, Any] = {}
        self._same: dict[int, Any] = {}
        self.diverged: dict[int, Entry] = {}

    def note_handed_out(self, value: Any) -> None:
        self._handed_out[id(value)] = value

    def handed_out(self, structure: Any) -> Any:
        """What each replica gets of `structure`."""

        def pick(leaf: Any) -> Any:
            if isinstance(leaf, DistributedValues) and not leaf._passed_whole:
                leaf = leaf._component(EACH)
                self.note_handed_out(leaf)
            elif isinstance(leaf, jax.Array):
                self._same[id(leaf)] = leaf
            return leaf

        return _tree.map_structure(pick, structure, is_leaf)

    def is_same(self, leaf: Any) -> bool:
        if id(leaf) in self._handed_out:
            return False
        if id(leaf) in self._same:
            return True
        if not isinstance(leaf, Tracer):
            return isinstance(leaf, jax.Array)  # captured: operations on it would be traced
        return not _jax_internals.made_since(self._trace, self._start, leaf)
