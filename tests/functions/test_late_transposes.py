"""Products are transposed after they are summed, which changes no number."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

from replicax._src.devices import REPLICA_AXIS
from replicax._src.functions import _late_transposes
from replicax._src.functions._late_transposes import transpose_late

A, B = jnp.arange(6.0).reshape(2, 3), jnp.arange(10.0).reshape(2, 5)
GROUP = 2


@pytest.fixture(autouse=True)
def products_of_any_size(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_late_transposes, "_WORTH_IT", 1)


def flat(arrays: list[jax.Array]) -> jax.Array:
    return jnp.concatenate([each.reshape(-1) for each in arrays])


def product(a: jax.Array, b: jax.Array) -> jax.Array:
    """What JAX computes as the gradient of a matrix, of shape (3, 5)."""
    return jax.lax.transpose(b.T @ a, (1, 0))


def packed(
    a: jax.Array, b: jax.Array, scaled: Callable[[Any], Any] = lambda x: x
) -> tuple[jax.Array, ...]:
    total = jax.lax.psum(flat([a * 2, scaled(product(a, b)), b]), REPLICA_AXIS)
    return total[:6].reshape(2, 3), total[6:21].reshape(3, 5) + 1, total[21:].reshape(2, 5)


def operation_before_the_pack(program: Any) -> list[str]:
    made = {variable: each for each in program.jaxpr.eqns for variable in each.outvars}
    (pack,) = (each for each in program.jaxpr.eqns if each.primitive.name == "concatenate")
    return [made[made[part].invars[0]].primitive.name for part in pack.invars[:2]]


def both(fn: Callable[..., Any]) -> tuple[Any, Any]:
    """The program of a function, and what it becomes; both give the same numbers."""
    program = jax.make_jaxpr(fn, axis_env=[(REPLICA_AXIS, GROUP)])(A, B)
    later = transpose_late(program)
    made = [variable for each in later.jaxpr.eqns for variable in each.outvars]
    assert len(made) == len(set(made))
    arrays = [jnp.stack([each, each + 1]) for each in (A, B)]
    found, expected = (
        jax.vmap(jaxpr_as_fun(each), axis_name=REPLICA_AXIS)(*arrays) for each in (later, program)
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    return program, later


def test_a_product_is_transposed_after_the_sum():
    program, later = both(packed)
    assert operation_before_the_pack(program) == ["mul", "transpose"]
    assert operation_before_the_pack(later) == ["mul", "dot_general"]


def test_a_small_product_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_late_transposes, "_WORTH_IT", 16)
    program, later = both(packed)
    assert str(later) == str(program)


def test_a_product_times_a_number():
    program, later = both(lambda a, b: packed(a, b, lambda x: 3 * (x * 0.5)))
    makers = {variable: each for each in later.jaxpr.eqns for variable in each.outvars}
    (pack,) = (each for each in later.jaxpr.eqns if each.primitive.name == "concatenate")
    scaled = makers[makers[pack.invars[1]].invars[0]]
    assert scaled.primitive.name == "mul" and scaled.outvars[0].aval.shape == (5, 3)
    assert operation_before_the_pack(program) == ["mul", "mul"]


def with_the_pack_as_a_result(a: jax.Array, b: jax.Array) -> Any:
    pack = flat([a * 2, product(a, b)])
    total = jax.lax.psum(pack, REPLICA_AXIS)
    return pack, total[:6], total[6:].reshape(3, 5)


def with_the_sum_as_a_result(a: jax.Array, b: jax.Array) -> Any:
    total = jax.lax.psum(flat([a * 2, product(a, b)]), REPLICA_AXIS)
    return total, total[6:].reshape(3, 5)


def with_other_slices(a: jax.Array, b: jax.Array) -> Any:
    total = jax.lax.psum(flat([a * 2, product(a, b)]), REPLICA_AXIS)
    return total[:6], total[6:].reshape(3, 5), total[6:18].reshape(3, 4)


def with_overlapping_slices(a: jax.Array, b: jax.Array) -> Any:
    total = jax.lax.psum(flat([a * 2, product(a, b)]), REPLICA_AXIS)
    return total[:6], total[6:].reshape(3, 5), total[4:9]


def with_a_factor_for_each_number(a: jax.Array, b: jax.Array) -> Any:
    factors = np.arange(15, dtype=np.float32).reshape(3, 5)
    total = jax.lax.psum(flat([a * 2, product(a, b) * factors]), REPLICA_AXIS)
    return total[:6], total[6:].reshape(3, 5)


def with_steps(a: jax.Array, b: jax.Array) -> Any:
    total = jax.lax.psum(flat([a * 2, product(a, b)]), REPLICA_AXIS)
    return total[:6], total[6::2].reshape(2, 4)


def with_the_part_as_a_result(a: jax.Array, b: jax.Array) -> Any:
    total = jax.lax.psum(flat([a * 2, product(a, b)]), REPLICA_AXIS)
    part = total[6:]
    return total[:6], part, part.reshape(3, 5)


def with_another_shape(a: jax.Array, b: jax.Array) -> Any:
    total = jax.lax.psum(flat([a * 2, product(a, b)]), REPLICA_AXIS)
    return total[:6], total[6:].reshape(5, 3)


@pytest.mark.parametrize(
    "fn",
    [
        with_the_pack_as_a_result,
        with_the_sum_as_a_result,
        with_a_factor_for_each_number,
        with_other_slices,
        with_overlapping_slices,
        with_steps,
        with_the_part_as_a_result,
        with_another_shape,
    ],
)
def test_what_else_takes_the_numbers_in_order_keeps_it(fn: Callable[..., Any]):
    program, later = both(fn)
    assert str(later) == str(program)
