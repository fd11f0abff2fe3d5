"""What follows a packed sum is compiled once for all tensors of a size, and gives the same."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

import replicax as rx
from replicax._src.devices import REPLICA_AXIS
from replicax._src.functions._hidden_places import hide_places
from tests.replicas import by_replica, mirrored

LAYERS = 10


def traced(function: Any, *args: Any) -> ClosedJaxpr:
    return jax.make_jaxpr(function, axis_env=[(REPLICA_AXIS, 2)])(*args)


def names_in(program: ClosedJaxpr) -> list[str]:
    return [each.primitive.name for each in program.jaxpr.eqns]


def taken_out(program: ClosedJaxpr) -> int:
    """How many tensors are taken out by functions that XLA leaves alone."""
    attributes = [getattr(each.ctx, "xla_metadata", None) for each in program.jaxpr.eqns]
    return sum(bool(each) and dict(each) == {"inlineable": "false"} for each in attributes)


def on_two_replicas(program: ClosedJaxpr, *args: Any) -> list[Any]:
    """Returns what each replica gets; each has its own row of the arguments."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), (REPLICA_AXIS,))
    whole = jax.sharding.PartitionSpec(REPLICA_AXIS)

    def of_replica(*rows: Any) -> list[Any]:
        results = jaxpr_as_fun(program)(*[row[0] for row in rows])
        return [result[None] for result in results]

    mapped = jax.shard_map(of_replica, mesh=mesh, in_specs=whole, out_specs=whole, check_vma=False)
    return jax.jit(mapped)(*args)


def in_one_pack(*arrays: jax.Array) -> list[jax.Array]:
    """The sums over the replicas, as all tensors of a step are sent together."""
    total = jax.lax.psum(jnp.concatenate([each.reshape(-1) for each in arrays]), REPLICA_AXIS)
    ends = np.cumsum([each.size for each in arrays])
    parts = [total[end - each.size : end] for end, each in zip(ends, arrays, strict=True)]
    return [part.reshape(each.shape) for part, each in zip(parts, arrays, strict=True)]


def numbers(count: int) -> list[Any]:
    """Matrices and vectors in turns, with a row for each of two replicas."""
    shapes = [(2, 3, 4), (2, 4)]
    random = np.random.default_rng(0)
    return [random.normal(size=shapes[index % 2]).astype(np.float32) for index in range(count)]


def test_tensors_of_a_pack_are_taken_out_alike():
    arrays = numbers(2 * LAYERS)
    program = traced(in_one_pack, *[each[0] for each in arrays])
    hidden = hide_places(program, 2)
    assert "slice" in names_in(program) and "slice" not in names_in(hidden)
    assert taken_out(hidden) == 2 * LAYERS
    for mine, expected in zip(
        on_two_replicas(hidden, *arrays), on_two_replicas(program, *arrays), strict=True
    ):
        np.testing.assert_array_equal(mine, expected)


def packs_in_a_pack(*arrays: jax.Array) -> list[jax.Array]:
    """Packs that were joined later: split, and then taken apart."""
    flat = [each.reshape(-1) for each in arrays]
    half = sum(each.size for each in flat[: len(flat) // 2])
    total = jax.lax.psum(jnp.concatenate(flat), REPLICA_AXIS)
    halves = jax.lax.split(total, [half, total.size - half])
    found: list[jax.Array] = []
    for pack, parts in zip(halves, (flat[: len(flat) // 2], flat[len(flat) // 2 :])):
        start = 0
        for part in parts:
            found.append(pack[start : start + part.size] * 2)
            start += part.size
    return found


def test_packs_that_were_joined_are_one():
    arrays = numbers(4 * LAYERS)
    program = traced(packs_in_a_pack, *[each[0] for each in arrays])
    hidden = hide_places(program, 2)
    assert not {"slice", "split"} & set(names_in(hidden))
    assert taken_out(hidden) == 4 * LAYERS
    for mine, expected in zip(
        on_two_replicas(hidden, *arrays), on_two_replicas(program, *arrays), strict=True
    ):
        np.testing.assert_array_equal(mine, expected)


def overlapping(x: jax.Array) -> list[jax.Array]:
    total = jax.lax.psum(x.reshape(-1), REPLICA_AXIS)
    return [total[index : index + 3] for index in range(LAYERS)]


@pytest.mark.parametrize(
    ("function", "arrays"),
    [
        (in_one_pack, numbers(6)),  # too few
        (overlapping, [np.ones((2, 3 * LAYERS), np.float32)]),
        (lambda x: jax.lax.psum(x, REPLICA_AXIS)[::2], [np.ones((2, 8), np.float32)]),
    ],
    ids=["few", "overlapping", "strides"],
)
def test_other_pieces_stay_as_they_are(function: Any, arrays: list[Any]):
    program = traced(function, *[each[0] for each in arrays])
    assert str(hide_places(program, 2)) == str(program)


def test_a_pack_with_an_unused_tensor_stays_as_it_is():
    arrays = numbers(2 * LAYERS)

    def without_the_first(*arrays: jax.Array) -> list[jax.Array]:
        total = jax.lax.psum(jnp.concatenate([each.reshape(-1) for each in arrays]), REPLICA_AXIS)
        start, size = arrays[0].size, arrays[1].size
        return [total[start + index * size : start + (index + 1) * size] for index in range(LAYERS)]

    program = traced(without_the_first, *[each[0, :1] for each in arrays])
    assert str(hide_places(program, 2)) == str(program)


def test_a_compiled_step_gives_what_plain_python_does():
    strategy = mirrored(2)
    with strategy.scope():
        weights = [rx.Variable(jnp.full(4, index + 1.0)) for index in range(2 * LAYERS)]
        optimizer = rx.Optimizer(optax.adam(0.1))
        optimizer.build(weights)

    def replica_step(x: Any) -> None:
        gradients = [x * weight * index for index, weight in enumerate(weights)]
        optimizer.apply_gradients(zip(gradients, weights, strict=True))

    @rx.function
    def step(x: Any) -> None:
        strategy.run(replica_step, args=(x,))

    x = by_replica(strategy, lambda index: jnp.float32(index + 1))
    before = [weight.numpy() for weight in weights]
    step(x)
    compiled = [weight.numpy() for weight in weights]
    for weight, value in zip(weights, before, strict=True):
        weight.assign(value)
    optimizer.build(weights)
    for variable in optimizer.variables:
        variable.assign(jnp.zeros(variable.shape, variable.dtype))
    step.python_function(x)
    for weight, value in zip(weights, compiled, strict=True):
        np.testing.assert_allclose(weight.numpy(), value, rtol=1e-6)
