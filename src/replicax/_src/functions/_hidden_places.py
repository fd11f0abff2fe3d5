"""Where a tensor is in a pack is hidden from XLA, which on CPUs compiles for each place otherwise.

XLA makes the slice that takes a gradient out of a summed pack a part of the update that follows,
and an update is then another one for each place in the pack: a hundred gradients of two shapes are
a hundred kernels, of ten milliseconds each. So here a tensor is taken out by a function that XLA
leaves alone, from a place that is known when the program runs: one kernel for each size.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from replicax._src.devices import REPLICA_AXIS
from replicax._src.functions._rewriting import as_operations, is_sum, variables_in

_WORTH_IT = 8  # tensors of a pack that have the size of an earlier one


def hide_places(program: ClosedJaxpr, replicas: int) -> ClosedJaxpr:
    """Returns a program that gives the same, bit for bit, and that XLA compiles in less time.

    Args:
      program: of each replica, with `psum` over the replicas where they meet.
      replicas: how many there are.
    """
    pieces = _Pieces(program.jaxpr)
    operations: list[JaxprEqn] = []
    for each in program.jaxpr.eqns:
        if id(each) not in pieces.superfluous:
            operations.append(each)
        parts = pieces.of(each)
        if parts:
            operations += _taking_out(each.outvars[0], parts, replicas)
    return ClosedJaxpr(program.jaxpr.replace(eqns=operations), program.consts)


@final
class _Pieces:
    """What is taken out of summed packs.

    Attributes:
      superfluous: the `id`s of the operations that take pieces out.
    """

    def __init__(self, jaxpr: Jaxpr):
        self.superfluous: set[int] = set()
        self._places: dict[Any, tuple[Any, int]] = {}  # the pack that a piece is of, and where
        takers: dict[Any, list[JaxprEqn]] = {}
        used = set(variables_in(jaxpr.outvars))
        for each in jaxpr.eqns:
            given = variables_in(each.invars)
            if is_sum(each) and getattr(each.outvars[0].aval, "ndim", 0) == 1:
                self._places[each.outvars[0]] = each.outvars[0], 0
                takers[each.outvars[0]] = []
            starts = _starts_of_pieces(each) if given and given[0] in self._places else None
            if starts is None:
                used.update(given)
                continue
            pack, offset = self._places[given[0]]
            takers[pack].append(each)
            for piece, start in zip(each.outvars, starts, strict=True):
                self._places[piece] = pack, offset + start
        self._parts: dict[Any, list[Any]] = {pack: [] for pack in takers}
        for piece, (pack, _) in self._places.items():
            if piece is not pack and piece in used:
                self._parts[pack].append(piece)
        for pack, parts in self._parts.items():
            parts.sort(key=lambda piece: self._places[piece][1])
            if self._lie_side_by_side(parts) and _have_few_sizes(parts):
                self.superfluous.update(map(id, takers[pack]))
            else:
                parts.clear()

    def _lie_side_by_side(self, parts: Sequence[Any]) -> bool:
        end = 0
        for part in parts:
            if self._places[part][1] != end:
                return False
            end += part.aval.size
        return True

    def of(self, operation: JaxprEqn) -> Sequence[Any]:
        """Returns what is to be taken out of what an operation gives, in order; often nothing."""
        return self._parts.get(operation.outvars[0], ()) if operation.outvars else ()


def _starts_of_pieces(operation: JaxprEqn) -> Sequence[int] | None:
    """Returns where its results begin, if an operation takes them out of one vector."""
    parameters = operation.params
    if operation.primitive.name == "slice" and not parameters["strides"]:
        return parameters["start_indices"]
    if operation.primitive.name == "split":
        ends = [0]
        for size in parameters["sizes"]:
            ends.append(ends[-1] + size)
        return ends[:-1]
    return None


def _have_few_sizes(parts: Sequence[Any]) -> bool:
    return len(parts) - len(collections.Counter(part.aval.size for part in parts)) >= _WORTH_IT


def _taking_out(pack: Any, parts: Sequence[Any], replicas: int) -> list[JaxprEqn]:
    """Returns the operations that give the parts of a pack."""

    def take_out(pack: jax.Array) -> list[jax.Array]:
        # It is zero. XLA does not know that, and so no later place either.
        # Of a dtype without a sign: JAX would ask of each place whether it counts from the end.
        place = jnp.minimum(jax.lax.axis_index(REPLICA_AXIS), 0).astype(jnp.uint32)
        found: list[jax.Array] = []
        with set_xla_metadata(inlineable="false"):
            for part in parts:
                taken, place = _at(pack, place, size=part.aval.size)
                found.append(taken)
        return found

    return as_operations(take_out, [pack], parts, [(REPLICA_AXIS, replicas)])


@functools.partial(jax.jit, static_argnames="size")
def _at(pack: jax.Array, place: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    """Returns so many items from a place on, and the place after them."""
    return jax.lax.dynamic_slice(pack, (place,), (size,)), place + jnp.uint32(size)
