"""The watchdog: when is a job stuck, who is to blame, and what to print about it.

A collective program ends for all workers or for none, so one stuck worker stops the progress of
all: the job is stuck when nobody has moved for `timeout` seconds, while nobody is compiling or has
asked to be left alone. A worker that has not been heard of for that long is stopped, whatever the
others do: its heartbeat comes from a thread of its own. `Watch` looks a few times a second; the
functions decide from what the server knows.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from typing import final

from replicax._src.cluster.control._loop import MessageLoop
from replicax._src.cluster.control._records import WorkerRecord
from replicax._src.cluster.control._sockets import process_state
from replicax._src.cluster.control._types import Message, WorkerState, listed

_LOOK_SECONDS = 0.25
_HEARTBEAT_SECONDS = 1.0
# How long a worker may take to answer for its stacks before it counts as silent.
_STACKS_SECONDS = 1.0


@final
class Watch:
    """Looks after the workers of a job until it is stopped. Everything in the loop's thread.

    Args:
      timeout: Seconds without progress after which the job is stuck.
      workers: Whom to look after.
      loop: For timers.
      broadcast: Sends a message to all workers.
      on_stalled: Called once: the job is stuck.
    """

    def __init__(
        self,
        timeout: float,
        workers: Sequence[WorkerRecord],
        loop: MessageLoop,
        broadcast: Callable[[Message], None],
        on_stalled: Callable[[], None],
    ) -> None:
        self.timeout = timeout
        self._workers = workers
        self._loop = loop
        self._broadcast = broadcast
        self._on_stalled = on_stalled
        self._asking = False
        self._stopped = False
        self._beat()
        self._look()

    def stop(self) -> None:
        """Ends the watch: the job is over."""
        self._stopped = True

    def answered(self) -> None:
        """Notes that a worker has sent its stacks."""
        if self._asking and all(each.stack is not None for each in self._workers):
            self._tell()

    def _beat(self) -> None:
        if not self._stopped:  # the workers want to know, too, that the server is alive
            self._broadcast({"op": "beat"})
            self._loop.call_later(min(_HEARTBEAT_SECONDS, self.timeout / 3), self._beat)

    def _look(self) -> None:
        if self._stopped:
            return
        if is_stalled(self._workers, time.monotonic(), self.timeout):
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
            self._on_stalled()


def is_stalled(workers: Sequence[WorkerRecord], now: float, timeout: float) -> bool:
    """Returns whether the job should be looked into."""
    if any(now - each.heard > timeout for each in workers):
        return True
    running = [each for each in workers if each.state is not WorkerState.FINISHED]
    if not running or any(each.busy for each in running):
        return False
    if len(running) < len(workers):
        return False  # those that have finished are not waited for: a last evaluation is slow
    return now - max(each.moved for each in workers) > timeout


def suspects(workers: Sequence[WorkerRecord]) -> list[WorkerRecord]:
    """Returns who holds up the others: who does not answer; else who is behind; else nobody."""
    silent = [each for each in workers if each.stack is None]
    if silent:
        return silent
    running = [each for each in workers if each.state is not WorkerState.FINISHED]
    active = [each for each in running if not each.phase.startswith("waiting")]
    if 0 < len(active) < len(running):
        return active
    first = min((each.calls for each in running), default=0)
    behind = [each for each in running if each.calls == first]
    return behind if len(behind) < len(running) or len(running) == 1 else []


def verdict(workers: Sequence[WorkerRecord], timeout: float) -> str:
    """Returns in one line what the suspects did, to be read after the name of the first."""
    found = suspects(workers)
    if not found:
        return f"No worker has made progress for {timeout:g} s"
    first = found[0]
    if first.stack is None:
        state = state_of(first)
        text = f"does not answer{f' (its process is {state})' if state else ''}"
    else:
        furthest = max(each.calls for each in workers)
        text = f"has made no progress for {timeout:g} s ({first.place})"
        if furthest > first.calls:
            text += f"; the others are at call {furthest}"
    also = [each.name for each in found[1:]]
    return text + (f"; so with {listed(also)}" if also else "")


def report(workers: Sequence[WorkerRecord], timeout: float) -> str:
    """Returns many lines: step, phase and Python stack of each worker."""
    blocks = [f"No progress for {timeout:g} s. What each worker was doing:"]
    for each in workers:
        block = f"{each.name}: {each.place}"
        if each.stack is None:
            state = state_of(each)
            block += "\n  no answer" + (f"; its process is {state}" if state else "")
        else:
            block += "\n" + "\n".join(f"  {line}" for line in each.stack.splitlines())
        blocks.append(block)
    return "\n".join(blocks)


def state_of(worker: WorkerRecord) -> str | None:
    """Returns what the kernel says about the process, if it is one of this machine."""
    if worker.pid is None or worker.host != socket.gethostname():
        return None
    return process_state(worker.pid)
