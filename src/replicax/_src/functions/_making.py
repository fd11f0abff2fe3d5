"""The call that makes a function's variables, where it is traced more than once."""

from __future__ import annotations

from replicax._src.functions._trace import ProgramTrace
from replicax._src.variable import Variable


class Making:
    """What a trace that was given up has done to the variables that it made.

    The next trace, or Python, finds these variables, takes the path of a later call, and does not
    do again what belongs to the first one: `if v is None: v = rx.Variable(2.0); v.assign(5.0)`.

    Attributes:
      is_allowed: whether the function may still make variables.
      is_unchecked: whether a trace with new variables was given up, and none has come after it.
    """

    def __init__(self, is_allowed: bool) -> None:
        self.is_allowed = is_allowed
        self.is_unchecked = False
        self._made: list[Variable] = []
        self._changed: list[Variable] = []

    def given_up(self, trace: ProgramTrace) -> None:
        """Called when this trace will not be a program."""
        if trace.made and not self._made:
            self._made = trace.made
            self._changed = self._of_made(trace)
            self.is_unchecked = True
        else:
            self.require_again(trace)

    def require_again(self, trace: ProgramTrace) -> None:
        """Refuses a function that did more to its variables in the trace that was given up."""
        self.is_unchecked = False
        if trace.made:  # it makes variables of its own each time
            return
        again = self._of_made(trace)
        for index, variable in enumerate(self._changed):
            if index >= len(again) or again[index] is not variable:
                raise ValueError(
                    f"rx.function: the call that makes the variable {variable.name!r} assigns it, "
                    "and a later one does not. The function had to be looked at twice, and the "
                    "assignment would be lost. Make the variables before, in strategy.scope(), or "
                    "give them their first value where they are made."
                )

    def _of_made(self, trace: ProgramTrace) -> list[Variable]:
        made = {id(each) for each in self._made}
        return [each for each in trace.changed if id(each) in made]
