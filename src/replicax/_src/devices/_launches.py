"""Launching programs with collectives: in one order on all devices, and few at a time."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from replicax._src._errors import ReplicaMismatchError
from replicax._src.devices._replicas import Meeting

_collective = threading.RLock()  # a signal handler may come in between
_BETWEEN_MARKS = 4  # on 8 devices XLA gives up with some 30 programs on their way


class _OneThread:
    """Lets one thread in at a time, and tells the others so.

    Programs meet those of other workers in the order of their launching. Of two threads that
    launch them at once nobody knows the order.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise ReplicaMismatchError(
                "Two threads run replicas at the same time. With several workers the programs of "
                "one meet those of the others in the order in which they are launched, and two "
                "threads may launch them in another order on another worker: run replicas in one "
                "thread, or one after the other."
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_ALL_MAY = contextlib.nullcontext()


class Launches:
    """How programs over the devices of a mesh are launched."""

    def __init__(self, mesh: Mesh, meeting: Meeting | None, on_cpu: bool):
        """
        Args:
          mesh: of the programs.
          meeting: how this worker meets the others, if there are any.
          on_cpu: whether the devices are virtual ones.
        """
        self.mesh = mesh
        self._meeting = meeting
        self._one_thread = None if meeting is None else _OneThread()
        self._on_cpu = on_cpu
        self._mark: jax.Array | None = None  # a result of a program that was called lately
        self._since_mark = -1

    @property
    def spans_workers(self) -> bool:
        return self._meeting is not None

    def alone(self) -> contextlib.AbstractContextManager[Any]:
        """Refuses a second thread inside the block, if there are other workers."""
        return _ALL_MAY if self._one_thread is None else self._one_thread

    def require_same(self, topic: str, what: str) -> None:
        """Raises if other workers, at this point of their programs, say another `what`."""
        if self._meeting is not None:
            self._meeting.require_same(topic, what)

    def wait_for(self, inputs: Any) -> None:
        """To be called before `call`, without any lock.

        On the CPU, programs with collectives share one pool of threads, with each other and with
        what computes their inputs, and would wait for those with no thread left to make them. So
        nothing may be unfinished there that they take, and only so many of them at a time: twice
        `_BETWEEN_MARKS`.
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
        self,
        program: Callable[..., Any],
        results: list[Any],
        *args: Any,
        what: str = "",
    ) -> None:
        """Appends `program(*args)` to `results`, for a program with collectives.

        `what`: says what it is, the same on all workers; empty for a program without collectives,
        which a worker may call alone.

        Such programs must reach every device in one order, whichever threads call them. The last
        of what `program` returns tells that it has ended; nobody may donate it.

        The results are appended in the same breath: an interrupt cannot come in between.
        """
        with _collective:
            if self._meeting is not None and what:  # in the lock: told in the order of launching
                self._meeting.before_call(what)
            if jax.sharding.get_abstract_mesh().empty:
                append_result(results, program, args)
            else:
                with jax.set_mesh(self.mesh):  # the user's own mesh is not ours
                    append_result(results, program, args)
            if self._on_cpu and self._mark is None:
                self._mark = _last_array(results[-1])


def token() -> jax.Array:
    """A last result for a program, nobody else's: to see by it that the program has ended."""
    return jnp.zeros((), jnp.int8)


def append_result(results: list[Any], program: Callable[..., Any], args: Sequence[Any]) -> None:
    """`results.append(program(*args))`, with no Python in between that Ctrl-C could interrupt."""
    results.extend(itertools.starmap(program, (args,)))


def _last_array(results: Any) -> Any:
    while isinstance(results, list | tuple):
        results = results[-1] if results else None
    return results
