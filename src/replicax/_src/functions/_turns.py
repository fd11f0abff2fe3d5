"""What is a replica's own in a trace that speaks for all replicas, and what they share.

Eager replicas have objects of their own, and take turns with what they share. A trace has one
object for all of them, so it keeps account.
"""

from __future__ import annotations

from types import CodeType
from typing import Any

import jax

from replicax._src import _jax_internals, _tree
from replicax._src._typing import PyTree, Tracer
from replicax._src.context import EACH
from replicax._src.functions._retry import OnlyPython
from replicax._src.values import component, is_distributed_value, is_leaf
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

    def note_change(self, variable: Variable, how: Change) -> None:
        if id(variable) in self._seen:
            raise OnlyPython(
                f"replicas read and then change {variable.name!r}, a variable made outside of the "
                "strategy's scope, and each sees what the ones before it have done"
            )
        (self._assigned if how is Change.ASSIGN else self._added)[id(variable)] = variable
        self._traces.setdefault(id(variable), _jax_internals.staging_trace())

    def is_assigned(self, variable: Variable) -> bool:
        return id(variable) in self._assigned

    def changed_elsewhere(self) -> list[Variable]:
        """Returns those that were changed outside of the loop or branch that is traced here."""
        here = _jax_internals.staging_trace()
        return [each for each in self.changed() if self._traces[id(each)] is not here]

    def changed(self) -> list[Variable]:
        return list({**self._added, **self._assigned}.values())


class Provenance:
    """Which values a replica function has from outside, the very same on all replicas.

    Merging is by identity (see `values/_regroup.py`).
    """

    def __init__(self, trace: object, fn: object):
        self._trace = trace
        self._start = _jax_internals.operations_so_far(trace)
        self._handed_out: dict[int, Any] = {}
        self._same: dict[int, Any] = {
            id(value): value for value in _constants_of(getattr(fn, "__code__", None))
        }
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
            return leaf in _KEPT_BY_PYTHON
        if not isinstance(leaf, Tracer):
            return isinstance(leaf, jax.Array)  # captured: operations on it would be traced
        return not _jax_internals.made_since(self._trace, self._start, leaf)


def _constants_of(code: CodeType | None) -> list[Any]:
    """Returns the numbers that are written in a function."""
    if code is None:
        return []
    found: list[Any] = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found += _constants_of(constant)
        elif isinstance(constant, int | float | complex):
            found.append(constant)
    return found
