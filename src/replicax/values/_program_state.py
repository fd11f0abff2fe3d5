"""The values that a compiled program wrote, until someone looks at them.

A training loop calls one program again and again, and each call takes what the last one gave. The
values of all its variables are therefore kept together, as the list that the program returned, and
a variable has a `StateSlot`: its place in that list. Only a variable that is read, assigned, or
written by another program in between costs anything at the next call.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from replicax._jax_internals import uncommitted
from replicax.devices import ReplicaMesh
from replicax.values._buffers import OneBuffer, ReplicaBuffers


class VariableGone(BaseException):
    """Internal: a variable that a program was traced with exists no more; trace anew."""


class ProgramState:
    """The variables that one program reads and writes, and their values after its last call.

    Held weakly: a model that the user drops takes its programs along.
    """

    def __init__(self, variables: Sequence[Any]):
        self._variables = [
            weakref.ref(variable, functools.partial(self._release, index))
            for index, variable in enumerate(variables)
        ]
        self._is_plain = [variable._stored.mesh is None for variable in variables]
        self.arrays: list[Any] = [None] * len(self._variables)
        self._outside = set(range(len(self._variables)))  # those whose value is not in `arrays`

    def variables(self) -> list[Any]:
        """The variables; they must exist."""
        found = [variable() for variable in self._variables]
        if any(variable is None for variable in found):
            raise VariableGone
        return found

    def take(self) -> list[Any]:
        """The values, which the program may write its results into."""
        if self._outside:
            shared = []
            for index in self._outside:
                variable = self._variables[index]()
                if variable is None:
                    raise VariableGone
                stored = variable._stored
                self.arrays[index] = stored.assembled
                if not stored.exclusive:
                    shared.append(index)
            if shared:  # someone else may hold these, and must be able to use them afterwards
                copies = _copied([self.arrays[index] for index in shared])
                for index, copy in zip(shared, copies, strict=True):
                    self.arrays[index] = copy
        return self.arrays

    def lost(self) -> list[str]:
        """The names of the variables whose values a program took, and then failed."""
        pairs = zip(self._variables, self.arrays, strict=True)
        found = [(variable(), array) for variable, array in pairs if array is not None]
        return [each.name for each, array in found if each is not None and array.is_deleted()]

    def put(self, values: list[Any]) -> None:
        """What the program gave; the variables have it from now on."""
        if any(self._is_plain) and values[0].committed:
            values = [
                uncommitted(value) if is_plain else value
                for value, is_plain in zip(values, self._is_plain, strict=True)
            ]
        self.arrays = values
        if self._outside:
            indices, self._outside = self._outside, set()
            for index in indices:
                variable = self._variables[index]()
                if variable is None:
                    self._outside.add(index)
                    continue
                variable._store(StateSlot(self, index, variable._stored.mesh))

    def _release(self, index: int, _: Any = None) -> Any:
        array, self.arrays[index] = self.arrays[index], None
        self._outside.add(index)
        return array


class StateSlot:
    """Where a variable's value is, in the place of buffers."""

    __slots__ = ("_index", "_state", "mesh")
    exclusive = True

    def __init__(self, state: ProgramState, index: int, mesh: ReplicaMesh | None):
        self._state = state
        self._index = index
        self.mesh = mesh

    @property
    def assembled(self) -> Any:
        return self._state.arrays[self._index]

    _assembled = assembled

    def settled(self) -> ReplicaBuffers | OneBuffer:
        """Buffers of the variable's own; the program has to ask for them next time."""
        array = self._state._release(self._index)
        if self.mesh is None:
            return OneBuffer(array, exclusive=True)
        return ReplicaBuffers(self.mesh, None, array, exclusive=True)

    def left(self) -> None:
        """The variable has another value now."""
        self._state._release(self._index)


@jax.jit
def _copied(arrays: list[jax.Array]) -> list[jax.Array]:
    return [jnp.copy(array) for array in arrays]
