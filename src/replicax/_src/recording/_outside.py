"""What something else than the recorded function does to its variables between two of its steps.

A learning rate that is assigned, a metric that begins anew, another function that trains a part of
the model: a replay has none of that, so the new values are recorded with the next step.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any, final

from replicax._src.recording._inputs import Kept
from replicax._src.variable import (
    ProgramState,
    SyncOnReadVariable,
    Variable,
    VariableGone,
    holder_of,
    own_storage,
)

_MOST_BYTES = 1 << 20  # of the values that are recorded with one step

Name = str | int
"""Of a variable: as the checkpoint has it, or its number among others that the step uses."""


@final
class Outside:
    """Sees who writes to variables, until it is asked. Costs nothing while nobody does."""

    def __init__(self) -> None:
        # By id: variables, and what programs have written; and the thread that has done it.
        self._written: dict[int, tuple[Any, int]] = {}
        self._names: dict[int, Name] = {}  # of the variables that can be told, by id
        self._used: set[int] = set()  # those that the function uses
        self._read: dict[int, Variable] = {}  # those that no checkpoint has, and no step changes
        self._set_once: dict[int, Variable] = {}  # those of them that were written to
        self.left_out: list[str] = []
        """Names of variables whose values were too large, if that is new."""
        self._is_told = False

    def written(self, what: Variable | ProgramState) -> None:
        """Called for each variable that Python writes to, and with what each program writes."""
        self._written[id(what)] = what, threading.get_ident()

    def forget(self) -> None:
        """Forgets what was written: the recorded function itself has done it.

        What other threads have written while a program ran is not its work.
        """
        written, self._written = self._written, {}
        me = threading.get_ident()
        if any(
            thread == me and isinstance(what, ProgramState) for what, thread in written.values()
        ):
            self._written |= {key: each for key, each in written.items() if each[1] != me}

    def begin(
        self,
        saved: Mapping[str, Variable],
        used: Sequence[Variable],
        unsaved: Sequence[Variable],
        read: Sequence[Variable],
    ) -> None:
        """Called where all that the function changes was saved.

        Args:
          saved: the variables of the checkpoint, by name.
          used: those that the function uses.
          unsaved: those of them that it changes, and that were saved beside.
          read: those of them that it only reads, and that are nowhere.
        """
        if self._names:
            self._note_read()
        me = threading.get_ident()
        self._written = {key: (each, me) for key, each in self._set_once.items()}
        self._read = {id(each): each for each in read}
        self._names = {id(each): number for number, each in enumerate([*unsaved, *read])}
        self._names |= {id(each): name for name, each in saved.items()}
        self._used = set(map(id, used))

    def values(self) -> list[tuple[Name, Kept | list[Any]]]:
        """Returns what was written since it was asked last, as far as there is room for it."""
        if not self._written:
            return []
        self._note_read()
        noted, self._written = self._written, {}
        written = [each for each in _variables_in(noted) if id(each) in self._names]
        written.sort(key=lambda each: id(each) not in self._used)  # those it uses come first
        found: list[tuple[Name, Kept | list[Any]]] = []
        room = _MOST_BYTES
        for variable in written:
            name = self._names[id(variable)]
            size = variable.dtype.itemsize * math.prod(variable.shape)
            if size > room or holder_of(variable) is not None or _is_in_parts(variable):
                found.append((name, ["left out", f"it has {size:,} bytes"]))
                if id(variable) in self._used and not self._is_told:
                    self.left_out.append(variable.name)
                continue
            room -= size
            found.append((name, _kept(variable)))
        self._is_told = self._is_told or bool(self.left_out)
        return found

    def _note_read(self) -> None:
        for variable in _variables_in(self._written):
            if id(variable) in self._read:
                self._set_once[id(variable)] = variable


def _variables_in(written: Mapping[int, tuple[Any, int]]) -> list[Variable]:
    """Returns the variables that were written to, each once."""
    found: dict[int, Variable] = {}
    for each, _ in list(written.values()):
        try:
            variables = each.variables() if isinstance(each, ProgramState) else [each]
        except VariableGone:
            continue
        found |= {id(variable): variable for variable in variables}
    return list(found.values())


def _is_in_parts(variable: Variable) -> bool:
    return own_storage(variable).has_parts_elsewhere


def _kept(variable: Variable) -> Kept:
    if isinstance(variable, SyncOnReadVariable):
        return Kept("per replica", [each.read_value() for each in variable.values])
    return Kept("mirrored", [variable.read_value()])
