"""Gradients of max pooling, as XLA for CPUs computes them well.

A gradient goes to the largest item of its window. XLA has one operation for that, for windows that
may overlap, and its loops for CPUs take some twenty times as long as TensorFlow's. Where windows
lie side by side, as they do in most models, comparisons give the same.
"""

from __future__ import annotations

import itertools
import math
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn

from replicax._src.functions._rewriting import as_operations

_MOST = 16  # items of a window, each of which is compared on its own


def compare_in_windows(program: ClosedJaxpr) -> ClosedJaxpr:
    """Returns a program that gives the same, bit for bit, with comparisons for pooling.

    Branches, and what is computed again for gradients (`jax.checkpoint`), stay as they are.
    """
    operations: list[JaxprEqn] = []
    for each in program.jaxpr.eqns:
        operations += _compared(each) if _lie_side_by_side(each) else [_compared_inside(each)]
    if all(map(operator.is_, operations, program.jaxpr.eqns)):
        return program
    return ClosedJaxpr(program.jaxpr.replace(eqns=operations), program.consts)


def _compared_inside(operation: JaxprEqn) -> JaxprEqn:
    """Returns an operation with the same done to its body, if it is a loop or an inner `jit`."""
    bodies = {
        name: compare_in_windows(value)
        for name, value in operation.params.items()
        if isinstance(value, ClosedJaxpr)
    }
    if all(bodies[name] is operation.params[name] for name in bodies):
        return operation
    return operation.replace(params={**operation.params, **bodies})


def _lie_side_by_side(operation: JaxprEqn) -> bool:
    """Whether an operation sends numbers to the largest items of windows that do not overlap."""
    if operation.primitive.name != "select_and_scatter_add":
        return False
    given = operation.params
    window = given["window_dimensions"]
    return (
        tuple(window) == tuple(given["window_strides"])
        and not any(itertools.chain(*given["padding"]))
        and 1 < math.prod(window) <= _MOST
        and all(getattr(operation.invars[0].aval, "shape", ()))
    )


def _compared(operation: JaxprEqn) -> list[JaxprEqn]:
    """Returns the operations that give the same."""
    given = operation.params

    def send(source: jax.Array, operand: jax.Array) -> jax.Array:
        return _sent(source, operand, tuple(given["window_dimensions"]), given["select_prim"])

    found = as_operations(send, operation.invars, operation.outvars)
    return [each.replace(source_info=operation.source_info) for each in found]


def _sent(source: jax.Array, operand: jax.Array, window: tuple[int, ...], keeps: Any) -> jax.Array:
    """Returns an array like `operand`, with the numbers of `source` where each window's best is.

    `keeps` tells whether one item is kept when the next one is compared with it.
    """
    best, chosen = None, jnp.zeros(source.shape, np.int32)
    for number, place in enumerate(np.ndindex(*window)):
        ends = [p + (n - 1) * w + 1 for p, n, w in zip(place, source.shape, window, strict=True)]
        item = jax.lax.slice(operand, place, ends, window)
        if best is not None:
            is_kept = keeps.bind(best, item)
            chosen, item = jnp.where(is_kept, chosen, number), jnp.where(is_kept, best, item)
        best = item
    # A dimension for the windows, and one for the places in them.
    apart = [size for n in source.shape for size in (n, 1)]
    places = [size for w in window for size in (1, w)]
    numbers = jax.lax.iota(np.int32, math.prod(window)).reshape(places)
    zero = jnp.zeros((), source.dtype)
    source = jnp.where(source == 0, zero, source)  # XLA adds it to 0: -0.0 becomes 0.0
    sent = jnp.where(chosen.reshape(apart) == numbers, source.reshape(apart), zero)
    sent = sent.reshape([n * w for n, w in zip(source.shape, window, strict=True)])
    rest = [(0, most - n, 0) for most, n in zip(operand.shape, sent.shape, strict=True)]
    return jax.lax.pad(sent, zero, rest)
