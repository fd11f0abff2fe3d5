"""Launching programs with collectives: in one order on all devices, and few at a time."""

# Functions of JAX and NumPy have types that say little.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from replicax._src._typing import PyTree

_collective = threading.RLock()  # a signal handler may come in between
_BETWEEN_MARKS = 4  # on 8 devices XLA gives up with some 30 programs on their way


class Launches:
    """How programs over the devices of a mesh are launched."""

    def __init__(self, mesh: Mesh, on_cpu: bool):
        """
        Args:
          mesh: of the programs.
          on_cpu: whether the devices are virtual ones.
        """
        self.mesh = mesh
        self._on_cpu = on_cpu
        self._mark: jax.Array | None = None  # a result of a program that was called lately
        self._since_mark = -1

    def _announce(self, what: str) -> None:
        """Tells other workers, if there are any, which program with collectives is launched."""

    def wait_for(self, inputs: PyTree) -> None:
        """To be called before `call`, without any lock.

        On the CPU, programs with collectives share one pool of threads, with each other and with
        what computes their inputs, and would wait for those with no thread left to make them. So
        nothing may be unfinished there that they take, and only so many of them at a time: twice
        `_BETWEEN_MARKS`. Programs over the devices without collectives count, too: a collective
        behind many of those was seen to wait forever.
        """
        if not self._on_cpu:
            return
        if inputs:
            jax.block_until_ready(inputs)
        self._since_mark = (self._since_mark + 1) % _BETWEEN_MARKS
        mark = self._mark
        if self._since_mark == 0 and mark is not None:
            self._mark = None
            with contextlib.suppress(Exception):  # those who look at its results are told
                mark.block_until_ready()

    def call(
        self, program: Callable[..., Any], results: list[Any], *args: Any, what: str = ""
    ) -> None:
        """Appends `program(*args)` to `results`, for a program with collectives.

        `what`: says what it is, the same on all workers; empty for a program without collectives,
        which a worker may call alone.

        Such programs must reach every device in one order, whichever threads call them. The last
        of what `program` returns tells that it has ended; it may not be donated.

        The results are appended in one step: an interrupt cannot come in between.
        """
        with _collective:
            self._announce(what)  # in the lock: told in the order of launching
            if jax.sharding.get_abstract_mesh().empty:
                append_result(results, program, args)
            else:
                with jax.set_mesh(self.mesh):  # the user's own mesh is not ours
                    append_result(results, program, args)
            if self._on_cpu and self._mark is None:
                self._mark = _last_array(results[-1])


def token() -> jax.Array:
    """Returns a last result for a program, which shows when the program has ended."""
    return jnp.zeros((), jnp.int8)


def append_result(results: list[Any], program: Callable[..., Any], args: Sequence[Any]) -> None:
    """`results.append(program(*args))`, with no Python in between that Ctrl-C could interrupt."""
    results.extend(itertools.starmap(program, (args,)))


def _last_array(results: object) -> Any:
    while isinstance(results, list | tuple):
        results = results[-1] if results else None
    return results
