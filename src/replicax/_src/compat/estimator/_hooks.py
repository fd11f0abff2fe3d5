"""What may look on while an estimator runs: hooks at each step, listeners at each checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, final

Kind = TypeVar("Kind")


class NanLossDuringTrainingError(RuntimeError):
    """The loss is not a number. It is looked at before each save, so that none has such a model."""


@dataclasses.dataclass
class SessionRunContext:
    """What a hook is given at each step."""

    session: None = None
    stop_requested: bool = False

    def request_stop(self) -> None:
        """Ends the loop after this step."""
        self.stop_requested = True


@dataclasses.dataclass(frozen=True)
class SessionRunValues:
    """What a step gave.

    `results` has "loss" and "global_step" while training, "predictions" while predicting.
    """

    results: dict[str, Any]


class SessionRunHook:
    """Looks on at each step. There are no sessions: those arguments are None."""

    def begin(self) -> None:
        """Called once, before the first step."""

    def after_create_session(self, session: None, coord: None) -> None:
        """Called once, after `begin`."""

    def before_run(self, run_context: SessionRunContext) -> None:
        """Called before each step."""

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Called after each step; `run_context.request_stop()` makes it the last."""

    def end(self, session: None) -> None:
        """Called once, after the last step, unless there was an error."""


class CheckpointSaverListener:
    """Looks on at each checkpoint."""

    def begin(self) -> None:
        """Called once, before the first step."""

    def before_save(self, session: None, global_step_value: int) -> None:
        """Called before each save."""

    def after_save(self, session: None, global_step_value: int) -> bool | None:
        """Called when the checkpoint is on the disk. Returns True to end the training."""

    def end(self, session: None, global_step_value: int) -> None:
        """Called once, after the last save."""


def checked(given: Iterable[Any] | None, kind: type[Kind], argument: str) -> list[Kind]:
    """Returns a list of hooks or listeners."""
    found = list(given or [])
    for each in found:
        if not isinstance(each, kind):
            raise TypeError(
                f"`{argument}` must be instances of rx.compat.v1.estimator.{kind.__name__}; got "
                f"{each!r}."
            )
    return found


@final
class Watched:
    """A loop with hooks: `begin`, `run` for each step, `end`."""

    def __init__(self, hooks: Iterable[Any] | None):
        self._hooks = checked(hooks, SessionRunHook, "hooks")
        self._context = SessionRunContext()

    @property
    def stop_requested(self) -> bool:
        """Whether a hook wants the loop to end."""
        return self._context.stop_requested

    def begin(self) -> None:
        """Before the first step."""
        for hook in self._hooks:
            hook.begin()
        for hook in self._hooks:
            hook.after_create_session(None, None)

    def run(
        self, step: Callable[..., Any], batch: tuple[Any, ...], name: str, **others: object
    ) -> Any:
        """Makes a step; hooks get what it returns under `name`, and the others."""
        for hook in self._hooks:
            hook.before_run(self._context)
        result = step(*batch)
        values = SessionRunValues({name: result, **others})
        for hook in self._hooks:
            hook.after_run(self._context, values)
        return result

    def end(self) -> None:
        """After the last step."""
        for hook in self._hooks:
            hook.end(None)
