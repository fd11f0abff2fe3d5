"""Operations of a traced program, and others in their places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import JaxprEqn, Literal

from replicax._src.devices import REPLICA_AXIS


def is_sum(operation: JaxprEqn) -> bool:
    """Returns whether an operation is a sum over the replicas, of one array."""
    parameters = operation.params
    return (
        operation.primitive.name == "psum"
        and parameters["axes"] == (REPLICA_AXIS,)
        and parameters.get("axis_index_groups") is None
        and len(operation.invars) == 1
        and not isinstance(operation.invars[0], Literal)
    )


def variables_in(atoms: Sequence[Any]) -> list[Any]:
    """Returns those that are variables of a program, and no numbers of its own."""
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def as_operations(
    fn: Callable[..., Any],
    given: Sequence[Any],
    results: Sequence[Any] = (),
    axes: Sequence[tuple[str, int]] = (),
) -> list[JaxprEqn]:
    """Returns the operations of a function of arrays, as a part of a program.

    Args:
      fn: the function.
      given: the variables of the program that it takes, or numbers of its own.
      results: the variables that are to have what it returns; without them, new ones.
      axes: names and sizes of the mesh axes that it uses.
    """
    # A function of its own each time: JAX would give the same variables again.
    avals = [each.aval for each in given]
    traced = jax.make_jaxpr(lambda *arrays: fn(*arrays), axis_env=list(axes))(*avals).jaxpr
    names: dict[Any, Any] = dict(zip(traced.invars, given, strict=True))
    names.update(zip(traced.outvars, results, strict=bool(results)))
    return [
        each.replace(
            invars=[a if isinstance(a, Literal) else names.get(a, a) for a in each.invars],
            outvars=[names.get(variable, variable) for variable in each.outvars],
        )
        for each in traced.eqns
    ]
