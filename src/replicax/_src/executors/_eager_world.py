"""The eager world: each operation happens when Python reaches it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, final

import jax

from replicax._src._jax_internals import is_staging, staging_trace
from replicax._src._typing import Device, Tracer, override
from replicax._src.collectives import (
    SeparateReplicas,
)
from replicax._src.context import Picked, ReplicaId, World, first_of
from replicax._src.devices import PLAIN, Layout, ReplicaMesh, device_of, put, replica_mesh
from replicax._src.executors._lockstep import run_in_lockstep
from replicax._src.values import (
    Mirrored,
    PartBuffers,
    ReplicaBuffers,
    Storage,
    array_here,
    storage_of,
    value_of_buffers,
)
from replicax._src.variable import (
    Change,
    DistributedVariable,
    Variable,
    change,
    read_storage,
    set_storage,
    settled_storage,
    start_from,
    write_watchers,
)


@final
class EagerWorld(World):
    """Variables have their values, and replicas are threads that take turns."""

    is_program: ClassVar[bool] = False

    def __init__(self) -> None:
        self.replicas = SeparateReplicas()
        self.run_replicas = run_in_lockstep

    @override
    def refuse_in_program(self, error: Callable[[], BaseException]) -> None:
        pass

    @override
    def refuse_traced(self, value: object, error: Callable[[], Exception]) -> None:
        if isinstance(value, Tracer):
            raise error()

    @override
    def pick(self, eager: Picked, in_program: Picked) -> Picked:
        return eager

    # ------------------------------------------------------------------ running

    @override
    def replica_number(self, number: ReplicaId) -> Any:
        return number

    @override
    def leave_to_python(self, reason: str) -> None:
        pass

    @override
    def on_device(self, device: Device) -> AbstractContextManager[Any]:
        return jax.default_device(device)

    @override
    def beside(self, array: jax.Array) -> AbstractContextManager[Any]:
        return jax.default_device(device_of(array))

    @override
    def mirrored(self, devices: tuple[Device, ...], array: jax.Array) -> Any:
        if len(set(devices)) < len(devices):
            return Mirrored([put(array, device) for device in devices])
        mesh = replica_mesh(devices)
        return value_of_buffers(Mirrored, ReplicaBuffers(mesh, assembled=mesh.spread(array, PLAIN)))

    # ------------------------------------------------------------------ variables

    @override
    def read(self, variable: Variable) -> jax.Array:
        if self.substitutions:
            value = self.substituted(variable)
            if value is not None:
                return value
        self.require_unstaged(variable)
        return read_storage(variable)

    @override
    def assign(self, variable: Variable, how: Change, value: jax.Array | Mirrored) -> None:
        if isinstance(value, Tracer):
            # Under jax.grad a stored value is the number itself, without its derivative.
            value = jax.lax.stop_gradient(value)  # pyright: ignore  # a Tracer of anything
        if isinstance(value, Tracer) or staging_trace() is not None:
            raise RuntimeError(
                f"{how} of variable {variable.name!r} inside a function that JAX traces (jax.jit, "
                "lax.scan, vmap, ...): it would happen when the function is traced, and not when "
                "it runs. Return the value from the traced function and assign it outside, or use "
                "rx.function in place of jax.jit."
            )
        change(variable, how, value)
        for substitution in self.substitutions:
            substitution.written(variable)

    @override
    def require_startable(self, value: object, name: str) -> None:
        if isinstance(value, Tracer):
            raise RuntimeError(
                f"Variable {name!r} cannot start from a value that JAX is tracing (inside "
                "jax.jit, jax.grad, ...), which does not exist yet. Make variables outside of the "
                "traced function, or from a function of no arguments."
            )
        if is_staging():
            raise RuntimeError(
                f"Variable {name!r} is made inside a function that JAX traces (jax.jit, lax.scan, "
                "...), where values do not exist yet. Make variables outside of the traced "
                "function, or use rx.function in place of jax.jit."
            )

    @override
    def create(self, variable: Variable, mesh: ReplicaMesh | None, value: jax.Array) -> None:
        start_from(variable, mesh, value)

    @override
    def require_unstaged(self, variable: Variable, allowed: object = None) -> None:
        # JAX keeps what it traced by the function: the next call would see the old value.
        if staging_trace() is not allowed:
            raise RuntimeError(
                f"Variable {variable.name!r} was read inside a function that JAX traces and keeps "
                "(jax.jit, lax.scan, lax.cond, jax.checkpoint, ...): it would keep the value that "
                "the variable has now. Read it outside, value = variable.read_value(), or pass it "
                "as an argument: jax.jit(fn)(x, variable). rx.function, and in a loss "
                "rx.value_and_grad(..., compile=True), take care of it."
            )

    @override
    def require_own_copy(self, variable: DistributedVariable, index: ReplicaId) -> None:
        pass

    @override
    def storage_of(self, variable: Variable) -> Storage:
        return settled_storage(variable)

    @override
    def store(self, variable: Variable, storage: Storage) -> None:
        set_storage(variable, storage)
        for watcher in write_watchers:
            watcher(variable)

    @override
    def with_copy(
        self, variable: DistributedVariable, index: ReplicaId, value: jax.Array
    ) -> Storage:
        storage = settled_storage(variable)
        assert isinstance(storage, ReplicaBuffers | PartBuffers)
        return storage.with_copy(first_of(index), value, variable.layout)

    @override
    def laid_out(self, value: jax.Array | Mirrored, mesh: ReplicaMesh, layout: Layout) -> jax.Array:
        if isinstance(value, Mirrored):
            buffers = storage_of(value)
            if buffers is not None and buffers.mesh is mesh:
                return mesh.relaid(buffers.assembled, layout)
            value = array_here(value)
        if mesh.is_one_device:  # no transfer to arrange: a tenth of device_put's cost
            return mesh.assemble([put(value, mesh.devices[0])])
        return mesh.spread(value, layout)

    @override
    def relaid(self, array: jax.Array, mesh: ReplicaMesh, layout: Layout) -> jax.Array:
        return mesh.relaid(array, layout)
