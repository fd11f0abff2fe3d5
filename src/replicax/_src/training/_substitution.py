"""Putting tracers in the place of variables while a loss runs."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, final

import jax
import jax.numpy as jnp

from replicax._src import _tree
from replicax._src._jax_internals import at_level, current_trace, is_checkpointed, staging_trace
from replicax._src._typing import PyTree, override
from replicax._src.collectives import whole_of_parts
from replicax._src.context import Substitution, world
from replicax._src.values import array_here
from replicax._src.variable import Variable, read_storage, root_of


@final
class TracedValues(Substitution):
    """Values that stand for some variables while a loss is differentiated."""

    def __init__(self, values: Iterable[tuple[Variable, Any]]):
        self._values = {id(variable): value for variable, value in values}
        self._staging = staging_trace()
        self.used: set[int] = set()

    @override
    def read(self, variable: Variable) -> jax.Array | None:
        key = id(root_of(variable))
        value = self._values.get(key)
        if value is not None:
            world().require_unstaged(variable, allowed=self._staging)
            self.used.add(key)
        if isinstance(value, GatheredValue):
            return value.read(self._staging)
        return value

    @override
    def written(self, variable: Variable) -> None:
        # A read after the write sees the new number, and still has the derivative of the variable,
        # as under a TensorFlow tape.
        key = id(root_of(variable))
        tracer = self._values.get(key)
        if isinstance(tracer, GatheredValue):
            tracer = tracer.stand_in
        if tracer is not None:
            self._values[key] = read_storage(variable) + (tracer - jax.lax.stop_gradient(tracer))


class GatheredValue:
    """A variable that replicas have parts of, in the place of a value to differentiate by.

    Inside of `jax.checkpoint` it is put together where it is read. So what is computed again
    backwards is put together again there, and not kept. The derivative is that of a stand-in
    for the whole, of which nothing but its derivative is used.
    """

    def __init__(self, stand_in: jax.Array, part: jax.Array, dim: int):
        self.stand_in = stand_in
        self._part = part
        self._dim = dim
        self._trace = current_trace()
        self._whole: Any = None

    def read(self, program: object) -> Any:
        if is_checkpointed(program):
            return _whole_of(self._dim, self.stand_in, self._part)
        if self._whole is None:
            with at_level(self._trace):  # not in a branch, which other replicas may not take
                self._whole = _whole_of(self._dim, self.stand_in, self._part)
        return self._whole


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _whole_of(dim: int, stand_in: jax.Array, part: jax.Array) -> Any:
    return whole_of_parts(part, dim)


@_whole_of.defjvp
def _whole_of_jvp(dim: int, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
    return _whole_of(dim, *primals), tangents[0]


def checked_losses(result: PyTree, count: int, has_aux: bool) -> tuple[tuple[Any, ...], Any]:
    """`(losses, aux)` from what the user's function returned; the losses must be float scalars."""
    aux = None
    if has_aux and isinstance(result, tuple) and len(result) == 2:
        result, aux = result
    if not isinstance(result, tuple | list) or len(result) != count:
        wanted = "(losses, aux), with as many losses" if has_aux else "a tuple of as many losses"
        raise TypeError(
            f"The loss function must return {wanted} as there are groups of variables, which are "
            f"{count}; it returned {_tree.describe(result)}."
        )
    return tuple(checked_loss(each, has_aux=False)[0] for each in result), aux


def checked_loss(result: PyTree, has_aux: bool) -> tuple[jax.Array, Any]:
    """`(loss, aux)` from what the user's function returned; the loss must be a float scalar."""
    aux = None
    if has_aux:
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError(
                "With has_aux=True the loss function must return a pair (loss, aux); it returned "
                f"{type(result).__name__}."
            )
        result, aux = result
    if result is None:
        raise TypeError("The loss function returned None. Return the loss.")
    result = array_here(result)
    if isinstance(result, tuple | list | dict):
        raise TypeError(
            f"The loss function returned a {type(result).__name__}, but the loss must be a scalar. "
            "Pass has_aux=True if it returns (loss, aux)."
        )
    # Not jnp.asarray of an array: under jax.grad that is an operation of its own.
    loss = result if isinstance(result, jax.Array) else jnp.asarray(result)
    if loss.shape != ():
        raise TypeError(
            f"The loss must be a scalar; it has shape {loss.shape}. Add the examples up, for "
            "example with rx.nn.compute_average_loss(per_example_loss, global_batch_size=...)."
        )
    if not jnp.issubdtype(loss.dtype, jnp.floating):
        raise TypeError(
            f"The loss must be a floating-point number; it is {loss.dtype}. Convert it with "
            "x.astype(jnp.float32)."
        )
    return loss, aux
