"""Checks in a traced program that all replicas take part in every collective.

A collective inside a branch or a loop that some replicas enter and others do not would wait for
them forever. What a condition depends on says whether that can happen.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from jax.extend.core import Jaxpr, JaxprEqn

from replicax._src import _jax_internals
from replicax._src._errors import ReplicaMismatchError
from replicax._src._typing import Atom

# How much a value may differ from replica to replica.
SAME, BY_DATA, BY_NUMBER = 0, 1, 2
KINDS = {
    "psum": "all-reduce",
    "psum_invariant": "all-reduce",
    "pmax": "all-reduce",
    "pmin": "all-reduce",
    "all_gather": "all-gather",
    "all_gather_invariant": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "psum_scatter": "reduce-scatter",
    "all_to_all": "all-to-all",
    "ppermute": "permute",
}
"""JAX's names of the operations that replicas exchange something in."""


def is_collective(operation: JaxprEqn) -> bool:
    return operation.primitive.name in KINDS and bool(
        operation.params.get("axes") or operation.params.get("axis_name")
    )


def has_collective(operation: JaxprEqn) -> bool:
    """Returns whether an operation is a collective, or there is one inside of it."""
    return is_collective(operation) or any(
        _contains_collective(each) for each in _jax_internals.subprograms(operation.params)
    )


def _contains_collective(jaxpr: Jaxpr) -> bool:
    return any(map(has_collective, jaxpr.eqns))


def require_agreement(jaxpr: Jaxpr, inputs: Sequence[int]) -> None:
    """Refuses collectives that only some replicas reach; warns of those that perhaps not all do.

    Args:
      jaxpr: the traced program.
      inputs: for each of its inputs, how much that may differ.
    """
    _Walk().through(jaxpr, list(inputs))


class _Walk:
    def __init__(self) -> None:
        self._warned = False

    def through(self, jaxpr: Jaxpr, inputs: list[int]) -> list[int]:
        """Returns how much the outputs differ, for inputs that differ so much.

        Of references among the inputs, `inputs` then says how much they differ afterwards.
        """
        known: dict[Any, int] = dict(zip(jaxpr.invars, inputs, strict=True))

        def level(atom: Atom) -> int:
            return SAME if hasattr(atom, "val") else known.get(atom, SAME)

        for equation in jaxpr.eqns:
            levels = [level(atom) for atom in equation.invars]
            outputs = self._outputs(equation, levels)
            known.update(zip(equation.outvars, outputs, strict=True))
            for atom, after in zip(equation.invars, levels, strict=True):
                if _jax_internals.is_ref(atom):  # it may have been written to
                    known[atom] = max(known.get(atom, SAME), after)
        inputs[:] = [known[atom] for atom in jaxpr.invars]
        return [level(atom) for atom in jaxpr.outvars]

    def _outputs(self, equation: JaxprEqn, levels: list[int]) -> list[int]:
        """Returns those of an operation's outputs; `levels` is as `inputs` above."""
        name, parameters = equation.primitive.name, equation.params
        most, count = max(levels, default=SAME), len(equation.outvars)
        if name == "axis_index":
            return [BY_NUMBER]
        if is_collective(equation) and KINDS[name] in ("all-reduce", "all-gather"):
            return [SAME] * count
        if name == "cond":
            self._check(equation, levels[0], parameters["branches"], "lax.cond")
            given = [levels[1:] for _ in parameters["branches"]]
            pairs = zip(parameters["branches"], given, strict=True)
            found = [self.through(branch.jaxpr, inputs) for branch, inputs in pairs]
            levels[1:] = [max(levels[0], *each) for each in zip(*given, strict=True)]
            return [max(levels[0], *each) for each in zip(*found, strict=True)]
        if name == "while":
            return self._while(equation, levels)
        if name == "scan":
            return self._scan(equation, levels)
        inner = list(_jax_internals.subprograms(parameters))
        if len(inner) == 1 and len(inner[0].invars) == len(levels):
            found = self.through(inner[0], levels)
            if len(found) == count:
                return found
        levels[:] = [most] * len(levels)
        return [most] * count

    def _while(self, equation: JaxprEqn, levels: list[int]) -> list[int]:
        parameters = equation.params
        in_cond, in_body = parameters["cond_nconsts"], parameters["body_nconsts"]
        carry = levels[in_cond + in_body :]
        constants = levels[in_cond : in_cond + in_body]
        while True:
            given = [*constants, *carry]
            after = self.through(parameters["body_jaxpr"].jaxpr, given)
            new = [max(pair) for pair in zip(carry, after, strict=True)]
            if [*given[:in_body], *new] == [*constants, *carry]:
                break
            constants, carry = given[:in_body], new
        written = dict(zip(map(id, equation.invars[in_cond : in_cond + in_body]), constants))
        asked = zip(equation.invars[:in_cond], levels[:in_cond], strict=True)
        asked = [max(each, written.get(id(atom), SAME)) for atom, each in asked]
        condition = self.through(parameters["cond_jaxpr"].jaxpr, [*asked, *carry])[0]
        self._check(equation, condition, [parameters["body_jaxpr"]], "lax.while_loop")
        levels[in_cond : in_cond + in_body] = [max(condition, each) for each in constants]
        return [max(condition, each) for each in carry]

    def _scan(self, equation: JaxprEqn, levels: list[int]) -> list[int]:
        parameters = equation.params
        fixed, carried = _jax_internals.scan_inputs(parameters)
        carry = levels[fixed : fixed + carried]
        while True:
            given = [*levels[:fixed], *carry, *levels[fixed + carried :]]
            before = list(given)
            after = self.through(parameters["jaxpr"].jaxpr, given)
            new = [max(pair) for pair in zip(carry, after[:carried], strict=True)]
            given[fixed : fixed + carried] = new
            levels[:] = given
            if given == before:
                return [*new, *after[carried:]]
            carry = new

    def _check(self, equation: JaxprEqn, condition: int, bodies: Sequence[Any], what: str) -> None:
        if condition == SAME or not any(_contains_collective(each.jaxpr) for each in bodies):
            return
        where = _jax_internals.place_of(equation)
        advice = (
            "All replicas must take part in a collective (all_reduce, all_gather, an aggregated "
            "assignment, an optimizer's update), or those that do wait forever. Take the "
            "collective out of it, or make the condition the same on all replicas, for example "
            "with an all_reduce of it."
        )
        if condition == BY_NUMBER:
            raise ReplicaMismatchError(
                f"{what} at {where} has a collective inside, and its condition depends on the "
                f"replica's number. {advice}"
            )
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{what} at {where} has a collective inside, and its condition is computed from "
                f"values that may differ from replica to replica. {advice}",
                RuntimeWarning,
                stacklevel=2,
            )
