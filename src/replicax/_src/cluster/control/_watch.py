"""`Watch`: the watchdog at work. What it decides is in `_watchdog.py`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from replicax._src.cluster.control import _watchdog
from replicax._src.cluster.control._loop import MessageLoop
from replicax._src.cluster.control._types import Message
from replicax._src.cluster.control._worker_record import WorkerRecord

_LOOK_SECONDS = 0.25
_HEARTBEAT_SECONDS = 1.0
# How long a worker may take to answer for its stacks before it counts as silent.
_STACKS_SECONDS = 1.0


class Watch:
    """Looks after the workers of a job until it is stopped. Everything in the loop's thread.

    Args:
      timeout: Seconds without progress after which the job is stuck.
      workers: Whom to look after.
      name_of: How to call one.
      loop: For timers.
      broadcast: Sends a message to all workers.
      on_stalled: Called once, with what is known of all: the job is stuck.
    """

    def __init__(
        self,
        timeout: float,
        workers: Sequence[WorkerRecord],
        name_of: Callable[[int], str],
        loop: MessageLoop,
        broadcast: Callable[[Message], None],
        on_stalled: Callable[[list[_watchdog.View]], None],
    ) -> None:
        self.timeout = timeout
        self._workers = workers
        self._name_of = name_of
        self._loop = loop
        self._broadcast = broadcast
        self._on_stalled = on_stalled
        self._asking = False
        self._stopped = False
        self._beat()
        self._look()

    def stop(self) -> None:
        """The job is over."""
        self._stopped = True

    def answered(self) -> None:
        """A worker has sent its stacks."""
        if self._asking and all(each.stack is not None for each in self._workers):
            self._tell()

    def _beat(self) -> None:
        if not self._stopped:  # the workers want to know, too, that the server is alive
            self._broadcast({"op": "beat"})
            self._loop.call_later(min(_HEARTBEAT_SECONDS, self.timeout / 3), self._beat)

    def _look(self) -> None:
        if self._stopped:
            return
        if _watchdog.is_stalled(self._views(), time.monotonic(), self.timeout):
            self._asking = True
            for worker in self._workers:
                worker.stack = None
            self._broadcast({"op": "stacks?"})
            self._loop.call_later(_STACKS_SECONDS, self._tell)
        else:
            self._loop.call_later(min(_LOOK_SECONDS, self.timeout / 4), self._look)

    def _tell(self) -> None:
        if self._asking and not self._stopped:
            self._asking = False
            self._on_stalled(self._views())

    def _views(self) -> list[_watchdog.View]:
        return [worker.view(self._name_of(worker.rank)) for worker in self._workers]
