"""`replicax launch --record DIR`: a program is recorded that does not ask for it.

What makes a step is found out: the first `rx.function` whose program changes variables that a
`CheckpointManager` of the program saves. So nothing is recorded of a program without a manager.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any, final

from replicax._src._warnings import warn
from replicax._src.checkpoints import CheckpointManager, manager_watchers, variables_in
from replicax._src.data import delivery_watchers
from replicax._src.functions import Function, Proceed, function_watchers, observe, observer_of
from replicax._src.recording._inputs import Elements
from replicax._src.recording._recorder import Recorder
from replicax._src.recording._session import replaying_now
from replicax._src.recording._traps import Traps
from replicax._src.variable import Variable

RECORD_VARIABLE = "REPLICAX_RECORD"
TRAPS_VARIABLE = "REPLICAX_RECORD_TRAPS"


def traps_of(text: str) -> Traps:
    """Returns the traps that a text asks for, such as `finite bound=1e6 slower_than=10`.

    Raises:
      ValueError: it cannot be read.
    """
    found: dict[str, Any] = {}
    for word in text.replace(",", " ").split():
        name, _, value = word.partition("=")
        try:
            match name:
                case "finite" | "bits" if not value:
                    found[name] = True
                case "bound" | "slower_than":
                    found[name] = float(value)
                case "copies_every":
                    found[name] = int(value)
                case _:
                    raise ValueError
        except ValueError:
            raise ValueError(
                f"{word!r} is no trap. They are finite, bits, bound=1e6, copies_every=100 and "
                "slower_than=10, separated by commas."
            ) from None
    return Traps(**found)


def record_by_argument(directory: str) -> None:
    """Lets the program be recorded that begins now.

    Args:
      directory: where to write.
    """
    found = _ByArgument(directory, traps_of(os.environ.get(TRAPS_VARIABLE, "")))
    manager_watchers.append(found.new_manager)
    function_watchers.append(found.new_function)
    atexit.register(found.say_what_was_missing)


@final
class _ByArgument:
    """Waits for the function that makes a step."""

    def __init__(self, directory: str, traps: Traps):
        self._directory = directory
        self._traps = traps
        self._managers: list[weakref.ref[CheckpointManager]] = []
        self._recorder: Recorder | None = None
        self._elements = Elements(rows=None)  # the first of which is there before a recorder
        delivery_watchers.append(self._elements.delivered)
        self._name = ""
        self._is_told = False

    def new_manager(self, manager: CheckpointManager) -> None:
        """Called with each manager that the program makes."""
        self._managers.append(weakref.ref(manager))

    def new_function(self, function: Function[..., Any]) -> None:
        """Called with each `rx.function` that the program makes."""
        module = getattr(function.python_function, "__module__", None) or ""
        if module.partition(".")[0] in ("replicax", "keras"):  # see rx.debug.recorder_callback
            return
        observe(function, _Candidate(self, function))

    def begin(self, function: Function[..., Any], changed: Sequence[Variable]) -> None:
        """Records a function from this call on, if what it changes is saved."""
        name = getattr(function.python_function, "__name__", "function")
        for reference in reversed(self._managers):
            manager = reference()
            if manager is None:
                continue
            saved = set(map(id, variables_in(manager.checkpoint)))
            if not any(id(each) in saved for each in changed):
                continue
            if self._recorder is not None:
                self._tell(
                    f"--record records {self._name!r}, the first function that changes variables "
                    f"of the checkpoint, and {name!r} changes some as well: a replay has what that "
                    "made of small variables, and does not run it. Make one function of both, or "
                    "an rx.debug.Recorder yourself."
                )
                return
            self._name = name
            self._recorder = Recorder(manager, function, self._directory, traps=self._traps)
            self._recorder._recorded_by_argument(self._elements)
            return

    def _tell(self, text: str) -> None:
        if not self._is_told and replaying_now() is None:
            self._is_told = True
            warn(text)

    def say_what_was_missing(self) -> None:
        """Called at the end of the program."""
        if self._recorder is None:
            what = "has called no rx.function that changes variables of its checkpoint"
            if not self._managers:
                what = "has made no rx.train.CheckpointManager"
            more = ""
            if "keras" in sys.modules:
                more = " The steps of Keras's fit are recorded by rx.debug.recorder_callback."
            self._tell(f"--record has recorded nothing: the program {what}.{more}")


@final
class _Candidate:
    """Sees the first call of a function, before it is made."""

    def __init__(self, record: _ByArgument, function: Function[..., Any]):
        self._record = record
        self._function = weakref.ref(function)

    def called(
        self,
        proceed: Proceed,
        body: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Looks at what the program of the call changes; it may be one that is recorded."""
        function = self._function()
        assert function is not None
        found = proceed.variables(body, args, kwargs)
        if found is None:  # no program: it cannot be said before
            return proceed(body, args, kwargs)
        if observer_of(function) is self:
            observe(function, None)
            try:
                self._record.begin(function, found[0])
            except (ValueError, RuntimeError, OSError) as error:
                warn(f"--record cannot record this program: {error}")
        observer = observer_of(function)
        if observer is None:
            return proceed(body, args, kwargs)
        return observer.called(proceed, body, args, kwargs)
