"""A call of a compiled function that an observer carries out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from replicax._src.context import Frame, StrategyLike
from replicax._src.functions._arguments import Arguments
from replicax._src.functions._observing import Examined
from replicax._src.functions._program import Program
from replicax._src.functions._programs import AsPython
from replicax._src.functions._retry import Uneven
from replicax._src.variable import Variable, VariableGone

if TYPE_CHECKING:
    from replicax._src.functions._function import Function


@final
class Call:
    """What an observer is given as `proceed`."""

    def __init__(self, function: Function[..., Any], strategy: StrategyLike | None, frame: Frame):
        self._function = function
        self._strategy = strategy
        self._frame = frame

    @property
    def by_run(self) -> bool:
        """Whether it is `strategy.run` of the function."""
        return self._strategy is not None

    def __call__(
        self, body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return self._function._call(body, self._strategy, self._frame, args, kwargs)

    def examined(
        self, body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Examined | str:
        """Returns the program of the call and its inputs; or why it is none."""
        try:
            arguments = Arguments(args, kwargs)
        except Uneven as reason:
            return str(reason)
        program = self._program(body, arguments)
        return program.examined(arguments) if isinstance(program, Program) else str(program)

    def variables(
        self, body: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Sequence[Variable], Sequence[Variable]] | None:
        """Returns what the program of the call changes, and reads alone; None if there is none."""
        try:
            program = self._program(body, Arguments(args, kwargs))
            return program.variables() if isinstance(program, Program) else None
        except Uneven:
            return None
        except VariableGone:  # of an observer before this one
            self._function._programs.clear()
            return self.variables(body, args, kwargs)

    def _program(self, body: Callable[..., Any], arguments: Arguments) -> Program | AsPython:
        return self._function._programs.find(body, self._strategy, self._frame, arguments)
