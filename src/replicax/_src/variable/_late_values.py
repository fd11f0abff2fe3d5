"""Values that wait for variables: what a checkpoint has for those that the program makes later.

As in TensorFlow, a model that is built after `restore` starts from what was saved. A new variable
has no place in the model yet, so that its value is looked for when it is first used, and a few
times more. Nobody looks, and nothing is marked, while no checkpoint waits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any

from replicax._src import _jax_internals
from replicax._src.context import entered_world, thread_state

late_value_sources: list[Callable[[Any], None]] = []
"""Each gives values to variables that have a place by now; it is told which one is being used, to
refuse that if its value does not fit. Empty, in the ordinary case."""

_LOOKS = 8  # a variable may be used before it is put where a checkpoint looks for it


class _Asking:
    is_under_way = False  # a source that gives values to variables uses them, too


def expect_late_value(variable: Any) -> None:
    """Called when a variable was made while a checkpoint has values for later ones."""
    if hasattr(variable, "_looks_left"):
        variable._looks_left = _LOOKS


def stop_looking(variable: Any) -> None:
    """Notes that a variable has got its value, so that it is not looked for again."""
    variable._looks_left = 0


def take_over(variable: Any) -> None:
    """Before a variable is used: lets the sources give values. Called under `UPDATING`."""
    variable = getattr(variable, "_distributed_container", variable)
    if _Asking.is_under_way:
        return
    if late_value_sources:
        _Asking.is_under_way = True
        try:
            with outside_of_everything():
                for source in tuple(late_value_sources):
                    source(variable)
        finally:
            _Asking.is_under_way = False
    variable._looks_left = max(0, variable._looks_left - 1) if late_value_sources else 0


def are_sources_asked() -> bool:
    """Returns whether sources are being asked just now."""
    return _Asking.is_under_way


@contextlib.contextmanager
def outside_of_everything() -> Generator[None]:
    """The default context: no replica, no program that is traced, no loss."""
    frames, thread_state.frames = thread_state.frames, []
    try:
        with entered_world(None), _jax_internals.outside_of_traces():
            yield
    finally:
        thread_state.frames = frames
