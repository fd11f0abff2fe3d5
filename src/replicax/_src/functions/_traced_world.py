"""The world of a program that is being traced: values are tracers, and replicas one trace."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NoReturn

import jax

from replicax._src._typing import Device, Tracer, override
from replicax._src.collectives import ReplicasTogether, SeparateReplicas, UnevenReplicasTogether
from replicax._src.context import (
    EACH,
    Picked,
    ReplicaContext,
    ReplicaId,
    Substitution,
    World,
    replica_id_of,
)
from replicax._src.devices import Layout, ReplicaMesh, replica_mesh
from replicax._src.functions._spmd import run_in_trace
from replicax._src.functions._trace import ProgramTrace, in_replica
from replicax._src.values import (
    DistributedValues,
    Mirrored,
    Storage,
    TracedBuffers,
    array_here,
    value_of_buffers,
)
from replicax._src.variable import (
    Change,
    DistributedVariable,
    Variable,
    change,
    number_of_copies,
    read_storage,
)

# As the stamp in `_trace.py`. Assignments inside the loss renew that one, and cannot renew this.
_loss_stamp = jax.make_user_context(None)


class TracedWorld(World):
    """What is done becomes a part of `program`."""

    is_program: ClassVar[bool] = True

    def __init__(self, program: ProgramTrace):
        self.program = program
        mesh = program.mesh
        if mesh is None:
            self.replicas = SeparateReplicas()
        elif program.variant is not None:
            self.replicas = UnevenReplicasTogether(mesh)
        else:
            self.replicas = ReplicasTogether(mesh)
        self.run_replicas = functools.partial(run_in_trace, program, TracedWorld)

    @override
    def refuse_in_program(self, error: Callable[[], BaseException]) -> NoReturn:
        raise error()

    @override
    def refuse_traced(self, value: object, error: Callable[[], Exception]) -> None:
        pass

    @override
    def pick(self, eager: Picked, in_program: Picked) -> Picked:
        return in_program

    @property
    def has_guessed_shapes(self) -> bool:
        """Whether it took what other replicas have for as large as what this one has."""
        replicas = self.replicas
        return isinstance(replicas, UnevenReplicasTogether) and replicas.have_gathered

    # ------------------------------------------------------------------ running

    @override
    def replica_number(self, number: ReplicaId) -> Any:
        return self.program.replica_number(number)

    @override
    def is_first_of_program(self) -> Any:
        return True if self.program.mesh is None else self.program.replica_number(EACH) == 0

    @override
    def leave_to_python(self, reason: str) -> None:
        self.program.leave_to_python(reason)

    @override
    def on_device(self, device: Device) -> AbstractContextManager[Any]:
        return contextlib.nullcontext()  # the program says where it runs

    @override
    def beside(self, array: jax.Array) -> AbstractContextManager[Any]:
        return contextlib.nullcontext()

    @override
    def mirrored(self, devices: tuple[Device, ...], array: jax.Array) -> Any:
        return value_of_buffers(
            Mirrored, TracedBuffers(replica_mesh(devices), array, mirrored=True)
        )

    @override
    def component_for_each(self, value: DistributedValues) -> Any:
        return self.program.value_of_captured(value)

    # ------------------------------------------------------------------ variables

    @override
    def read(self, variable: Variable) -> jax.Array:
        value = self.substituted(variable)
        return read_storage(variable) if value is None else value

    @override
    def assign(self, variable: Variable, how: Change, value: jax.Array | Mirrored) -> None:
        if isinstance(value, Tracer):
            value = jax.lax.stop_gradient(value)
        change(variable, how, value)
        for substitution in self.substitutions:
            substitution.written(variable)

    @override
    def require_startable(self, value: object, name: str) -> None:
        pass

    @override
    def create(self, variable: Variable, mesh: ReplicaMesh | None, value: jax.Array) -> None:
        self.program.create(variable, mesh, value)

    @override
    def require_unstaged(self, variable: Variable, allowed: object = None) -> None:
        pass

    @override
    def require_own_copy(self, variable: DistributedVariable, index: ReplicaId) -> None:
        self.program.require_own(variable, index)

    @override
    def storage_of(self, variable: Variable) -> Storage:
        return self.program.storage_of(variable)

    @override
    def store(self, variable: Variable, storage: Storage) -> None:
        self.program.set_value(variable, storage.assembled)

    @override
    def with_copy(
        self, variable: DistributedVariable, index: ReplicaId, value: jax.Array
    ) -> Storage:
        return self.program.storage_of(variable).with_component(index, value)

    @override
    def laid_out(self, value: jax.Array | Mirrored, mesh: ReplicaMesh, layout: Layout) -> Any:
        return array_here(value)

    @override
    def relaid(self, array: jax.Array, mesh: ReplicaMesh, layout: Layout) -> Any:
        return array

    @override
    def update_in_turn(self, variable: Variable, how: Change, value: jax.Array) -> bool:
        if not in_replica():
            return False
        self.program.update_in_turn(variable, how, value)
        return True

    @override
    def defer(
        self,
        variable: DistributedVariable,
        context: ReplicaContext,
        how: Change,
        value: jax.Array,
    ) -> bool:
        if replica_id_of(context) is EACH or number_of_copies(variable) == 1:
            return False
        self.program.defer(variable, how, value)
        return True

    # ------------------------------------------------------------------ training

    @override
    @contextlib.contextmanager
    def in_loss(self, substitution: Substitution) -> Iterator[None]:
        # JAX may have traced what the loss calls before, with other values.
        with _loss_stamp(object()), super().in_loss(substitution):
            yield

    @override
    def cut_of(self, variable: Variable) -> int | None:
        # Inside of another loss it has the value that stands for it there.
        return None if self.substitutions else self.program.cut_of(variable)

    @override
    def part_of(self, variable: Variable) -> Any:
        return self.program.part_of(variable)

    @override
    def set_part(self, variable: Variable, value: jax.Array) -> None:
        self.program.set_part(variable, value)

    @override
    def keep_on(self, value: object, logical_device: int) -> None:
        self.program.assign(value, logical_device)
