"""The values that a compiled program wrote, until something reads them.

A training loop calls one program again and again, and each call takes what the last one gave. The
values of all its variables are therefore kept together, as the list that the program returned, and
a variable has a `StateSlot`: its place in that list. Only a variable that is read, assigned, or
written by another program in between costs anything at the next call.
"""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
# Of this room: tests/test_architecture.py draws the line between rooms.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, final

import jax
import jax.numpy as jnp

from replicax._src._errors import add_note
from replicax._src._jax_internals import ConcreteArray, local_shards, uncommitted
from replicax._src._typing import override
from replicax._src.values import Storage, UnsettledStorage

if TYPE_CHECKING:
    from replicax._src.variable._variable import Variable

_INTERRUPTED = (
    "A variable is used while a compiled function updates it, on the same thread: in a signal "
    "handler, which came in the middle of the call. Set a flag in the handler, and do the work "
    "between two calls."
)


write_watchers: list[Callable[[Any], None]] = []
"""They are told of each variable that Python gives a value, and of each `ProgramState` that a
program does: who records a program looks for what others do to its variables."""


class VariableGone(BaseException):
    """Internal: a variable that a program was traced with is gone; the function is traced again.

    A BaseException, so that a user's `except Exception` does not catch it.
    """


class ProgramState:
    """The variables that one program reads and writes, and their values after its last call.

    Held weakly: a model that the user drops takes its programs along. Used under `UPDATING`.
    """

    def __init__(self, variables: Sequence[Any]):
        me: weakref.ReferenceType[ProgramState] = weakref.ref(self)
        self._variables = [
            weakref.ref(variable, functools.partial(_forget, me, index))
            for index, variable in enumerate(variables)
        ]
        self._looks = [
            jax.ShapeDtypeStruct(variable.shape, variable.dtype) for variable in variables
        ]
        self._is_single = [variable._stored.mesh is None for variable in variables]
        self._has_single = any(self._is_single)
        self._owner: object = None  # the call that has taken the values
        self.arrays: list[Any] = [None] * len(self._variables)
        self._outside = set(range(len(self._variables)))  # those whose value is not in `arrays`

    def variables(self) -> list[Any]:
        """Returns the variables; they must exist."""
        found = [variable() for variable in self._variables]
        if any(variable is None for variable in found):
            raise VariableGone
        return found

    def take(self, owner: object) -> list[Any]:
        """Returns the values. The program may write into them until `put` or `give_back`."""
        if self._owner is not None:
            raise RuntimeError(_INTERRUPTED)
        self._owner = owner  # first: from here on no signal handler takes a value away
        shared = [index for index in tuple(self._outside) if not self._fetch(index)]
        if shared:  # other code may hold these, and must be able to use them afterwards
            self._require_undeleted(shared)
            self._copy(shared)
        return self.arrays

    def _fetch(self, index: int) -> bool:
        """Takes the value that a variable has elsewhere; returns whether it is ours alone."""
        variable = self._variables[index]()
        if variable is None:
            raise VariableGone
        stored = variable._stored
        self.arrays[index] = stored.assembled
        return stored.exclusive

    def _copy(self, indices: Sequence[int]) -> None:
        """Puts copies in place of values; of several portions, the variables have them at once."""
        for portion, is_one_of_several in _copied_in_portions(indices, self.arrays):
            for index in portion if is_one_of_several else ():
                self._settle(index)

    def _settle(self, index: int) -> None:
        """Gives a variable the value that is here as its own."""
        variable: Any = self._variables[index]()
        mesh, kind = variable._stored.mesh, variable._stored.kind
        variable._store(kind.holding(mesh, self.arrays[index], exclusive=True))

    def give_back(self, owner: object) -> None:
        """Gives the values back: the program did not run, if `owner` has taken them at all."""
        if self._owner is owner:
            self._owner = None

    def _require_undeleted(self, indices: Sequence[int]) -> None:
        for index in indices:
            array = self.arrays[index]
            if array.is_deleted() or any(shard.is_deleted() for shard in local_shards(array)):
                variable = self._variables[index]()
                raise RuntimeError(
                    f"The value of variable {getattr(variable, 'name', '?')!r} was deleted: an "
                    "array that was read from it, or assigned to it, was donated to jax.jit or "
                    "deleted with .delete(). Assign the variable again; copy an array before you "
                    "donate it: jnp.copy(x)."
                )

    def put(self, values: list[Any]) -> None:
        """Takes what the program gave; the variables have it from now on.

        May be called again with the same values, if it was interrupted.
        """
        if self._has_single and values[0].committed:
            values = [
                uncommitted(value) if is_single else value
                for value, is_single in zip(values, self._is_single, strict=True)
            ]
        self.arrays = values
        for watcher in write_watchers:
            watcher(self)
        if self._outside:
            for index in tuple(self._outside):
                variable = self._variables[index]()
                if variable is None:
                    self.arrays[index] = None
                elif not self._holds(variable):
                    variable._store(StateSlot(self, index, variable._stored))
            self._outside = {index for index in self._outside if self.arrays[index] is None}
        self._owner = None

    def _holds(self, variable: Variable) -> bool:
        stored = variable._stored
        return type(stored) is StateSlot and stored._state is self

    def note_lost(self, error: Exception) -> None:
        """Notes in the error of the program which variables have no value any more."""
        note_lost(error, [variable() for variable in self._variables], self.arrays)

    def forget(self, index: int) -> None:
        """Forgets a variable that has another value now, or is gone."""
        self.arrays[index] = None
        self._outside.add(index)

    def value(self, index: int) -> Any:
        if self._owner is not None:
            raise RuntimeError(_INTERRUPTED)
        return self.arrays[index]

    def look(self, index: int) -> jax.ShapeDtypeStruct:
        """Returns the shape and dtype of a variable."""
        return self._looks[index]


def _forget(state: weakref.ReferenceType[ProgramState], index: int, _: object) -> None:
    found = state()
    if found is not None:
        found.forget(index)


@final
class StateSlot(UnsettledStorage):
    """The storage of a variable whose value is among the results of a program."""

    __slots__ = ("_index", "_kind", "_state", "mesh")
    exclusive = True

    def __init__(self, state: ProgramState, index: int, before: Storage):
        """
        Args:
          state: the values that the program has.
          index: of the variable's value among them.
          before: where the variable had its value.
        """
        self._state = state
        self._index = index
        self._kind = before.kind
        self.mesh = before.mesh

    @property
    @override
    def kind(self) -> type[Storage]:
        return self._kind

    @property
    @override
    def assembled(self) -> Any:
        return self._state.value(self._index)

    @property
    @override
    def given(self) -> Any:
        return self._state.arrays[self._index]

    @property
    @override
    def look(self) -> jax.ShapeDtypeStruct:
        return self._state.look(self._index)

    @override
    def settled(self) -> Storage:
        return self._kind.holding(self.mesh, self.assembled, exclusive=True)

    @override
    def leave(self) -> None:
        # The program has to ask the variable for its value next time.
        self._state.forget(self._index)


def own_wholes(variables: Sequence[Any]) -> list[Any]:
    """Returns the values of variables, all copies of each, for a program to write into.

    Under `UPDATING`, and with the results given to the variables before it is left.
    """
    wholes = [variable._whole for variable in variables]
    shared = [i for i, variable in enumerate(variables) if not variable._stored.exclusive]
    for portion, _ in _copied_in_portions(shared, wholes):
        for index in portion:
            stored = variables[index]._stored
            kept = stored.kind.holding(stored.mesh, wholes[index], exclusive=True)
            variables[index]._store(kept)
    return wholes


def note_lost(error: Exception, variables: Sequence[Any], arrays: Sequence[Any]) -> None:
    """Notes in the error of a program that was given `arrays` which variables it took them from."""
    pairs = zip(variables, arrays, strict=True)
    lost = [
        each.name
        for each, array in pairs
        if each is not None and array is not None and array.is_deleted()
    ]
    if lost:
        add_note(
            error,
            f"(the program was updating {', '.join(lost[:6])} in place when it failed; "
            "assign these variables again, from a checkpoint for example)",
        )


_PORTION = 1 << 28  # bytes on a device that are copied together


def _copied_in_portions(
    indices: Sequence[int], arrays: list[Any]
) -> Iterator[tuple[list[int], bool]]:
    """Puts copies in place of arrays; yields each portion's indices, and if there are several.

    If the variables then have the copies at once, values which no other code holds are freed before
    the next portion. Else the first step of training would have all of its state twice.
    """
    portions = _portions(indices, arrays)
    for portion in portions:
        copies = _copied([arrays[index] for index in portion])
        for index, copy in zip(portion, copies, strict=True):
            arrays[index] = copy
        yield portion, len(portions) > 1
        if len(portions) > 1:
            jax.block_until_ready(copies)  # memory is taken at once, and freed after the copy


def _portions(indices: Sequence[int], arrays: Sequence[Any]) -> list[list[int]]:
    """Divides places in `arrays` into groups of at most `_PORTION` bytes, or of one array."""
    portions: list[list[int]] = []
    room = 0
    for index in indices:
        array = arrays[index]
        shape = array.sharding.shard_shape(array.shape)
        size = math.prod(shape) * getattr(array.dtype, "itemsize", 8)
        if not portions or size > room:
            portions.append([])
            room = _PORTION
        portions[-1].append(index)
        room -= size
    return portions


def _copied(arrays: list[Any]) -> list[Any]:
    if not all(map(_is_copied_by_transfers, arrays)):
        return _copied_by_program(arrays)
    # A program would be compiled for the first call alone. This is no transfer to another device.
    with jax.transfer_guard_device_to_device("allow"):
        copies = jax.device_put(arrays, [each.sharding for each in arrays], may_alias=False)
    return [
        copy if array.committed else uncommitted(copy)
        for array, copy in zip(arrays, copies, strict=True)
    ]


def _is_copied_by_transfers(array: Any) -> bool:
    """Returns whether `jax.device_put` to where it is makes a copy of an array.

    Not known of other devices than CPUs; and arrays of several workers it leaves as they are.
    """
    return (
        isinstance(array, ConcreteArray)
        and array.is_fully_addressable
        and next(iter(array.sharding.device_set)).platform == "cpu"
    )


@jax.jit
def _copied_by_program(arrays: list[jax.Array]) -> list[jax.Array]:
    return [jnp.copy(array) for array in arrays]
