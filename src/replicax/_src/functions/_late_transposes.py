"""Gradients of matrices are summed over the replicas as they are computed, and transposed then.

The gradient of a matrix is a product, transposed. Summed at once, it has to be transposed before;
XLA then computes another product, which gives it in that order and for which its fast code for CPUs
is not made. Afterwards, to transpose is a part of the update.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any, NamedTuple, final

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

from replicax._src.functions._rewriting import as_operations, is_sum, variables_in

# Numbers in a product. Updates that read them transposed take longer to compile, by a fifth for a
# net of fifty layers that are 16 wide, of which each product has 256.
_WORTH_IT = 1024


class _Product(NamedTuple):
    """What a part of a sum is computed from: a product, transposed, and times some numbers."""

    result: Any
    permutation: tuple[int, ...]
    factors: Sequence[JaxprEqn]

    def as_part(self, array: jax.Array) -> jax.Array:
        for each in self.factors:
            atoms: list[Any] = list(each.invars)
            operands = [atom.val if _is_number(atom) else array for atom in atoms]
            array = each.primitive.bind(*operands, **each.params)
        return array.reshape(-1)


def transpose_late(program: ClosedJaxpr) -> ClosedJaxpr:
    """Returns a program that transposes products after packs of them are summed.

    Args:
      program: of each replica, with `psum` over the replicas where they meet.
    """
    found = _Found(program.jaxpr.eqns, program.jaxpr.outvars)
    instead: dict[int, list[JaxprEqn]] = {}
    for each in program.jaxpr.eqns:
        pack = found.pack_of(each)
        if pack is None:
            continue
        parts = list[Any](pack.invars)
        before: list[JaxprEqn] = []
        for index, restored in enumerate(found.shapes_after(each, pack)):
            if restored is None:
                continue
            shaped: Any = restored.outvars[0]
            product = found.product_behind(parts[index], shaped.aval.shape)
            if product is None:
                continue
            added = as_operations(product.as_part, [product.result])
            before += added
            parts[index] = added[-1].outvars[0]
            instead[id(restored)] = _restored(restored, product)
        instead[id(pack)] = [*before, pack.replace(invars=parts)]
    operations = [new for each in program.jaxpr.eqns for new in instead.get(id(each), [each])]
    return ClosedJaxpr(program.jaxpr.replace(eqns=operations), program.consts)


def _restored(reshape: JaxprEqn, product: _Product) -> list[JaxprEqn]:
    """Returns what gives a part its shape, if it was not transposed before."""
    shape = product.result.aval.shape

    def restore(part: jax.Array) -> jax.Array:
        return jax.lax.transpose(part.reshape(shape), product.permutation)

    return as_operations(restore, reshape.invars, reshape.outvars)


def _is_plain_reshape(operation: JaxprEqn) -> bool:
    return operation.primitive.name == "reshape" and operation.params["dimensions"] is None


def _is_number(atom: Any) -> bool:
    """Whether it is a number of the program's own."""
    return isinstance(atom, Literal) and not np.shape(atom.val)


@final
class _Found:
    """Which operation makes each variable of a program, and which take it."""

    def __init__(self, operations: Sequence[JaxprEqn], results: Sequence[Any]):
        self._makers = {variable: each for each in operations for variable in each.outvars}
        self._users: dict[Any, list[JaxprEqn | None]] = collections.defaultdict(list)
        for each in operations:
            for atom in variables_in(each.invars):
                self._users[atom].append(each)
        for atom in variables_in(results):
            self._users[atom].append(None)

    def _maker(self, atom: Any, kind: str) -> JaxprEqn | None:
        """The operation that makes a variable, if it is of this kind."""
        operation = None if isinstance(atom, Literal) else self._makers.get(atom)
        return operation if operation is not None and operation.primitive.name == kind else None

    def pack_of(self, operation: JaxprEqn) -> JaxprEqn | None:
        """What puts together the pack that an operation sums, and that nothing else takes."""
        if not is_sum(operation):
            return None
        pack = self._maker(operation.invars[0], "concatenate")
        if pack is None or len(self._users[pack.outvars[0]]) > 1:
            return None
        packed: Any = pack.outvars[0].aval
        return pack if packed.ndim == 1 else None

    def shapes_after(self, operation: JaxprEqn, pack: JaxprEqn) -> list[JaxprEqn | None]:
        """For each part of a pack, what gives it its shape after the sum, and alone takes it.

        Empty if anything takes other pieces of the sum than the parts.
        """
        slices: dict[tuple[int, int], JaxprEqn] = {}
        for each in self._users[operation.outvars[0]]:
            if each is None or each.primitive.name != "slice" or each.params["strides"]:
                return []
            (start,), (stop,) = each.params["start_indices"], each.params["limit_indices"]
            if (start, stop) in slices:
                return []
            slices[start, stop] = each
        found: list[JaxprEqn | None] = []
        start = 0
        parts: list[Any] = list(pack.invars)
        for part in parts:
            place = start, start + part.aval.shape[0]
            found.append(self._only_reshape(slices.pop(place, None)))
            start = place[1]
        return [] if slices else found

    def _only_reshape(self, taken: JaxprEqn | None) -> JaxprEqn | None:
        users = [] if taken is None else self._users[taken.outvars[0]]
        only = users[0] if len(users) == 1 else None
        return only if only is not None and _is_plain_reshape(only) else None

    def product_behind(self, part: Any, shape: tuple[int, ...]) -> _Product | None:
        """What a part is computed from, if that had this shape before it was in the pack."""
        flattened = self._maker(part, "reshape")
        if flattened is None or not _is_plain_reshape(flattened):
            return None
        atom: Any = flattened.invars[0]
        if atom.aval.shape != shape:
            return None
        factors: list[JaxprEqn] = []
        while (factor := self._maker(atom, "mul")) is not None:
            arrays = [each for each in factor.invars if not _is_number(each)]
            if len(arrays) != 1:
                return None
            (atom,) = arrays
            factors.append(factor)
        transposed = self._maker(atom, "transpose")
        if transposed is None or self._maker(transposed.invars[0], "dot_general") is None:
            return None
        result: Any = transposed.invars[0]
        if result.aval.ndim < 2 or result.aval.size < _WORTH_IT:
            return None
        return _Product(result, transposed.params["permutation"], factors[::-1])
