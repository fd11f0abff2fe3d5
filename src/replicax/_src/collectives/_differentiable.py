"""Gradients through collectives of eager replicas.

Each replica differentiates on its own thread. A `custom_vjp` stops JAX's tracing at the collective:
its forward and its backward both receive concrete arrays and meet the other replicas. The gradient
of an all-reduce is an all-reduce with the same op; that of an all-gather is the replica's own slice
of the summed cotangent.
"""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from replicax._src._errors import WrongContextError
from replicax._src._typing import Tracer

Arrays = Sequence[jax.Array]


def is_traced(values: Sequence[Any]) -> bool:
    return any(isinstance(value, Tracer) for value in values)


def _require_concrete(values: Sequence[Any], what: str) -> None:
    if is_traced(values):
        raise WrongContextError(
            f"{what} was called while JAX traces the function around it (jax.jit, lax.scan, "
            "vmap). Eager replicas meet in Python, which a traced function cannot do. Move the "
            "collective out of the traced function."
        )


def _apart(
    leaves: Arrays,
    differentiated: Callable[[Arrays], Arrays],
    plain: Callable[[Arrays], Arrays],
    what: str,
) -> list[jax.Array]:
    """Returns `differentiated` of floating-point leaves if JAX traces one, else `plain`."""
    floating = [i for i, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    if not is_traced([leaves[i] for i in floating]):
        return list(plain(leaves))
    others = [i for i in range(len(leaves)) if i not in floating]
    results = list(leaves)
    for indices, collective in ((floating, differentiated), (others, plain)):
        if indices:
            try:
                values = collective([leaves[i] for i in indices])
            except TypeError as error:
                if "forward-mode" not in str(error):
                    raise
                raise WrongContextError(
                    f"{what} was called in a function that is differentiated forwards (jax.jvp, "
                    "jax.jacfwd, jax.hessian). Eager replicas pass back the gradients of jax.grad "
                    "and jax.jacrev alone. Use those, or put rx.function around the step, which "
                    "does both."
                ) from None
            for index, value in zip(indices, values, strict=True):
                results[index] = value
    return results


def all_reduce_with_gradient(
    leaves: Arrays, meet: Callable[[Arrays], list[jax.Array]], what: str
) -> list[jax.Array]:
    """Returns `meet(leaves)`, with the all-reduce gradient where a leaf is being differentiated."""

    def plain(parts: Arrays) -> list[jax.Array]:
        _require_concrete(parts, what)
        return meet(parts)

    @jax.custom_vjp
    def reduce(parts: Arrays) -> list[jax.Array]:
        return plain(parts)

    def forward(parts: Arrays) -> tuple[list[jax.Array], None]:
        return reduce(parts), None

    def backward(_: None, cotangents: Arrays) -> tuple[list[jax.Array]]:
        return (reduce(cotangents),)

    reduce.defvjp(forward, backward)
    return _apart(leaves, reduce, plain, what)


def all_gather_with_gradient(
    leaves: Arrays,
    axis: int,
    meet_gather: Callable[[Arrays], tuple[list[jax.Array], list[int]]],
    meet_sum: Callable[[Arrays], list[jax.Array]],
    what: str,
) -> list[jax.Array]:
    """`meet_gather(leaves)`, which also tells where this replica's part starts in each result."""

    def meet(parts: Arrays) -> tuple[list[jax.Array], list[int]]:
        _require_concrete(parts, what)
        return meet_gather(parts)

    @jax.custom_vjp
    def gather(parts: Arrays) -> list[jax.Array]:
        return meet(parts)[0]

    def forward(parts: Arrays) -> tuple[list[jax.Array], tuple[list[int], list[int]]]:
        sizes = [part.shape[axis] for part in parts]
        if is_traced(parts):  # a gradient of a gradient: the offsets come from the level below
            starts = meet([jax.lax.stop_gradient(part) for part in parts])[1]
            return gather(parts), (starts, sizes)
        joined, starts = meet(parts)
        return joined, (starts, sizes)

    def backward(
        residuals: tuple[list[int], list[int]], cotangents: Arrays
    ) -> tuple[list[jax.Array]]:
        summed = all_reduce_with_gradient(list(cotangents), meet_sum, what)
        return (
            [
                jax.lax.slice_in_dim(total, int(start), int(start) + int(size), axis=axis)
                for total, start, size in zip(summed, *residuals, strict=True)
            ],
        )

    gather.defvjp(forward, backward)
    return _apart(leaves, gather, lambda parts: meet(parts)[0], what)
