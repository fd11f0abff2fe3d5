"""Functions that are handed over at each call and compiled: replica functions and losses.

They are often new objects with the same code. What they capture tells whether one is the same as
an earlier one (`_captures.py`); if it is not, it is traced again.
"""

from __future__ import annotations

import collections
import functools
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from replicax._src._typing import PyTree
from replicax._src._warnings import warn
from replicax._src.functions._arguments import objects_in
from replicax._src.functions._captures import Captures
from replicax._src.functions._keys import identities_in
from replicax._src.functions._retry import OnlyPython

if TYPE_CHECKING:
    from replicax._src.functions._function import Function


class FunctionCache:
    """Compiled functions, by what they were made from.

    Those used last are kept, as long as the objects live that they were made from.
    """

    def __init__(self, kept: int = 64):
        # With the weak references that tell when an object is gone.
        self._functions: collections.OrderedDict[Any, tuple[Function, list[Any]]]
        self._functions = collections.OrderedDict()
        self._gone: list[Any] = []  # keys that no function has any more
        self._kept = kept
        self._lock = threading.Lock()

    def call(
        self,
        fn: Callable[..., Any],
        make: Callable[[Callable[..., Any]], Function],
        call: Callable[[Function], Any],
        as_python: Callable[[], Any],
        arguments: PyTree = (),
    ) -> Any:
        """Returns what `call` returns for the compiled function that goes with `fn`.

        `as_python` is called instead if there is too much to be compared. Objects among the
        `arguments` are compared as those that `fn` captures are.
        """
        try:
            key = Captures(fn, inputs=False, given=objects_in(arguments)).key
        except OnlyPython as reason:
            warn_of_python(fn, reason, "decorate it with rx.function, which")
            return as_python()
        return call(self.by_key(key, lambda: make(name_only(fn)))[0])

    def by_key(self, key: Hashable, make: Callable[[], Function]) -> tuple[Function, bool]:
        """Returns the compiled function for a key, and whether it was just made."""
        with self._lock:
            self._drop_gone()
            found = self._functions.get(key)
            if found is not None:
                self._functions.move_to_end(key)
                return found[0], False
            while len(self._functions) >= self._kept:
                self._functions.popitem(last=False)
            function = make()
            forget = functools.partial(_forget, weakref.ref(self), key)
            watched = [each.watched(forget) for each in identities_in(key)]
            self._functions[key] = (function, watched)
            return function, True

    def _drop_gone(self) -> None:
        while self._gone:
            self._functions.pop(self._gone.pop(), None)


def warn_of_python(fn: Callable[..., Any], reason: OnlyPython, advice: str) -> None:
    """Warns that a function is not compiled, because there is too much to be compared."""
    name = getattr(fn, "__qualname__", repr(fn))
    warn(
        f"{name!r} runs as plain Python, because {reason}, and whether one of them has changed "
        f"since it was compiled cannot be told. To have it compiled, {advice} takes what is "
        "captured as it is at the first call."
    )


def _forget(cache: weakref.ref[FunctionCache], key: Hashable, _: object) -> None:
    """Called when an object of a key is gone: at any time, also while the lock is held."""
    found = cache()
    if found is None:
        return
    found._gone.append(key)
    if found._lock.acquire(blocking=False):
        try:
            found._drop_gone()
        finally:
            found._lock.release()


def name_only(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function with the name and the place of `fn`, which keeps nothing of it alive."""

    def stand_in(*args: object, **kwargs: object) -> Any:
        raise AssertionError("it is there for its name")

    code = getattr(fn, "__code__", None)
    if code is not None:
        stand_in.__code__ = stand_in.__code__.replace(
            co_filename=code.co_filename, co_firstlineno=code.co_firstlineno
        )
    stand_in.__name__ = getattr(fn, "__name__", type(fn).__name__)
    stand_in.__qualname__ = getattr(fn, "__qualname__", stand_in.__name__)
    return stand_in
