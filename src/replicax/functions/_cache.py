"""Functions that are handed over at each call and compiled: replica functions and losses.

They are often new objects with the same code. What they capture tells whether one is the same as
an earlier one (`_captures.py`); if it is not, it is traced again.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from replicax._warnings import warn
from replicax.functions._arguments import objects_in
from replicax.functions._captures import Captures
from replicax.functions._retry import OnlyPython

if TYPE_CHECKING:
    from replicax.functions._function import Function


class FunctionCache:
    """Compiled functions, by what they were made from; those used last are kept."""

    def __init__(self, kept: int = 64):
        self._functions: collections.OrderedDict[Any, Function] = collections.OrderedDict()
        self._kept = kept
        self._lock = threading.Lock()

    def call(
        self,
        fn: Callable[..., Any],
        make: Callable[[Callable[..., Any]], Function],
        call: Callable[[Function], Any],
        as_python: Callable[[], Any],
        arguments: Any = (),
    ) -> Any:
        """What `call` returns for the compiled function that goes with `fn`.

        `as_python` is called instead if there is too much to be compared. Objects among the
        `arguments` are compared as those that `fn` captures are.
        """
        try:
            key = Captures(fn, inputs=False, given=objects_in(arguments)).key
        except OnlyPython as reason:
            name = getattr(fn, "__qualname__", repr(fn))
            warn(
                f"{name!r} runs as plain Python, because {reason}, and whether one of them has "
                f"changed since it was compiled cannot be told. Decorate {name!r} with "
                "rx.function, which takes what it captures as it is at the first call."
            )
            return as_python()
        return call(self.by_key(key, lambda: make(name_only(fn)))[0])

    def by_key(self, key: Hashable, make: Callable[[], Function]) -> tuple[Function, bool]:
        """The compiled function for a key, and whether it was just made."""
        with self._lock:
            function = self._functions.get(key)
            if function is not None:
                self._functions.move_to_end(key)
                return function, False
            while len(self._functions) >= self._kept:
                self._functions.popitem(last=False)
            function = self._functions[key] = make()
            return function, True


def name_only(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the name and the place of `fn`, which keeps nothing of it alive."""

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("it is there for its name")

    code = getattr(fn, "__code__", None)
    if code is not None:
        stand_in.__code__ = stand_in.__code__.replace(
            co_filename=code.co_filename, co_firstlineno=code.co_firstlineno
        )
    stand_in.__name__ = getattr(fn, "__name__", type(fn).__name__)
    stand_in.__qualname__ = getattr(fn, "__qualname__", stand_in.__name__)
    return stand_in
