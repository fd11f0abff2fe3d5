"""A variant of a program as a list of operations, which other variants may have as well."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

from replicax._src import _jax_internals
from replicax._src.devices import REPLICA_AXIS
from replicax._src.functions._agreement import has_collective, is_collective
from replicax._src.functions._captured import Shape

_MOST_COMPARED = 65_536  # items of a constant
_INLINED = ("jaxpr", "call_jaxpr")  # parameters of operations that call a function


class CannotMerge(Exception):
    """The variants differ in more than shapes; the text says how."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """A program for inputs of certain shapes.

    Attributes:
      program: the closed program.
      inputs: for each of its inputs, the position among those of the merged program, or a constant.
      outputs: the positions of those of its outputs that the merged program returns, in order.
    """

    program: ClosedJaxpr
    inputs: Sequence[int | jax.Array | np.ndarray]
    outputs: Sequence[int]


Key: TypeAlias = int  # of a value in one variant


@dataclasses.dataclass
class Operation:
    """An operation of a variant: of its program, or of a function that is called there."""

    equation: Any
    operands: list[Key | Literal]
    results: list[Key]
    number: Hashable = None  # the same for the same computation in another variant


class FlatVariant:
    """A variant as a list of operations. Calls of functions with collectives inside are inlined."""

    def __init__(self, variant: Variant):
        self._avals: list[Any] = []  # by key, as `numbers`
        self.numbers: list[Hashable] = []
        self.given: dict[Key, int | Any] = {}  # positions of inputs, and constants
        self.operations: list[Operation] = []
        jaxpr = variant.program.jaxpr
        known: dict[Any, Key | Literal] = {}
        for variable, source in zip(jaxpr.invars, variant.inputs, strict=True):
            known[variable] = key = self._new(variable)
            self.given[key] = source
        self._add(jaxpr, known)
        outputs = [_read(atom, known) for atom in jaxpr.outvars]
        self.outputs = [outputs[index] for index in variant.outputs]

    def shape(self, atom: Key | Literal) -> Shape:
        return getattr(self._aval(atom), "shape", ())

    def dtype(self, atom: Key | Literal) -> Any:
        return getattr(self._aval(atom), "dtype", None)

    def _aval(self, atom: Key | Literal) -> Any:
        return atom.aval if isinstance(atom, Literal) else self._avals[atom]

    def number(self, atom: Key | Literal) -> Hashable:
        """Returns what is the same for the same value in another variant, if that is known."""
        return _number_of_literal(atom) if isinstance(atom, Literal) else self.numbers[atom]

    def stages(self) -> Iterator[tuple[list[Operation], Operation | None]]:
        """Yields operations, and the collective that follows them; after the last there is none."""
        operations: list[Operation] = []
        for operation in self.operations:
            if is_collective(operation.equation):
                yield operations, operation
                operations = []
            else:
                operations.append(operation)
        yield operations, None

    def last_uses(self) -> list[float]:
        """Returns, by key, the position of the last operation that needs it; of outputs, beyond."""
        last: list[float] = [-1.0] * len(self.numbers)
        uses = [(float(place), each.operands) for place, each in enumerate(self.operations)]
        for position, atoms in [*uses, (float("inf"), self.outputs)]:
            for atom in atoms:
                if not isinstance(atom, Literal):
                    last[atom] = position
        return last

    def _new(self, variable: Any) -> Key:
        self._avals.append(variable.aval)
        self.numbers.append(None)
        return len(self.numbers) - 1

    def _add(self, jaxpr: Any, known: dict[Any, Key | Literal]) -> None:
        for equation in jaxpr.eqns:
            if _jax_internals.has_side_effects(equation):
                raise CannotMerge("it has side effects, or assigns variables in a loop or a branch")
            operands = [_read(atom, known) for atom in equation.invars]
            if not is_collective(equation):
                if has_collective(equation):
                    known.update(self._inlined(equation, operands))
                    continue
                if _is_for_all_replicas(equation):
                    raise CannotMerge(f"replicas meet in a {equation.primitive.name}")
            results = [self._new(variable) for variable in equation.outvars]
            known.update(zip(equation.outvars, results, strict=True))
            self.operations.append(Operation(equation, operands, results))

    def _inlined(
        self, equation: Any, operands: Sequence[Key | Literal]
    ) -> dict[Any, Key | Literal]:
        """Adds the operations of a function that is called, and returns where its results are."""
        name = equation.primitive.name
        called: Any = next(
            (equation.params[each] for each in _INLINED if each in equation.params), None
        )
        inner: Any = getattr(called, "jaxpr", called)
        is_call = called is not None and name not in ("scan", "shard_map")
        if not is_call or len(inner.invars) != len(operands):
            raise CannotMerge(f"replicas meet inside a {name}")
        known: dict[Any, Key | Literal] = dict(zip(inner.invars, operands, strict=True))
        for variable, constant in zip(inner.constvars, getattr(called, "consts", ())):
            known[variable] = key = self._new(variable)
            self.given[key] = constant
        self._add(inner, known)
        outputs = [_read(atom, known) for atom in inner.outvars]
        return dict(zip(equation.outvars, outputs, strict=True))


def _is_for_all_replicas(equation: JaxprEqn) -> bool:
    """Returns whether an operation that is not known as a collective may be one all the same."""
    if equation.primitive.name == "axis_index":
        return False
    inner = [each for body in _jax_internals.subprograms(equation.params) for each in body.eqns]
    if inner:
        return any(map(_is_for_all_replicas, inner))
    return _jax_internals.mentions_axis([equation], REPLICA_AXIS)


def _read(atom: Any, known: dict[Any, Any]) -> Key | Literal:
    return atom if isinstance(atom, Literal) else known[atom]


def _number_of_literal(literal: Literal) -> Hashable:
    value = np.asarray(literal.val)
    return ("literal", str(value.dtype), value.shape, value.tobytes(), str(literal.aval))


def number_of_constant(array: Any) -> Hashable:
    """Returns a key that the constant also has in other traces, with arrays of their own."""
    if array.size > _MOST_COMPARED or jnp.issubdtype(array.dtype, jax.dtypes.extended):
        return id(array)
    value = np.asarray(array)
    return (str(value.dtype), value.shape, value.tobytes(), getattr(array, "weak_type", False))


def key_of(parameters: dict[str, Any]) -> Hashable:
    # How a function is differentiated, in which each trace has objects of its own, is done with.
    is_call = "call_jaxpr" in parameters
    return tuple(
        (name, _key_of_parameter(value))
        for name, value in sorted(parameters.items())
        if not is_call or hasattr(value, "eqns") or isinstance(value, int | str)
    )


def _key_of_parameter(value: Any) -> Hashable:
    """Returns a key that the parameter of an operation also has in other traces."""
    if hasattr(value, "eqns"):  # a function that is called; constants are not in its text
        inner = [key_of(each.params) for each in value.eqns if _calls_functions(each)]
        return (str(value), tuple(map(id, getattr(value, "consts", ()))), tuple(inner))
    if isinstance(value, tuple | list):
        return tuple(map(_key_of_parameter, value))
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value


def _calls_functions(equation: JaxprEqn) -> bool:
    return next(iter(_jax_internals.subprograms(equation.params)), None) is not None
