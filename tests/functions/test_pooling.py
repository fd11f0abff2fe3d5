"""Gradients of max pooling are comparisons on CPUs, where windows lie side by side."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

import replicax as rx
from replicax._src.functions._pooling import compare_in_windows
from tests.replicas import by_replica, mirrored

THEIRS = "select_and_scatter_add"


def pooled(
    x: jax.Array, window: Any, padding: str = "VALID", strides: Any = None, least: bool = False
) -> jax.Array:
    reduce, start = (jax.lax.min, np.inf) if least else (jax.lax.max, -np.inf)
    return jax.lax.reduce_window(x, x.dtype.type(start), reduce, window, strides or window, padding)


def gradient(x: jax.Array, window: Any, **options: Any) -> jax.Array:
    """Of a sum in which each window has a weight of its own."""

    def total(x: jax.Array) -> jax.Array:
        found = pooled(x, window, **options)
        return jnp.sum(found * jnp.arange(1, found.size + 1, dtype=x.dtype).reshape(found.shape))

    return jax.grad(total)(x)


def numbers(shape: Any, dtype: Any = np.float32) -> Any:
    """Zeros and ones: some windows have several largest items, and some nothing else."""
    return np.random.default_rng(0).integers(0, 2, shape).astype(dtype)


@pytest.mark.parametrize(
    ("shape", "window", "options"),
    [
        ((2, 6, 8, 3), (1, 2, 2, 1), {}),
        ((2, 7, 9, 3), (1, 2, 2, 1), {}),  # rows and columns that are in no window
        ((2, 8, 8, 2), (1, 4, 4, 1), {}),
        ((12,), (3,), {}),
        ((2, 3, 4, 4, 4), (1, 1, 2, 2, 2), {}),
        ((2, 6, 6, 1), (1, 2, 2, 1), {"padding": "SAME"}),
        ((2, 6, 6, 1), (1, 2, 3, 1), {"least": True}),
    ],
    ids=["usual", "rest", "large", "vector", "volumes", "same", "least"],
)
def test_comparisons_give_the_same(shape: Any, window: Any, options: Any):
    x = numbers(shape)
    program = jax.make_jaxpr(lambda x: gradient(x, window, **options))(x)
    compared = compare_in_windows(program)
    assert THEIRS in str(program) and THEIRS not in str(compared)
    np.testing.assert_array_equal(run(compared, x), run(program, x))


def run(program: ClosedJaxpr, x: Any) -> Any:
    (result,) = jax.jit(jaxpr_as_fun(program))(x)
    return result


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_small_dtypes(dtype: str):
    x = jnp.asarray(numbers((2, 4, 4, 1)), dtype)
    program = jax.make_jaxpr(lambda x: gradient(x, (1, 2, 2, 1)))(x)
    mine = run(compare_in_windows(program), x)
    assert mine.dtype == dtype
    np.testing.assert_array_equal(mine, run(program, x))


def test_zeros_keep_no_sign():
    def sent(x: jax.Array, source: jax.Array) -> jax.Array:
        return jax.vjp(lambda x: pooled(x, (2,)), x)[1](source)[0]

    x, source = numbers((6,)), np.array([-0.0, 0.0, -1.0], np.float32)
    program = jax.make_jaxpr(sent)(x, source)
    mine, theirs = (
        jax.jit(jaxpr_as_fun(each))(x, source)[0] for each in (compare_in_windows(program), program)
    )
    assert np.asarray(mine).tobytes() == np.asarray(theirs).tobytes()


def test_items_that_are_no_numbers():
    x = numbers((1, 4, 8, 1))
    x[0, 0, ::3] = x[0, 3, 1::2] = np.nan
    program = jax.make_jaxpr(lambda x: gradient(x, (1, 2, 2, 1)))(x)
    np.testing.assert_array_equal(run(compare_in_windows(program), x), run(program, x))


@pytest.mark.parametrize(
    ("shape", "window", "options"),
    [
        ((1, 6, 6, 1), (1, 3, 3, 1), {"strides": (1, 2, 2, 1)}),
        ((1, 5, 5, 1), (1, 2, 2, 1), {"padding": "SAME"}),
        ((1, 10, 10, 1), (1, 5, 5, 1), {}),
        ((1, 4), (2, 2), {}),
    ],
    ids=["overlapping", "padded", "too large", "larger than all"],
)
def test_other_windows_stay(shape: Any, window: Any, options: Any):
    program = jax.make_jaxpr(lambda x: gradient(x, window, **options))(numbers(shape))
    assert compare_in_windows(program) is program


def test_loops_and_inner_functions():
    def stepped(x: jax.Array) -> jax.Array:
        inner = jax.jit(lambda x: x + gradient(x, (1, 2, 2, 1)))
        return jax.lax.scan(lambda x, _: (inner(x), None), x, None, length=2)[0]

    x = numbers((1, 4, 4, 1))
    program = jax.make_jaxpr(stepped)(x)
    compared = compare_in_windows(program)
    assert THEIRS in str(program) and THEIRS not in str(compared)
    np.testing.assert_array_equal(run(compared, x), run(program, x))


def test_compiled_steps_on_one_device_and_on_two():
    x = numbers((4, 6, 6, 2))

    def loss(x: jax.Array) -> jax.Array:
        return jnp.sum(pooled(x * 2, (1, 2, 2, 1)) ** 2)

    expected = jax.grad(loss)(jnp.asarray(x))
    np.testing.assert_array_equal(rx.function(jax.grad(loss))(jnp.asarray(x)), expected)
    strategy = mirrored(2)

    @rx.function
    def step(x: Any) -> Any:
        return strategy.run(jax.grad(loss), args=(x,))

    found = step(by_replica(strategy, lambda index: jnp.asarray(x[2 * index : 2 * index + 2])))
    np.testing.assert_array_equal(np.concatenate(found.values), expected)
