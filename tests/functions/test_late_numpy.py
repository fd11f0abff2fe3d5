"""NumPy arrays that a compiled loss captures: what JAX gets of them, and what NumPy does."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx

Own = np.ndarray
ARRAYS = (np.ndarray, jax.Array)
UNION = np.ndarray | jax.Array
SCALARS = (float, np.generic)


@functools.singledispatch
def kind_of(x: Any) -> int:
    return 2


@kind_of.register(np.ndarray)
def _(x: Any) -> int:
    return 3


X = np.arange(12, dtype=np.float32).reshape(3, 4)
USES: dict[str, Callable[[Any, Any], Any]] = {
    "an operator with a variable": lambda x, w: jnp.sum(x * w) + jnp.sum(w - x),
    "an operator with an array": lambda x, w: jnp.sum(jnp.ones(4) + x) * w,
    "an operator with a number": lambda x, w: jnp.sum(x * 2) * w,
    "two of them": lambda x, w: jnp.sum(x * x - x) * w,
    "a comparison": lambda x, w: jnp.sum(jnp.where(x > 3, w, 0.0)),
    "an index": lambda x, w: w * (x[0, 1] + x[-1, 0]),
    "slices": lambda x, w: w * jnp.sum(x[1:, ::2]),
    "a mask": lambda x, w: w * jnp.sum(x[x > 3]),
    "an index array": lambda x, w: w * jnp.sum(x[[0, 2]]),
    "a new axis": lambda x, w: w * jnp.sum(x[None, ..., 0]),
    "rows in a loop": lambda x, w: sum(jnp.sum(row * w) for row in x),
    "len and shape": lambda x, w: w * len(x) * x.shape[1] * x.size * x.ndim,
    "a method": lambda x, w: w * x.mean(),
    "a function of NumPy": lambda x, w: w * np.median(x),
    "float": lambda x, w: w * float(x[0, 1]),
    "a transpose": lambda x, w: w * jnp.sum(x.T @ jnp.ones(3)),
    "reshape": lambda x, w: w * jnp.sum(x.reshape(-1, 2)[:, 0]),
    "astype": lambda x, w: w * jnp.sum(x.astype(np.int32)),
    "astype of 64 bits": lambda x, w: w * (x.astype(np.float64).sum() + 1e9 - 1e9),
    "a membership": lambda x, w: w * (5.0 in x),
    "in place": lambda x, w: w * jnp.sum(np.add(x, 1, out=np.empty_like(x))),
    "isinstance": lambda x, w: w * jnp.sum(jnp.asarray(x)),
    "isinstance of a container": lambda x, w: w * (2 if isinstance(x, list | tuple) else 3),
    "its class": lambda x, w: w * len(x.__class__.__name__),
    "isscalar": lambda x, w: w * (2 if np.isscalar(x[0, 0]) else 3),
    "singledispatch": lambda x, w: w * kind_of(x),
    "isinstance by another name": lambda x, w: jnp.sum(x * w) * (2 if isinstance(x, Own) else 1),
    "isinstance of several": lambda x, w: jnp.sum(x * w) * (2 if isinstance(x, ARRAYS) else 1),
    "isinstance of a union": lambda x, w: jnp.sum(x * w) * (2 if isinstance(x, UNION) else 1),
    "isinstance of an item": lambda x, w: w * x[0, 1] * (2 if isinstance(x[0, 1], SCALARS) else 1),
    "an item as a key": lambda x, w: w * {1: 5.0, 2: 6.0}.get(x[0, 1], 9.0),
    "an item in a set": lambda x, w: w * (5.0 if x[0, 1] in {1, 2} else 9.0),
    "text": lambda x, w: w * len(str(x[0, 1])) * len(f"{x[0, 1]}") * len(repr(x[0])),
}


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8])
@pytest.mark.parametrize("use", USES)
def test_the_numbers_are_those_of_plain_python(use: str, dtype: Any):
    w = rx.Variable(2.0)
    for scale in (1, 2):
        x = (X * scale).astype(dtype)
        use_of = USES[use]  # not all of them: what one of them needs, all would have
        loss = lambda: use_of(x, w) * 1.0  # noqa: B023, E731
        expected, gradient = rx.value_and_grad(loss, [w])
        value, compiled = rx.value_and_grad(loss, [w], compile=True)
        np.testing.assert_allclose(value, expected, rtol=1e-5)
        np.testing.assert_allclose(compiled[0], gradient[0], rtol=1e-5)


def test_integers_that_jax_has_not_are_those_of_numpy():
    w, x = rx.Variable(1.0), np.full(2, 2**40 + 1)
    value, _ = rx.value_and_grad(lambda: w * jnp.sum(x % 1000), [w], compile=True)
    assert float(value) == 2 * ((2**40 + 1) % 1000)


def test_a_wrong_index_is_an_error_as_in_numpy():
    w = rx.Variable(1.0)
    with pytest.raises(IndexError, match="out of bounds"):
        rx.value_and_grad(lambda: w * X[7, 0], [w], compile=True)


WHOLE: dict[str, Callable[[Any], Any]] = {
    "int32": lambda x: jnp.int32(x)[0],
    "asarray": lambda x: jnp.asarray(x, jnp.int32)[0],
    "array of items": lambda x: jnp.array([x[0], 1.0], dtype=int)[0],
    "full": lambda x: jnp.full((2,), x[0], jnp.int32)[0],
    "jax.jit": lambda x: jax.jit(lambda: jnp.asarray(x, jnp.int32))()[0],
    "booleans": lambda x: jnp.asarray(x, bool)[1] + 16777216,
}


@pytest.mark.parametrize("way", WHOLE)
def test_whole_numbers_are_those_of_all_bits_of_an_array(way: str):
    w, x = rx.Variable(1.0), np.array([16777217.0, 1e-60])  # 2**24 + 1; 0 in 32 bits
    value, _ = rx.value_and_grad(lambda: w * (WHOLE[way](x) - 16777216), [w], compile=True)
    assert float(value) == 1
