"""Losses that are compiled by themselves, inside a step that runs as Python."""

from __future__ import annotations

import collections
from collections.abc import Callable, Hashable
from typing import Any

from replicax._src._arrays import IntegersTooLargeError
from replicax._src._warnings import warn
from replicax._src.context import current_frame, get_strategy, is_compiling
from replicax._src.functions._arguments import Arguments
from replicax._src.functions._cache import FunctionCache, name_only, warn_of_python
from replicax._src.functions._captures import Captures
from replicax._src.functions._function import Function
from replicax._src.functions._many_calls import runs_inside
from replicax._src.functions._retry import NumPyNeeded, OnlyPython

_WARN_EVERY = 12


class LossCache:
    """Compiled losses: functions of no arguments, whose captured arrays are inputs."""

    def __init__(self) -> None:
        self._functions = FunctionCache(kept=256)
        self._numpy_constants: set[Any] = set()  # the code of losses that use NumPy
        self._refused: set[Any] = set()  # the code of losses that cannot be compiled
        self._counts: collections.Counter[Any] = collections.Counter()

    def call(
        self,
        loss_fn: Callable[[], Any],
        run: Callable[[Callable[[], Any]], Any],
        key: Hashable,
        if_possible: bool = False,
    ) -> Any:
        """Returns what `run(loss_fn)` returns, from a compiled program.

        Args:
          loss_fn: the loss. It is handed to `run` as it is, or with tracers in place of arrays.
          run: must depend on nothing but its argument and `key`.
          key: what the program depends on besides.
          if_possible: a loss that cannot be compiled runs as Python, without an error.
        """
        if runs_inside(current_frame()):
            return run(loss_fn)
        try:
            captures = Captures(loss_fn)
            by_content = captures.ask_for_types or captures.codes in self._numpy_constants
            if captures.have_numpy and by_content:
                captures = Captures(loss_fn, numpy_inputs=False)
        except OnlyPython as reason:
            if not if_possible:
                warn_of_python(loss_fn, reason, "put rx.function around the step, which")
            return run(loss_fn)
        if captures.have_tracers or (if_possible and captures.codes in self._refused):
            return run(loss_fn)
        try:
            return self._call(captures, loss_fn, run, key, if_possible)
        except (NumPyNeeded, IntegersTooLargeError):
            if not captures.have_numpy:
                raise
            self._numpy_constants.add(captures.codes)
        captures = Captures(loss_fn, numpy_inputs=False)
        return self._call(captures, loss_fn, run, key, if_possible)

    def _call(
        self, captures: Captures, loss_fn: Any, run: Any, key: Hashable, if_possible: bool
    ) -> Any:
        function, is_new = self._functions.by_key(
            (captures.key, key), lambda: Function(name_only(loss_fn))
        )

        def body(arrays: list[Any]) -> Any:
            try:
                result = run(captures.with_arrays(arrays))
            except Exception as error:
                if captures.have_numpy and is_compiling():
                    raise NumPyNeeded from error  # it may work with the arrays themselves
                raise
            captures.require_unchanged()
            return result

        frame = current_frame()
        if if_possible:
            try:
                function._programs.find(body, None, frame, Arguments((captures.arrays,), {}))
            except Exception:  # if it fails as plain Python too, that tells why
                self._refused.add(captures.codes)
                return run(loss_fn)
        else:
            self._count(captures, loss_fn, is_new)
        return function._call(body, None, frame, (captures.arrays,), {})

    def _count(self, captures: Captures, loss_fn: Callable[[], Any], is_new: bool) -> None:
        """Warns if a loss is compiled at about every step."""
        codes = captures.codes
        self._counts[codes, is_new] += 1
        compiled, found = self._counts[codes, True], self._counts[codes, False]
        if is_new and compiled % _WARN_EVERY == 0:
            if found < compiled * get_strategy().num_replicas_in_sync:
                warn(
                    f"The loss {getattr(loss_fn, '__qualname__', loss_fn)!r} was compiled "
                    f"{compiled} times by rx.value_and_grad(..., compile=True), because a Python "
                    "value, a NumPy array that NumPy computes with, or an object's attribute that "
                    "it captures keeps changing. Capture arrays instead, in local variables: "
                    "jnp.asarray(step), x = self.x."
                )
