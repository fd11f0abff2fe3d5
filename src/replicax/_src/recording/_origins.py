"""Where the first value came from that is not finite: a traced step, operation by operation.

The program of the step is interpreted for all replicas at once, which are a first dimension of each
value, so that collectives work. Of each operation it is seen whether it made something infinite or
a NaN of values that were none, and where those went: what never reaches a result or a variable,
such as the minus infinity of a mask, is not the cause.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, JaxprEqn, Literal

from replicax._src._jax_internals import (
    carry_out,
    is_ref,
    place_of,
    scan_inputs,
    subprograms,
)
from replicax._src.devices import REPLICA_AXIS
from replicax._src.functions import Examined

_INLINED = (
    *("jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"),
    *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_lin"),
)
_ABOUT_LAYOUT = ("sharding_constraint", "mesh_cast", "reshard")
_MOST_TURNS = 10_000  # of a loop that is looked into


@final
@dataclasses.dataclass(frozen=True)
class Origin:
    """Something that was not finite, of what was.

    Attributes:
      number: it was the so many-th operation; inputs come first.
      operation: its name; "input" for what the program was given.
      line: of the user's program, or the name of the input.
      backward: whether it is of the backward pass.
      replica: the first replica where it happened.
      index: of the first element, in what this replica has.
      shape: of the value.
      value: NaN or an infinity.
      largest: the largest absolute value among the operands.
      of: what was infinite before, if this is a NaN that came of it.
      is_constant: whether the program itself has it, as a constant.
    """

    number: int
    operation: str
    line: str
    backward: bool
    replica: int
    index: tuple[int, ...]
    shape: tuple[int, ...]
    value: float
    largest: float
    of: tuple[Origin, ...] = ()
    is_constant: bool = False

    def __str__(self) -> str:
        element = f"element {list(self.index)} of {list(self.shape)}" if self.shape else "it"
        if self.operation == "input":
            row = f", row {self.index[0]} of its share" if self.shape else ""
            return (
                f"{self.line} is not finite: {self.value} on replica {self.replica}{row}, {element}"
            )
        passes = "the backward pass of " if self.backward else ""
        text = (
            f"{self.operation} at {passes}{self.line}: {self.value} on replica {self.replica}, "
            f"{element}; its operands were finite, the largest {self.largest:.4g}"
        )
        if self.is_constant:
            text = text.replace("its operands were finite, the", "of a constant; beside it the")
        if self.of:
            text = text.replace("its operands were finite", "of an infinite operand")
            text += "".join(f"\n    which was {each}" for each in self.of[:2])
        return text


@dataclasses.dataclass
class _Value:
    """An array of all replicas, or with a first dimension for them; and where it is bad from."""

    array: Any
    is_mapped: bool
    origins: tuple[Origin, ...] = ()


@final
@dataclasses.dataclass(frozen=True)
class Examination:
    """What was found in a step.

    Attributes:
      bad: the first result or variable that is not finite, by name; None if all are finite.
      origins: where that came from, the earliest first.
      outputs: what the program gives, by name; with a first dimension for the replicas.
    """

    bad: str | None
    origins: tuple[Origin, ...]
    outputs: dict[str, np.ndarray]


def examine(
    examined: Examined,
    seen: Callable[[str, str, np.ndarray], None] | None = None,
    replica: int | None = None,
) -> Examination:
    """Interprets a program, and finds what was first not finite.

    Args:
      examined: the program.
      seen: is given each value that an operation makes: the name of the operation, the user's
        line, and the array with a first dimension for the replicas.
      replica: the only one that is looked at; None: all.

    Raises:
      NotImplementedError: the program has operations that cannot be interpreted one by one.
    """
    interpreter = _Interpreter(examined.replicas, seen, replica)
    inputs = [
        interpreter.given(name, parts)
        for name, parts in zip(examined.input_names, examined.inputs, strict=True)
    ]
    closed = examined.program
    try:
        found = interpreter.run(closed.jaxpr, closed.consts, inputs)
    except (TypeError, ValueError) as error:  # whatever JAX says of an operation by itself
        raise NotImplementedError(str(error).partition("\n")[0]) from error
    outputs = dict(zip(examined.output_names, found, strict=False))
    # Results first; of variables those with the fewest origins, whose cause is the clearest.
    for name, value in outputs.items():
        if value.origins and _is_bad(value.array):  # origins are those of the replica, if of one
            origins = sorted(value.origins, key=lambda each: (each.is_constant, each.number))
            return Examination(name, tuple(origins), interpreter.stacked(outputs))
    return Examination(None, (), interpreter.stacked(outputs))


@final
class _Interpreter:
    def __init__(
        self,
        replicas: int,
        seen: Callable[[str, str, np.ndarray], None] | None,
        replica: int | None,
    ):
        self._replicas = replicas
        self._seen = seen
        self._replica = replica
        self._count = 0

    def stacked(self, values: dict[str, _Value]) -> dict[str, np.ndarray]:
        return {
            name: np.asarray(each.array if each.is_mapped else np.asarray(each.array)[None])
            for name, each in values.items()
            if not jnp.issubdtype(each.array.dtype, jax.dtypes.prng_key)
        }

    def given(self, name: str, parts: Sequence[Any]) -> _Value:
        """Returns an input of the program."""
        if jnp.issubdtype(parts[0].dtype, jax.dtypes.prng_key):
            datas = [np.asarray(jax.random.key_data(part)) for part in parts]
            kind = jax.random.key_impl(parts[0])
            return _Value(jax.random.wrap_key_data(jnp.stack(datas), impl=kind), True)
        array = jnp.asarray(np.stack([np.asarray(part) for part in parts]))
        if not self._is_bad_here(array):
            return _Value(array, True)
        replica, index, value = self._first_bad(np.asarray(array))
        self._count += 1
        origin = Origin(
            self._count, "input", name, False, replica, index, array.shape[1:], value, np.nan
        )
        return _Value(array, True, (origin,))

    def run(
        self, program: Jaxpr, constants: Sequence[Any], inputs: Sequence[_Value]
    ) -> list[_Value]:
        values: dict[Any, _Value] = {}

        def read(atom: Any) -> _Value:
            if isinstance(atom, Literal):
                aval: Any = atom.aval
                return _Value(jnp.asarray(atom.val, aval.dtype), False)
            return values[atom]

        for variable, constant in zip(program.constvars, constants, strict=True):
            values[variable] = _Value(constant, False)
        values.update(zip(program.invars, inputs, strict=True))
        for operation in program.eqns:
            if any(map(is_ref, (*operation.invars, *operation.outvars))):
                raise NotImplementedError("it changes variables in a loop")
            operands = [read(atom) for atom in operation.invars]
            results = self._carried_out(operation, operands)
            values.update(zip(operation.outvars, results, strict=True))
        return [read(atom) for atom in program.outvars]

    def _carried_out(self, operation: JaxprEqn, operands: list[_Value]) -> list[_Value]:
        name = operation.primitive.name
        inner = list(subprograms(operation.params)) if name in _INLINED else []
        if inner and len(inner[0].invars) == len(operands):
            return self.run(inner[0], _constants_of(operation.params), operands)
        if name in _ABOUT_LAYOUT:  # each replica is on one device here
            return operands
        results = self._applied(lambda *arrays: carry_out(operation, arrays), operands)
        if self._seen is not None:
            for each in results:
                if jnp.issubdtype(each.array.dtype, jnp.floating):
                    self._seen(name, place_of(operation), np.asarray(each.array))
        news = self._judged(operation, operands, results)
        is_new = any(each.origins and each.origins[0].number == self._count for each in news)
        if name == "scan" and is_new and operation.params["length"] <= _MOST_TURNS:
            return self._turn_by_turn(operation, operands)
        return news

    def _is_bad_here(self, array: jax.Array) -> bool:
        """Returns whether an array of all replicas is bad on one that is looked at."""
        return _is_bad(array if self._replica is None else array[self._replica])

    def _first_bad(
        self, array: np.ndarray, nan: bool = False
    ) -> tuple[int, tuple[int, ...], float]:
        if self._replica is None:
            return _first_bad(array, nan)
        of_one = array[self._replica : self._replica + 1]
        _, index, value = _first_bad(of_one, nan and bool(np.isnan(of_one).any()))
        return self._replica, index, value

    def _turn_by_turn(self, operation: JaxprEqn, operands: list[_Value]) -> list[_Value]:
        """Looks into a loop."""
        parameters = operation.params
        consts, carries = scan_inputs(parameters)
        body = parameters["jaxpr"]
        fixed, carry = operands[:consts], operands[consts : consts + carries]
        rows = operands[consts + carries :]
        turns: list[list[_Value]] = []
        numbers = range(parameters["length"])
        for number in reversed(numbers) if parameters["reverse"] else numbers:
            taken = [
                _Value(
                    each.array[:, number] if each.is_mapped else each.array[number],
                    each.is_mapped,
                    each.origins,
                )
                for each in rows
            ]
            found = self.run(body.jaxpr, body.consts, [*fixed, *carry, *taken])
            carry = found[:carries]
            turns.append(found[carries:])
        if parameters["reverse"]:
            turns.reverse()
        stacked = [self._stacked_turns(each) for each in zip(*turns, strict=True)]
        return [*carry, *stacked]

    def _stacked_turns(self, values: Sequence[_Value]) -> _Value:
        mapped = [self._mapped(each) for each in values]
        origins = tuple({id(o): o for each in values for o in each.origins}.values())
        return _Value(jnp.stack(mapped, axis=1), True, origins)

    def _mapped(self, value: _Value) -> Any:
        if value.is_mapped:
            return value.array
        return jnp.broadcast_to(value.array, (self._replicas, *value.array.shape))

    def _applied(self, function: Callable[..., Any], operands: list[_Value]) -> list[_Value]:
        arrays = [each.array for each in operands]
        # One more operand, with a part for each replica: there must be one.
        axes = (0, *(0 if each.is_mapped else None for each in operands))
        mapped = jax.vmap(
            lambda _, *arrays: function(*arrays), in_axes=axes, axis_name=REPLICA_AXIS
        )
        return [_Value(each, True) for each in mapped(jnp.arange(self._replicas), *arrays)]

    def _judged(
        self, operation: JaxprEqn, operands: list[_Value], results: list[_Value]
    ) -> list[_Value]:
        """Finds out where results are bad from."""
        self._count += 1
        for result in results:
            if not _is_bad(result.array):
                continue
            data = np.asarray(result.array)
            bad = [each for each in operands if _is_bad(each.array)]
            nans = [each for each in bad if _has_nan(each.array)]
            makes_nan = bool(np.isnan(data).any()) and not nans
            causes = nans if nans and np.isnan(data).any() else bad
            known = tuple({id(o): o for each in causes for o in each.origins}.values())
            if known and not makes_nan:
                result.origins = known
                continue
            is_others = self._replica is not None and bad and not known
            if is_others or not self._is_bad_here(result.array):
                continue
            replica, index, value = self._first_bad(data, nan=makes_nan)
            result.origins = (
                Origin(
                    self._count,
                    operation.primitive.name,
                    place_of(operation),
                    "transpose" in str(operation.source_info.name_stack),
                    replica,
                    index,
                    data.shape[1:],
                    value,
                    max((_largest(each.array) for each in operands), default=0.0),
                    known,
                    is_constant=bool(bad) and not known,
                ),
            )
        return results


def _constants_of(parameters: dict[str, Any]) -> Sequence[Any]:
    for value in parameters.values():
        if hasattr(value, "consts"):
            return value.consts
    return ()


def _is_bad(array: jax.Array) -> bool:
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        return False
    return not bool(np.isfinite(np.asarray(array)).all())


def _has_nan(array: jax.Array) -> bool:
    return bool(np.isnan(np.asarray(array)).any())


def _largest(array: jax.Array) -> float:
    if not jnp.issubdtype(array.dtype, jnp.number) or not np.size(array):
        return 0.0
    found = np.abs(np.asarray(array).astype(np.float64))
    found = found[np.isfinite(found)]
    return float(found.max()) if found.size else 0.0


def _first_bad(array: np.ndarray, nan: bool = False) -> tuple[int, tuple[int, ...], float]:
    """Returns the replica, the index and the value of the first element that is not finite."""
    bad = np.isnan(array) if nan else ~np.isfinite(array)
    replica, *index = np.unravel_index(int(np.argmax(bad)), array.shape)
    return int(replica), tuple(map(int, index)), float(np.real(array[(replica, *index)]))
