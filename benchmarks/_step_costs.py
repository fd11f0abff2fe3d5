"""The small costs of `step.py`: calling a compiled function, and many steps in one call."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from _step_models import Model
from _step_variants import Replicax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import replicax as rx

Call = Callable[[], Any]


def calls(variables: int, devices: list[Any]) -> dict[str, Call]:
    """A function that adds one to each of some scalars, of ours and of JAX's."""
    return {
        "replicax": replicax_call(variables, devices),
        "jit": jit_call(variables, devices),
    }


def replicax_call(count: int, devices: list[Any]) -> Call:
    if len(devices) == 1:
        variables = [rx.Variable(0.0) for _ in range(count)]
    else:
        names = [f"{device.platform.upper()}:{device.id}" for device in devices]
        with rx.distribute.MirroredStrategy(names).scope():
            variables = [rx.Variable(0.0) for _ in range(count)]

    @rx.function
    def add_one():
        for variable in variables:
            variable.assign_add(1.0)

    return add_one


def jit_call(count: int, devices: list[Any]) -> Call:
    def add_one(arrays):
        return [array + 1.0 for array in arrays]

    arrays = [jnp.zeros(()) for _ in range(count)]
    if len(devices) > 1:
        mesh = Mesh(np.array(devices), ("data",))
        arrays = jax.device_put(arrays, NamedSharding(mesh, P()))
        add_one = jax.shard_map(add_one, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
    program = jax.jit(add_one, donate_argnums=0)
    state = [arrays]

    def call():
        state[0] = program(state[0])

    return call


def many_steps(model: Model, devices: list[Any], count: int) -> dict[str, Call] | None:
    """`count` steps in as many calls, and in one; None where the latter does not exist yet."""
    apart, together = Replicax(model, devices), Replicax(model, devices)
    if not hasattr(together.function, "steps"):
        return None

    def in_calls() -> list[jax.Array]:
        return [apart.step() for _ in range(count)]

    def in_one_call() -> Any:
        return together.function.steps(iter([together.batch] * count), count)

    return {"calls": in_calls, "one call": in_one_call}
