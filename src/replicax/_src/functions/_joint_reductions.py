"""The small reductions of a traced program that need not wait for each other become one.

Gradients meet in the optimizer, a loss after it, metrics where they are updated. Each meeting is a
reduction of its own, and on small steps what counts is how many there are. Which of them depend on
others can be seen in the finished program.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, JaxprEqn

from replicax._src import _jax_internals
from replicax._src._typing import Atom
from replicax._src.collectives import DEFAULT_BYTES_PER_PACK
from replicax._src.devices import REPLICA_AXIS, Packing
from replicax._src.functions._rewriting import as_operations, is_sum, variables_in


def join_reductions(program: ClosedJaxpr, packing: Packing, replicas: int) -> ClosedJaxpr:
    """Returns a program that gives the same in fewer collectives, bit for bit in one process.

    Between three or more workers, the order of a sum may depend on its place in what is sent.

    Args:
      program: of each replica, with `psum` over the replicas where they meet.
      packing: what is worth sending together.
      replicas: how many there are.
    """
    jaxpr = program.jaxpr
    parts = _Parts(jaxpr.eqns)
    sums = [each for each in jaxpr.eqns if is_sum(each) and parts.are_small(each, packing)]
    if len(sums) < 2 or any(map(_jax_internals.has_side_effects, jaxpr.eqns)):
        return program
    rounds = _rounds(jaxpr.eqns, sums)
    alike: dict[Any, list[JaxprEqn]] = collections.defaultdict(list)
    for each in sums:
        alike[rounds[id(each)], each.outvars[0].aval.dtype].append(each)
    groups = [group for some in alike.values() for group in _groups(some, parts, packing)]
    joint = {id(each): group for group in groups if len(group) > 1 for each in group}
    if not joint:
        return program
    operations: list[JaxprEqn] = []
    for each in sorted(jaxpr.eqns, key=lambda each: (rounds[id(each)], id(each) in joint)):
        group = joint.get(id(each))
        if group is None:
            operations.append(each)
        elif each is group[0]:
            operations += _joined(group, parts, [(REPLICA_AXIS, replicas)])
    needed = parts.without_unused(operations, jaxpr.outvars)
    return ClosedJaxpr(jaxpr.replace(eqns=needed), program.consts)


def _bytes(atom: Atom) -> int:
    aval: Any = atom.aval
    return math.prod(aval.shape) * aval.dtype.itemsize


def _rounds(operations: Sequence[JaxprEqn], sums: Sequence[JaxprEqn]) -> dict[int, int]:
    """For each operation, how many of the reductions there are on the longest way to it."""
    counted = {id(each) for each in sums}
    before: dict[Any, int] = {}
    found: dict[int, int] = {}
    for each in operations:
        given = [before.get(atom, 0) for atom in variables_in(each.invars)]
        found[id(each)] = latest = max(given, default=0)
        latest += id(each) in counted
        for variable in each.outvars if latest else ():
            before[variable] = latest
    return found


class _Parts:
    """What reductions are of: the tensors of a pack, or one tensor."""

    def __init__(self, operations: Sequence[JaxprEqn]):
        packs: list[Any] = [each for each in operations if each.primitive.name == "concatenate"]
        self._packs = {
            each.outvars[0]: each.invars for each in packs if each.outvars[0].aval.ndim == 1
        }

    def of(self, operation: JaxprEqn) -> Sequence[Any]:
        operand: Any = operation.invars[0]
        return self._packs.get(operand, (operand,))

    def are_small(self, operation: JaxprEqn, packing: Packing) -> bool:
        """Returns whether each of them would be packed."""
        return all(0 < _bytes(part) < packing.alone_from_bytes for part in self.of(operation))

    def without_unused(
        self, operations: Sequence[JaxprEqn], results: Sequence[Any]
    ) -> list[JaxprEqn]:
        """Leaves out packs that nothing takes any more, and that are no results."""
        taken = [*(atom for each in operations for atom in each.invars), *results]
        unused = self._packs.keys() - set(variables_in(taken))
        return [each for each in operations if unused.isdisjoint(each.outvars)]


def _groups(sums: Sequence[JaxprEqn], parts: _Parts, packing: Packing) -> Iterator[list[JaxprEqn]]:
    """Fills one pack after the other, within the limits that packs have anyway."""
    group: list[JaxprEqn] = []
    sizes: collections.Counter[Any] = collections.Counter()
    total = 0
    for each in sums:
        own = collections.Counter(part.aval.size for part in parts.of(each))
        both = sizes + own
        too_many = packing.most_alike is not None and max(both.values()) > packing.most_alike
        if group and (too_many or total + _bytes(each.invars[0]) > DEFAULT_BYTES_PER_PACK):
            yield group
            group, both, total = [], own, 0
        group.append(each)
        sizes, total = both, total + _bytes(each.invars[0])
    yield group


def _joined(
    sums: Sequence[JaxprEqn], parts: _Parts, axes: Sequence[tuple[str, int]]
) -> list[JaxprEqn]:
    """Returns the operations of one reduction in place of those of several."""
    given = [part for each in sums for part in parts.of(each)]
    wholes: list[Any] = [each.outvars[0] for each in sums]

    def join(*arrays: jax.Array) -> list[jax.Array]:
        pack = jax.lax.concatenate([array.reshape(-1) for array in arrays], 0)
        (total,) = _jax_internals.carry_out(sums[0], [pack])
        pieces = jax.lax.split(total, [whole.aval.size for whole in wholes])
        return [piece.reshape(each.aval.shape) for piece, each in zip(pieces, wholes, strict=True)]

    return as_operations(join, given, wholes, axes)
