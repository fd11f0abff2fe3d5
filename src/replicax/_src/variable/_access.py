"""What other rooms may do with the inside of variables, which users are not to see."""

# Of this room: tests/test_architecture.py draws the line between rooms.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

import jax

from replicax._src._planned_arrays import PlannedArray
from replicax._src._typing import Device
from replicax._src.devices import Layout, ReplicaMesh
from replicax._src.values import Mirrored, Storage, buffers_for
from replicax._src.variable._creator import initial_array
from replicax._src.variable._distributed import (
    ComponentVariable,
    DistributedVariable,
    all_distributed,
)
from replicax._src.variable._holder import Holder
from replicax._src.variable._late_values import take_over
from replicax._src.variable._policy import Change
from replicax._src.variable._variable import UPDATING, Variable


def initial_value(arguments: dict[str, Any]) -> jax.Array:
    """Returns the array that a variable with these arguments starts from."""
    name = arguments.get("name") or "Variable"
    shape = arguments.get("shape")
    return initial_array(arguments.get("initial_value"), arguments.get("dtype"), shape, name)


def root_of(variable: Variable) -> Variable:
    """Returns the variable that this one is a copy of, or itself."""
    return variable._root


def rename(variable: Variable, name: str) -> None:
    """Gives a variable another name, for messages and checkpoints."""
    variable._name = f"{name}:0"


def container_of(variable: Variable) -> Variable:
    """Returns the variable that has this one among its copies, or itself."""
    return variable._container if isinstance(variable, ComponentVariable) else variable


def copy_here(variable: Variable) -> Variable:
    """Returns the copy that code here speaks for; the variable itself where it has none."""
    if not isinstance(variable, DistributedVariable):
        return variable
    index = variable._local_index()
    return variable if index is None else variable._component(index)


def copies_differ(variable: Variable) -> bool:
    """Returns whether the replicas' copies of a variable may have different values."""
    return variable._copies_differ


def number_of_copies(variable: DistributedVariable) -> int:
    """Returns how many copies there are on all workers."""
    return variable._copies


def devices_of(variable: Variable) -> tuple[Device, ...]:
    """Returns the devices of this process that hold the copies, in replica order."""
    return variable._placement


def mesh_of(variable: Variable) -> Any:
    """Returns the mesh of the replicas that have copies or parts; None for a plain variable."""
    return variable._stored.mesh


def own_storage(variable: Variable) -> Storage:
    """Returns what holds the value outside of programs that are being traced."""
    return variable._stored


def holder_of(variable: Variable) -> Holder | None:
    """Returns the processes that hold the value, if this one does not."""
    return variable._holder


def settled_storage(variable: Variable) -> Storage:
    """Returns the same, after the variable has taken its value from a program that had it."""
    return variable._settled()


def set_storage(variable: Variable, storage: Storage) -> None:
    """Makes `storage` what holds the value."""
    variable._store(storage)


def start_from(variable: Variable, mesh: ReplicaMesh | None, value: jax.Array) -> None:
    """Gives a new variable its storage, on the devices of `mesh` or on its own one."""
    variable._start(mesh, value)


def read_storage(variable: Variable) -> jax.Array:
    """Returns the value in this context, whatever stands for the variable in a loss."""
    return variable._read()


def change(variable: Variable, how: Change, value: jax.Array | Mirrored) -> None:
    """Changes a variable in this context; `value` has its shape and dtype."""
    variable._update(how, value)


def whole_of(variable: Variable) -> jax.Array:
    """Returns all copies as one array, laid out over the variable's devices."""
    return variable._whole


def set_whole(variable: Variable, array: jax.Array, exclusive: bool = False) -> None:
    """Sets all copies; `exclusive` if a program has just made `array`, and no other code has it."""
    variable._set_whole(array, exclusive)


def laid_out_like(variable: Variable, value: jax.Array | Mirrored) -> jax.Array:
    """Returns a value that is the same on all replicas, laid out as `whole_of` is."""
    return variable._laid_out(value)


def variables_of(strategy: object) -> list[DistributedVariable]:
    """Returns the variables of a strategy that there are, in the order in which they were made."""
    return [each for each in list(all_distributed.values()) if each._strategy is strategy]


@contextlib.contextmanager
def moved_to(variable: DistributedVariable, mesh: ReplicaMesh, layout: Layout) -> Generator[None]:
    """Inside the block, a variable is on other devices, planned ones, and has no value."""
    before = variable._stored, variable._layout, variable._parts
    array = PlannedArray.of_shape(variable.shape, variable.dtype, mesh.sharding(layout))
    variable._stored = buffers_for(mesh, layout, array)
    variable._layout, variable._parts = layout, None
    try:
        yield
    finally:
        variable._stored, variable._layout, variable._parts = before


def catch_up(variable: Any) -> None:
    """Lets a variable, also one of Keras, take over the value that a checkpoint may have for it."""
    if variable._looks_left:
        with UPDATING:
            take_over(variable)
