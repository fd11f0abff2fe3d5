"""A function of whole arrays, carried out on the parts of them that replicas have.

An optax transformation is written for whole arrays. Where state is cut over the replicas, each of
them is to do its own part of the work. Most of it is elementwise, and is the same on parts. A sum
over a dimension that is cut (the norm of a gradient, say) is a sum of sums. For what is not known
here, the array is put together first: that costs more, and is right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, JaxprEqn

from replicax._src import _jax_internals
from replicax._src._typing import Atom
from replicax._src.collectives import own_part, part_shape, whole_of_parts
from replicax._src.devices import REPLICA_AXIS, ReplicaMesh, over_replicas


class Part(NamedTuple):
    """What each replica has of an array.

    Attributes:
      value: its part along `dim`; all of it if that is None.
      dim: the dimension.
      is_summand: whether the array is the sum over the replicas of what they have. Sums of such
        sums (the norm of all gradients together) are so communicated once.
    """

    value: Any
    dim: int | None = None
    is_summand: bool = False


_ELEMENTWISE = frozenset(
    """abs acos acosh add and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp
    convert_element_type copy copy_p cos cosh digamma div eq erf erf_inv erfc exp exp2 expm1 floor
    ge gt imag integer_pow is_finite le lgamma log log1p logistic lt max min mul ne neg nextafter
    not or population_count pow real reduce_precision rem round rsqrt select_n
    shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square stop_gradient
    sub tan tanh xor""".split()
)
_INLINED = frozenset(
    """pjit jit closed_call core_call custom_jvp_call custom_vjp_call custom_vjp_call_jaxpr remat
    checkpoint""".split()
)


def _are_summands(parts: Sequence[Part]) -> bool:
    """Returns whether the sum of these can be left to be added up over the replicas."""
    are_scalars = all(part.dim is None and jnp.ndim(part.value) == 0 for part in parts)
    return are_scalars and any(part.is_summand for part in parts)


def _summand(part: Part) -> Any:
    if part.is_summand:
        return part.value
    is_first = jax.lax.axis_index(REPLICA_AXIS) == 0
    return jnp.where(is_first, part.value, jnp.zeros_like(part.value))


def on_parts(
    fn: Callable[..., Any],
    looks: Sequence[Any],
    inputs: Sequence[Part],
    wanted: Sequence[int | None],
    mesh: ReplicaMesh,
) -> list[Any]:
    """`fn` of arrays that replicas have parts of; its results, cut as wanted.

    Args:
      fn: takes flat arguments and returns a list of arrays.
      looks: what the whole arguments look like.
      inputs: what each replica has of them.
      wanted: for each result, the dimension in which it is to be cut.
      mesh: of the replicas.
    """
    program = jax.make_jaxpr(fn)(*looks)
    work = _Work(mesh)
    results = work.through(program.jaxpr, program.consts, inputs)
    return [work.cut(result, dim) for result, dim in zip(results, wanted, strict=True)]


class _Work:
    def __init__(self, mesh: ReplicaMesh):
        self._mesh = mesh

    def cut(self, part: Part, dim: int | None) -> Any:
        """Returns an array that is cut along `dim`, however it was before."""
        if part.is_summand:
            part = Part(over_replicas(jax.lax.psum, part.value))
        if part.dim == dim:
            return part.value
        whole = part.value if part.dim is None else whole_of_parts(part.value, part.dim)
        return whole if dim is None else own_part(whole, dim, self._mesh)

    def through(self, jaxpr: Any, constants: Sequence[Any], inputs: Sequence[Part]) -> list[Part]:
        known: dict[Any, Part] = dict(
            zip(jaxpr.constvars, [Part(each) for each in constants], strict=True)
        )
        known.update(zip(jaxpr.invars, inputs, strict=True))

        def read(atom: Any) -> Part:
            return Part(atom.val) if hasattr(atom, "val") else known[atom]

        def settled(atom: Atom) -> Part:
            part = read(atom)
            if part.is_summand:
                part = known[atom] = Part(over_replicas(jax.lax.psum, part.value))
            return part

        for equation in jaxpr.eqns:
            parts = [read(atom) for atom in equation.invars]
            if equation.primitive.name == "add" and _are_summands(parts):
                added = self._bound(equation, [_summand(part) for part in parts])
                results = [Part(each.value, is_summand=True) for each in added]
            elif equation.primitive.name in _INLINED:
                results = self._results(equation, parts)
            else:
                results = self._results(equation, [settled(atom) for atom in equation.invars])
            known.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _results(self, equation: JaxprEqn, parts: list[Part]) -> list[Part]:
        name = equation.primitive.name
        if name in _INLINED:
            inner = list(_jax_internals.subprograms(equation.params))
            if len(inner) == 1 and len(inner[0].invars) == len(parts):
                constants = getattr(equation.params.get("jaxpr"), "consts", ())
                if len(inner[0].constvars) == len(constants):
                    return self.through(inner[0], constants, parts)
        parts = [Part(self.cut(part, None)) if part.is_summand else part for part in parts]
        if all(part.dim is None for part in parts):
            return self._bound(equation, [part.value for part in parts])
        if name in _ELEMENTWISE:
            return self._elementwise(equation, parts)
        if name == "reduce_sum":
            return self._summed(equation, parts[0])
        if name == "broadcast_in_dim":
            return self._broadcast(equation, parts)
        if name == "cond":
            return self._conditional(equation, parts)
        return self._bound(equation, [self.cut(part, None) for part in parts])

    def _bound(self, equation: JaxprEqn, values: Sequence[Any], **changed: object) -> list[Part]:
        """Returns the results of the operation itself, of whole arrays or on parts."""
        parameters = equation.primitive.get_bind_params({**equation.params, **changed})
        results = equation.primitive.bind(*values, **parameters)
        return [
            Part(each) for each in (results if equation.primitive.multiple_results else [results])
        ]

    def _elementwise(self, equation: Any, parts: list[Part]) -> list[Part]:
        dim = next(part.dim for part in parts if part.dim is not None)
        shapes = [atom.aval.shape for atom in equation.invars]
        values = [
            self.cut(part, None if not shape or shape[dim] == 1 else dim)  # one item is for all
            for part, shape in zip(parts, shapes, strict=True)
        ]
        return [Part(each.value, dim) for each in self._bound(equation, values)]

    def _summed(self, equation: JaxprEqn, part: Part) -> list[Part]:
        axes = equation.params["axes"]
        assert part.dim is not None
        result = self._bound(equation, [part.value], **self._local_sharding(equation))[0].value
        if part.dim in axes:
            return [Part(result, is_summand=True)]
        return [Part(result, part.dim - sum(axis < part.dim for axis in axes))]

    def _broadcast(self, equation: JaxprEqn, parts: list[Part]) -> list[Part]:
        part, shape = parts[0], equation.params["shape"]
        assert part.dim is not None
        dim = equation.params["broadcast_dimensions"][part.dim]
        local = part_shape(tuple(shape), dim, self._mesh)
        if local[dim] != part.value.shape[part.dim]:  # a dimension of size 1 is spread
            return self._bound(equation, [self.cut(part, None)])
        changed = {"shape": local, **self._local_sharding(equation)}
        return [Part(each.value, dim) for each in self._bound(equation, [part.value], **changed)]

    def _local_sharding(self, equation: JaxprEqn) -> dict[str, Any]:
        """Returns parameters in place of those that JAX notes of the whole array."""
        return {key: None for key in ("out_sharding", "sharding") if key in equation.params}

    def _conditional(self, equation: JaxprEqn, parts: list[Part]) -> list[Part]:
        """Both branches on parts; their results are cut alike."""
        branches = equation.params["branches"]
        dims = [part.dim for part in parts[1:]]
        found: list[list[int | None]] = []

        def on(
            branch: ClosedJaxpr, wanted: Sequence[int | None] | None
        ) -> Callable[..., list[Any]]:
            def run(*values: object) -> list[Any]:
                inputs = [Part(value, dim) for value, dim in zip(values, dims, strict=True)]
                results = self.through(branch.jaxpr, branch.consts, inputs)
                if wanted is None:
                    found.append([result.dim for result in results])
                    return [result.value for result in results]
                return [self.cut(each, dim) for each, dim in zip(results, wanted, strict=True)]

            return run

        values = [part.value for part in parts[1:]]
        for branch in branches:
            jax.eval_shape(on(branch, None), *values)
        wanted = [next((dim for dim in each if dim is not None), None) for each in zip(*found)]
        index = self.cut(parts[0], None)
        results = jax.lax.switch(index, [on(branch, wanted) for branch in branches], *values)
        return [Part(each, dim) for each, dim in zip(results, wanted, strict=True)]
