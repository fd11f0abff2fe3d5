"""The small costs of a compiled step: calling a function, and many steps in one call."""

import collections
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import replicax as rx
from benchmarks.harness.sides import Side, Work
from benchmarks.training.jax_steps import (
    AXIS,
    ByHand,
    Replicax,
    few_in_flight,
    launching,
    mirrored,
)
from benchmarks.training.models import MODELS

Call = Callable[[], Any]


class Launched(Side):
    """A call that is launched again and again.

    Args:
      make: returns the call of a case.
    """

    def __init__(self, make: Callable[..., Call]):
        self.make = make

    def prepare(self, *case: int) -> Work:
        work = launching(self.make(*case))

        def numbers(count: int) -> list[Any]:
            return [number for result in work(count) if result is not None for number in result]

        return numbers


def replicax_call(count: int, devices: int) -> Call:
    """Returns a function of ours that adds one to each of some scalars."""
    if devices == 1:
        variables = [rx.Variable(0.0) for _ in range(count)]
    else:
        with mirrored(jax.devices()[:devices]).scope():
            variables = [rx.Variable(0.0) for _ in range(count)]

    @rx.function
    def add_one():
        for variable in variables:
            variable.assign_add(1.0)

    return add_one


def jit_call(count: int, devices: int) -> Call:
    """Returns a function of `jax.jit` that does the same with arrays."""

    def add_one(arrays):
        return [array + 1.0 for array in arrays]

    arrays = [jnp.zeros(()) for _ in range(count)]
    if devices > 1:
        mesh = Mesh(np.array(jax.devices()[:devices]), ("data",))
        arrays = jax.device_put(arrays, NamedSharding(mesh, P()))
        add_one = jax.shard_map(add_one, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
    program = jax.jit(add_one, donate_argnums=0)
    state = [arrays]

    def call():
        state[0] = program(state[0])

    return call


def steps_in_calls(devices: int, count: int) -> Call:
    """Returns what makes `count` steps of a tiny model in as many calls."""
    step = Replicax(MODELS["tiny"], mirrored(jax.devices()[:devices]))
    return lambda: [step.launch() for _ in range(count)]


def steps_in_one_call(devices: int, count: int) -> Call:
    """Returns what makes the same steps in one call."""
    step = Replicax(MODELS["tiny"], mirrored(jax.devices()[:devices]))
    return lambda: step.function.steps(iter([step.batch] * count), count)


def steps_by_hand_in_calls(devices: int, count: int) -> Call:
    """Returns what makes them by hand in as many calls."""
    launch = ByHand(MODELS["tiny"], jax.devices()[:devices]).launch
    launch = few_in_flight(launch, collections.deque())  # for each step, and not for each ten
    return lambda: [launch() for _ in range(count)]


def steps_by_hand_in_one_call(devices: int, count: int) -> Call:
    """Returns what makes them by hand in one call: a `lax.scan` over the batches in `shard_map`."""
    step = ByHand(MODELS["tiny"], jax.devices()[:devices])

    def steps(state, inputs, labels):
        def body(state, batch):
            loss, state = step.replica_step(state, *batch)
            return state, loss

        state, losses = jax.lax.scan(body, state, (jnp.stack(inputs), jnp.stack(labels)))
        return losses, state

    program = step.over_replicas(steps, P(AXIS))
    inputs, labels = ([part] * count for part in step.batch)

    def call():
        losses, step.state = program(step.state, inputs, labels)
        return losses

    return call


CALLS_OF = {"replicax": replicax_call, "jit": jit_call}
MANY_STEPS_OF = {
    "calls": steps_in_calls,
    "one_call": steps_in_one_call,
    "by_hand_calls": steps_by_hand_in_calls,
    "by_hand_one_call": steps_by_hand_in_one_call,
}
