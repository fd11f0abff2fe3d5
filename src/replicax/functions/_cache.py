"""Compiled functions that are made for the user, and kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from replicax.functions._identity import function_key

if TYPE_CHECKING:
    from replicax.functions._function import Function


class FunctionCache:
    """Compiled functions, by the Python functions that they were made from.

    A loop may define its replica function anew in every iteration; what it captures tells whether
    it is the same one.
    """

    _KEPT = 16

    def __init__(self) -> None:
        self._functions: dict[Any, Function] = {}

    def get(self, fn: Callable[..., Any], make: Callable[[], Function]) -> Function:
        key = function_key(fn)
        function = self._functions.get(key)
        if function is None:
            if len(self._functions) >= self._KEPT:
                self._functions.pop(next(iter(self._functions)))
            function = self._functions[key] = make()
        return function
