"""Why a function was traced again, and what its program does: `fn.explain`."""

from __future__ import annotations

import warnings
from typing import Any


class Retraces:
    """What made a function be traced, call by call."""

    _WARN_EVERY = 12

    def __init__(self) -> None:
        self._count = 0
        self._last: Any = None
        self.reason = "It has not been traced yet."
        self.eager_reason: str | None = None

    def note(self, name: str, arguments: Any) -> None:
        self._count += 1
        self.reason = self._difference(arguments)
        self._last = (arguments.structure, list(arguments.looks))
        if self._count % self._WARN_EVERY == 0:
            warnings.warn(
                f"rx.function {name!r} was traced {self._count} times. {self.reason} Python "
                "numbers and objects among the arguments are constants: pass numbers that change "
                "as arrays, jnp.asarray(x); pad arrays to one shape, or drop the remainder.",
                stacklevel=5,
            )

    def note_eager(self, reason: str) -> None:
        self.eager_reason = reason

    def _difference(self, arguments: Any) -> str:
        if self._last is None:
            return "It was called for the first time."
        structure, looks = self._last
        if structure != arguments.structure or len(looks) != len(arguments.looks):
            return "The number or the nesting of the arguments changed."
        changes = [
            f"argument {index} changed from {_said(old)} to {_said(new)}"
            for index, (old, new) in enumerate(zip(looks, arguments.looks))
            if old != new
        ]
        if not changes:
            return "It was called in another context, or with other settings of JAX."
        return "; ".join(changes).capitalize() + "."


def _said(look: Any) -> str:
    return repr(look[1]) if isinstance(look, tuple) and len(look) == 2 else repr(look)
