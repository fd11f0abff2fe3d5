"""Variables in functions that JAX traces and keeps: right, or refused, but never stale."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.replicas import mirrored


def in_jit(w: Any) -> Callable[[Any], Any]:
    return jax.jit(lambda x: x * w)


def in_checkpoint(w: Any) -> Callable[[Any], Any]:
    return jax.jit(jax.checkpoint(lambda x: x * w))


def in_scan(w: Any) -> Callable[[Any], Any]:
    def body(carry: Any, _: Any) -> Any:
        return carry * w, None

    return lambda x: jax.lax.scan(body, x, None, length=1)[0]


def in_cond(w: Any) -> Callable[[Any], Any]:
    def branch(x: Any) -> Any:
        return x * w

    return lambda x: jax.lax.cond(x > 0, branch, branch, x)


KEPT = [in_jit, in_checkpoint, in_scan, in_cond]


@pytest.mark.parametrize("kept", KEPT)
def test_a_read_that_would_be_kept_is_refused(kept: Any):
    w = rx.Variable(1.0)
    with pytest.raises(RuntimeError, match="pass it as an argument"):
        kept(w)(jnp.float32(2.0))
    with pytest.raises(RuntimeError, match="read_value"):
        rx.value_and_grad(lambda: kept(w)(jnp.float32(2.0)), [w])


@pytest.mark.parametrize("kept", KEPT)
def test_a_compiled_loss_may_read_anywhere(kept: Any):
    strategy = mirrored(2)
    with strategy.scope():
        w = rx.Variable(1.0)
    fn = kept(w)  # one function for all steps and replicas
    for value in (1.0, 5.0):
        w.assign(value)
        losses, (gradients,) = strategy.run(
            lambda: rx.value_and_grad(lambda: fn(jnp.float32(2.0)), [w], compile=True)
        )
        assert [float(x) for x in losses.values] == [2 * value] * 2
        assert [float(x) for x in gradients.values] == [2.0, 2.0]


def test_where_nothing_is_kept_reads_are_fine():
    w = rx.Variable(3.0)
    np.testing.assert_array_equal(jax.vmap(lambda x: x * w)(jnp.arange(3.0)), [0.0, 3.0, 6.0])
    assert float(jax.grad(lambda x: x * w)(1.0)) == 3.0
    assert float(jax.jit(lambda x, w: x * w)(2.0, w)) == 6.0
    assert float(jax.jit(jnp.sum)(w)) == 3.0


@pytest.mark.parametrize("kind", ["assign", "assign_add", "assign_sub"])
def test_a_write_that_would_happen_once_is_refused(kind: str):
    w = rx.Variable(1.0)
    with pytest.raises(RuntimeError, match="assign it outside"):
        jax.jit(lambda: getattr(w, kind)(2.0))()
    assert float(w) == 1.0
