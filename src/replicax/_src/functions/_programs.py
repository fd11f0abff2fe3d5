"""The programs of a function: which one a call is to run, and how it is made.

The first call with new shapes traces the function (`_trace.py`) and compiles it (`_program.py`);
later ones find the program by what they are given.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeVar, final

from replicax._src import _jax_internals
from replicax._src._errors import add_note
from replicax._src._typing import Device
from replicax._src._warnings import warn
from replicax._src.context import Frame, StrategyLike, let_libraries_join, serial_of
from replicax._src.functions._arguments import Arguments, is_stream
from replicax._src.functions._explanation import Retraces
from replicax._src.functions._first_guess import eager_replica, first_guess
from replicax._src.functions._keys import identities_in
from replicax._src.functions._making import Making
from replicax._src.functions._observing import Substitute
from replicax._src.functions._place import Place
from replicax._src.functions._planned_program import program_class
from replicax._src.functions._program import Program
from replicax._src.functions._remedies import remedy_for
from replicax._src.functions._retry import (
    NotOneProgram,
    NumberNeeded,
    OnlyPython,
    OtherDevicesNeeded,
    RefNeeded,
    Uneven,
)
from replicax._src.variable import Variable

_MANY_REPLICAS = 8  # which a function may be traced for one by one, before there is a warning


class AsPython(NamedTuple):
    """In the place of a program: the call runs as Python."""

    reason: str
    compiles_runs: bool = False
    """Whether each `strategy.run` in it is compiled."""

    def __str__(self) -> str:
        how = "as Python, with each strategy.run compiled" if self.compiles_runs else "eagerly"
        return f"{how}, because {self.reason}"


_Kept = TypeVar("_Kept", Program, AsPython)
_traces = 0


@final
class Programs:
    """The programs of a function, or of a method for one object.

    Attributes:
      has_created: whether the function has made variables.
      retraces: why it was traced more than once.
    """

    def __init__(self, name: str, python_function: Callable[..., Any]):
        """
        Args:
          name: of the function, for messages.
          python_function: the function.
        """
        self._name = name
        self._python_function = python_function
        self._programs: dict[Hashable, Program | AsPython] = {}
        self._watched: dict[Hashable, list[Any]] = {}  # weak references to objects in their keys
        self._devices: tuple[Device, ...] | None = None  # found out by an earlier trace
        self._lock = threading.RLock()
        self.has_created = False
        self.retraces = Retraces()

    def clear(self) -> None:
        """Forgets all programs: each is traced again when it is asked for."""
        self._programs.clear()
        self._watched.clear()

    def find(
        self,
        body: Callable[..., Any],
        strategy: StrategyLike | None,
        frame: Frame,
        arguments: Arguments,
    ) -> Program | AsPython:
        """Returns the program for these arguments, traced if there is none yet."""
        key = (
            arguments.key,
            serial_of(frame.strategy),
            frame.replica_context is None,
            None if strategy is None else serial_of(strategy),
            eager_replica(frame),
            body.key if isinstance(body, Substitute) else None,
            _jax_internals.trace_settings(),
        )
        program = self._programs.get(key)
        if program is not None:
            return program
        if any(is_stream(leaf) for leaf in arguments.leaves):
            return AsPython("it iterates over its argument", compiles_runs=True)
        with self._lock:
            program = self._programs.get(key)
            return program or self._traced(key, body, strategy, frame, arguments)

    def _traced(
        self,
        key: tuple[Hashable, ...],
        body: Callable[..., Any],
        strategy: StrategyLike | None,
        frame: Frame,
        arguments: Arguments,
    ) -> Program | AsPython:
        global _traces
        _traces += 1
        let_libraries_join()
        place = first_guess(strategy, frame, arguments, self._devices, self._python_function)
        given = arguments
        refs: list[Variable] = []
        making = Making(not self.has_created)
        while True:
            try:
                if arguments.have_empty and place.mesh is not None:
                    # JAX cannot take arrays without items into a program for several devices.
                    raise Uneven("an argument has no items")
                program = self._trace_at(place, body, arguments, making, refs)
            except OtherDevicesNeeded as needed:
                place, arguments = Place(needed.devices), given
                continue
            except NumberNeeded:
                assert place.mesh is not None
                self._note_replicas_one_by_one(place.mesh.size)
                arguments = given.for_each_replica(place.mesh.size)
                continue
            except RefNeeded as needed:
                refs.append(needed.variable)
                continue
            except (NotOneProgram, OnlyPython) as reason:
                if making.is_unchecked:
                    continue  # to see whether Python will do what this trace did
                is_by_runs = isinstance(reason, NotOneProgram)
                return self._keep(key, AsPython(str(reason), compiles_runs=is_by_runs))
            break
        # Only what a trace has found out: the user may choose another default device.
        self._devices = None if place.is_open else place.devices
        if place.replica in (None, 0):  # other eager replicas do what the first one does
            self.retraces.note(self._name, arguments, key[1:-1], key[-1])
        self.has_created = self.has_created or program.made_variables
        if program.creates:
            # The next call finds the variables made, and takes another path through the function.
            self.has_created = True
            return program
        return self._keep(key, program)

    def _keep(self, key: Hashable, program: _Kept) -> _Kept:
        """Returns `program`, which is kept as long as the objects live that its key is about."""
        self._programs[key] = program
        forget = functools.partial(_forget, weakref.ref(self), key)
        self._watched[key] = [each.watched(forget) for each in identities_in(key)]
        return program

    def _note_replicas_one_by_one(self, count: int) -> None:
        if count > _MANY_REPLICAS:
            warn(
                f"rx.function {self._name!r} is traced for each of its {count} replicas, since "
                "Python needs the number of each: `if context.replica_id_in_sync_group == 0:`, for "
                "example. That takes long. One trace serves all if jax.numpy works with the "
                "number: jnp.where(number == 0, a, b), or jax.lax.cond."
            )

    def _trace_at(
        self,
        place: Place,
        body: Callable[..., Any],
        arguments: Arguments,
        making: Making,
        refs: Sequence[Variable],
    ) -> Program:
        try:
            return program_class(place)(body, self._python_function, arguments, place, making, refs)
        except Exception as error:
            add_note(error, f"(while rx.function traced {self._name!r}: {remedy_for(error)})")
            raise


def traces_so_far() -> int:
    """Returns how often functions were traced in this process: such a call takes long."""
    return _traces


def _forget(reference: weakref.ref[Programs], key: Hashable, _: object) -> None:
    found = reference()
    if found is not None:
        found._programs.pop(key, None)
        found._watched.pop(key, None)
