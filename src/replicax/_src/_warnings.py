"""Warnings that point at the user's line, also when another thread has the reason for them."""

from __future__ import annotations

import sys
import warnings
from typing import Any, NamedTuple

_PACKAGE = __name__.partition(".")[0]
# `from package import name` asks from importlib; `model.fit` comes to us through Keras, and what is
# traced through JAX.
_NOT_THE_USERS = (_PACKAGE, "importlib", "keras", "jax")


class Line(NamedTuple):
    """A place in a program."""

    file: str
    number: int
    module: str
    registry: dict[Any, Any]  # which warnings this module has given already


def users_line() -> Line:
    """Returns the innermost line that is not in this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _NOT_THE_USERS:
            break
        frame = frame.f_back
    module = frame.f_globals.get("__name__", "<unknown>")
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    return Line(frame.f_code.co_filename, frame.f_lineno, module, registry)


def warn(text: str, line: Line | None = None, category: type[Warning] = UserWarning) -> None:
    """Gives a warning at this line, or at the one that the user is in."""
    line = line or users_line()
    warnings.warn_explicit(text, category, line.file, line.number, line.module, line.registry)
