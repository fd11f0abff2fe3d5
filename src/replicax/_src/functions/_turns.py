"""What is a replica's own in a trace that speaks for all replicas, and what they share.

Eager replicas have objects of their own, and take turns with what they share. A trace has one
object for all of them, so it keeps account.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import Any

import jax
import jax.numpy as jnp

from replicax._src import _jax_internals, _tree
from replicax._src._errors import WrongContextError
from replicax._src._typing import PyTree, Tracer
from replicax._src.context import EACH
from replicax._src.devices import REPLICA_AXIS, ReplicaMesh
from replicax._src.functions._retry import OnlyPython
from replicax._src.values import TracedBuffers, component, is_distributed_value, is_leaf
from replicax._src.variable import Change, Variable

_KEPT_BY_PYTHON = range(-5, 257)  # integers of which Python has one object each


class Turns:
    """What replicas did to variables without copies since they last met.

    Eager replicas take turns, and each sees what those before it have done. In one program they
    move together. That gives the same numbers if replicas only add, only assign, or look at their
    own results; for anything else the function is left to Python.
    """

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._added: dict[int, Variable] = {}
        self._assigned: dict[int, Variable] = {}
        self._traces: dict[int, Any] = {}  # where a variable was changed: in which loop or branch

    def note_read(self, variable: Variable) -> None:
        if id(variable) not in self._assigned:
            self._seen.add(id(variable))

    def after_change(
        self, variable: Variable, how: Change, value: jax.Array, old: jax.Array, mesh: ReplicaMesh
    ) -> jax.Array:
        """Notes that each replica changes a variable; returns what each then finds in it.

        Args:
          variable: the variable.
          how: assigned, or added to.
          value: each replica's.
          old: what each has found in the variable.
          mesh: of the replicas.
        """
        if id(variable) in self._seen:
            raise OnlyPython(
                f"replicas read and then change {variable.name!r}, a variable made outside of the "
                "strategy's scope, and each sees what the ones before it have done"
            )
        (self._assigned if how is Change.ASSIGN else self._added)[id(variable)] = variable
        self._traces.setdefault(id(variable), _jax_internals.staging_trace())
        if how is Change.ASSIGN:
            return jnp.broadcast_to(value, jnp.shape(old))
        delta = value if how is Change.ADD else -value
        if id(variable) not in self._assigned:  # a replica sees what those before it have added
            deltas = jnp.stack(TracedBuffers(mesh, delta).components)
            number = jax.lax.axis_index(REPLICA_AXIS) % deltas.shape[0]
            before = jnp.arange(deltas.shape[0]) <= number
            before = before.reshape((-1,) + (1,) * (deltas.ndim - 1))
            delta = jnp.sum(jnp.where(before, deltas, jnp.zeros_like(deltas)), axis=0)
        return old + delta.astype(old.dtype)

    def changed(self, program: object) -> Sequence[Variable]:
        """Returns the variables that were changed; they get their values in the same trace.

        Args:
          program: the trace of the program.
        """
        changed = {**self._added, **self._assigned}.values()
        here = _jax_internals.staging_trace()
        elsewhere = [each for each in changed if self._traces[id(each)] is not here]
        if here is not program and elsewhere:
            raise WrongContextError(
                f"Replicas changed {elsewhere[0].name!r}, a variable made outside of the "
                "strategy's scope, and then meet inside a loop or branch of JAX's (lax.cond, "
                "lax.scan, ...), for an assignment or a collective. Make the variable in "
                "strategy.scope(), with an aggregation, or change it after the loop or branch."
            )
        return list(changed)


class Provenance:
    """Which values a replica function has from outside, the very same on all replicas.

    Merging is by identity (see `values/_regroup.py`).
    """

    def __init__(self, trace: object, fn: object):
        self._trace = trace
        self._start = _jax_internals.operations_so_far(trace)
        self._handed_out: dict[int, Any] = {}
        self._same: dict[int, Any] = {}
        self._code: CodeType | None = getattr(fn, "__code__", None)
        self.turns = Turns()

    def note_handed_out(self, value: object) -> None:
        self._handed_out[id(value)] = value

    def handed_out(self, structure: PyTree) -> Any:
        """Returns what each replica gets of `structure`."""

        def pick(leaf: object) -> Any:
            if is_distributed_value(leaf):
                leaf = component(leaf, EACH)
                self.note_handed_out(leaf)
            elif isinstance(leaf, jax.Array | int | float | complex):
                self._same[id(leaf)] = leaf
            return leaf

        return _tree.map_structure(pick, structure, is_leaf)

    def is_same(self, leaf: object) -> bool:
        """Returns whether eager replicas would all have this very object."""
        if id(leaf) in self._handed_out:
            return False
        if id(leaf) in self._same or isinstance(leaf, bool):
            return True
        if isinstance(leaf, int | float | complex):  # each replica computes one of its own
            is_kept = type(leaf) is int and leaf in _KEPT_BY_PYTHON
            return is_kept or any(leaf is each for each in self._numbers_written())
        if not isinstance(leaf, Tracer):
            return isinstance(leaf, jax.Array)  # captured: operations on it would be traced
        return not _jax_internals.made_since(self._trace, self._start, leaf)

    def _numbers_written(self) -> Iterator[object]:
        """Yields the constants in the replica function, and in the functions that lead here."""
        # Not by `codes_in`: code that is compiled again is equal, and has other numbers.
        constants: list[object] = [self._code]
        frame = sys._getframe(1)
        while frame is not None:
            constants.append(frame.f_code)
            frame = frame.f_back
        while constants:
            each = constants.pop()
            if isinstance(each, CodeType):
                constants += each.co_consts
            elif isinstance(each, tuple):
                constants += each
            else:
                yield each
