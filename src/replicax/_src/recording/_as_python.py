"""A step as plain Python, replica by replica, watched: who made the first value that is not finite.

Each operation is carried out by itself, in the order in which the user's function makes them. So at
the first bad value the frames of that function are there, to look at or to debug.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from types import FrameType
from typing import Any, final

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
from jax.extend.core import Primitive

from replicax._src._jax_internals import ConcreteArray, watching_operations
from replicax._src.context import get_replica_context
from replicax._src.recording._origins import Origin

_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_BELOW = tuple(
    os.path.dirname(os.path.abspath(str(each.__file__))) + os.sep for each in (jax, jaxlib, np)
)
_STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_SHOWN = 12  # local names


@final
class Stopped:
    """Where a step was stopped: the operation, and the user's frame.

    Attributes:
      operation: what made the value, or was about to begin.
      replica: on which replica; None outside of them.
      frame: of the user's function.
    """

    def __init__(self, operation: str, replica: int | None, frame: FrameType):
        self.operation, self.replica, self.frame = operation, replica, frame

    @property
    def line(self) -> str:
        """The file, the line and the function."""
        code = self.frame.f_code
        name = os.path.basename(code.co_filename)
        return f"{name}:{self.frame.f_lineno} ({code.co_name})"

    def __str__(self) -> str:
        where = "" if self.replica is None else f", replica {self.replica}"
        text = linecache.getline(self.frame.f_code.co_filename, self.frame.f_lineno).strip()
        lines = [f"as Python: {self.operation} at {self.line}{where}: {text}"]
        for name, value in list(_locals_of(self.frame).items())[:_SHOWN]:
            said = in_words(value)
            if said:
                lines.append(f"  {name}: {said}")
        return "\n".join(lines)


@final
class Watch:
    """Watches operations, and calls somebody at the first that makes a value that is not finite.

    Args:
      stop: is called there, once.
      origin: the one that is looked for, where it is known which of several counts.
      replica: the only replica that is watched; None: all.
      at_once: stops at the first operation of all that the user's function makes.
    """

    def __init__(
        self,
        stop: Callable[[Stopped], None],
        origin: Origin | None = None,
        replica: int | None = None,
        at_once: bool = False,
    ):
        self._stop = stop
        self._origin = origin
        self._replica = replica
        self._at_once = at_once
        self.is_done = False
        self._busy = threading.local()

    @contextlib.contextmanager
    def watching(self) -> Generator[None]:
        """Inside the block, operations are watched."""
        with watching_operations(self._carried_out):
            yield

    def _carried_out(
        self, primitive: Primitive, operands: Sequence[Any], results: Sequence[Any]
    ) -> None:
        if self.is_done or getattr(self._busy, "is_set", False):
            return
        self._busy.is_set = True  # what is asked of values are operations, too
        try:
            self._look(primitive, operands, results)
        finally:
            self._busy.is_set = False

    def _look(self, primitive: Primitive, operands: Sequence[Any], results: Sequence[Any]) -> None:
        context = get_replica_context()
        replica = None if context is None else int(context.replica_id_in_sync_group)
        wanted = self._replica if self._origin is None else self._origin.replica
        if wanted is not None and replica != wanted:
            return
        if not self._at_once and not self._is_cause(operands, results):
            return
        frames = _users_frames()
        if not frames:
            return
        origin = self._origin
        if origin is not None and not (origin.backward or origin.operation == "input"):
            lines = [f"{os.path.basename(f.f_code.co_filename)}:{f.f_lineno}:" for f in frames]
            if not any(origin.line.startswith(line) for line in lines):
                return
        self.is_done = True
        self._stop(Stopped(primitive.name, replica, frames[0]))

    def _is_cause(self, operands: Sequence[Any], results: Sequence[Any]) -> bool:
        if not any(map(_is_bad, results)):
            return False
        if self._origin is not None and self._origin.operation == "input":
            return True
        bad = [each for each in operands if _is_bad(each)]
        makes_nan = any(map(_has_nan, results)) and not any(map(_has_nan, bad))
        return not bad or makes_nan


def _users_frames() -> list[FrameType]:
    """Returns the frames of the user's functions, the innermost first.

    Those of libraries if there are no others, as where Keras makes a step of its own.
    """
    found: list[FrameType] = []
    of_libraries: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = os.path.abspath(frame.f_code.co_filename)
        if "site-packages" in file or "dist-packages" in file:
            if not file.startswith((_OURS, *_BELOW)):
                of_libraries.append(frame)
        elif os.path.exists(file) and not file.startswith((_OURS, _STANDARD)):
            found.append(frame)
        frame = frame.f_back
    return found or of_libraries


def _concrete(value: object) -> Any:
    """Returns the array behind a value that is differentiated."""
    while hasattr(value, "primal"):
        value = getattr(value, "primal", None)
    return value


def _is_bad(value: object) -> bool:
    value = _concrete(value)
    if not isinstance(value, ConcreteArray | np.ndarray | np.generic):
        return False
    is_float = jnp.issubdtype(value.dtype, jnp.inexact)
    return bool(is_float and not np.isfinite(np.asarray(value)).all())


def _has_nan(value: object) -> bool:
    value = _concrete(value)
    return _is_bad(value) and bool(np.isnan(np.asarray(value)).any())


def _locals_of(frame: FrameType) -> dict[str, Any]:
    return {name: value for name, value in frame.f_locals.items() if not name.startswith("__")}


def in_words(value: object) -> str:
    """Returns an array or number in words; "" for other things."""
    if isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(getattr(value, "name", None), str) and hasattr(value, "read_value"):
        value = getattr(value, "read_value")()  # noqa: B009
    value = _concrete(value)
    if not isinstance(value, ConcreteArray | np.ndarray | np.generic):
        return ""
    if not (jnp.issubdtype(value.dtype, jnp.number) and value.size):
        return f"{value.dtype}{list(value.shape)}"
    array = np.asarray(value)
    if not jnp.issubdtype(value.dtype, jnp.inexact) or np.iscomplexobj(array):
        return f"{value.dtype}{list(value.shape)}"
    finite = array[np.isfinite(array)].astype(np.float64)
    span = f", {finite.min():.4g} to {finite.max():.4g}" if finite.size else ""
    bad = array.size - finite.size
    return f"{value.dtype}{list(value.shape)}{span}{f', {bad} not finite' if bad else ''}"
