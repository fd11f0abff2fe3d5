"""What the server knows: of each worker, of exchanges, and of the programs that workers call."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, final

from replicax._src.cluster.control._attendance import Hello
from replicax._src.cluster.control._loop import Connection
from replicax._src.cluster.control._types import WorkerState, WorkerStatus, counted

Key = tuple[str, int]
"""The topic of an exchange, and which one of the topic it is."""


@final
@dataclasses.dataclass(eq=False)
class WorkerRecord:
    """One worker. Written in the server's thread only.

    Attributes:
      rank: Which one.
      name: How to call it, with its address, once it runs.
      state: How far it has come.
      calls: How many collective programs it has launched.
      phase: What it says it is doing.
      step: The step it says it is at.
      busy: Whether it asks to be left alone by the watchdog.
      pid: Its process id on `host`; None while it has not arrived.
      host: Where it runs.
      heard: When it last said anything, on the monotonic clock.
      moved: When it last made progress.
      stack: What it answered when it was asked for its Python stacks.
      connection: To it; None while there is none.
      status: Its exit status, where that is known.
      departing: Whether it has said that it ends now, with whatever status.
      waits_in: The exchange that its main thread waits in, if any: it makes no call meanwhile.
    """

    rank: int
    name: str = ""
    state: WorkerState = WorkerState.EXPECTED
    calls: int = 0
    phase: str = ""
    step: int = 0
    busy: bool = False
    pid: int | None = None
    host: str | None = None
    heard: float = 0.0
    moved: float = 0.0
    stack: str | None = None
    connection: Connection | None = None
    status: int | None = None
    departing: bool = False
    waits_in: Key | None = None

    @property
    def in_job(self) -> bool:
        """Whether the others count on it: it runs, or has finished and waits for them."""
        return self.state in (WorkerState.RUNNING, WorkerState.FINISHED)

    @property
    def place(self) -> str:
        """ "step 12, call 120, running step"; without the step where the program does not say."""
        if self.state is WorkerState.FINISHED:
            return f"finished after {counted(self.calls, 'call')}"
        step = f"step {self.step}, " if self.step else ""
        return f"{step}call {self.calls}, {self.phase}"

    def arrive(self, hello: Hello, connection: Connection) -> None:
        """Notes that it has said who it is."""
        self.state, self.connection = WorkerState.ARRIVED, connection
        self.pid, self.host = hello.pid, hello.host
        self.heard = self.moved = time.monotonic()
        self.phase = "waiting for the others"

    def run(self, name: str) -> None:
        """Notes that it has got the go-ahead, and starts JAX."""
        self.name, self.state = name, WorkerState.RUNNING
        self.phase, self.busy = "starting", True
        self.heard = self.moved = time.monotonic()

    def public(self, name: str) -> WorkerStatus:
        """Returns what the server's owner is told."""
        return WorkerStatus(
            worker=self.rank,
            name=name,
            state=self.state,
            phase=self.phase,
            step=self.step,
            calls=self.calls,
            busy=self.busy,
            pid=self.pid,
            host=self.host,
            silent_for=None if self.pid is None else time.monotonic() - self.heard,
        )


@final
class Exchanges:
    """What has been put into the exchanges that are not complete.

    The n-th exchange of a topic is complete when every worker has put something in.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._open: dict[Key, dict[int, Any]] = {}
        self._gone: set[int] = set()

    def put(self, key: Key, worker: int, payload: object) -> list[Any] | None:
        """Adds a worker's part; returns all parts by worker if that was the last one."""
        parts = self._open.setdefault(key, {})
        parts[worker] = payload
        if len(parts) < self._workers:
            return None
        del self._open[key]
        return [parts[each] for each in range(self._workers)]

    def missing(self, key: Key) -> list[int]:
        """Returns who has put nothing in yet."""
        parts = self._open.get(key, {})
        return [worker for worker in range(self._workers) if worker not in parts]

    def never_completed(self, key: Key) -> list[int]:
        """Returns who has left without its part, so that the others would wait for nothing."""
        return [worker for worker in self.missing(key) if worker in self._gone]

    def leave(self, worker: int) -> list[tuple[Key, list[int]]]:
        """Notes that a worker puts nothing in any more.

        Returns:
          The exchanges that can never be complete now, each with those who wait in it.
        """
        self._gone.add(worker)
        return [(key, sorted(parts)) for key, parts in self._open.items() if worker not in parts]


class Difference(NamedTuple):
    """The first call that is not the same everywhere."""

    number: int
    called: list[str]


@final
class CallLogs:
    """Which collective programs each worker has launched, as far as others have not yet.

    The n-th call of a worker meets the n-th of the others on the devices, whatever they are: other
    shapes hang or, worse, give wrong numbers. So every worker tells what it called, and the first
    difference ends the job. What is equal on all is forgotten.
    """

    def __init__(self, workers: int) -> None:
        self._open: list[deque[tuple[int, str]]] = [deque() for _ in range(workers)]
        self._equal = 0

    def add(self, worker: int, runs: Sequence[Sequence[object]]) -> Difference | None:
        """Notes further calls of a worker; returns the first difference, if there is one now."""
        self._open[worker].extend((int(str(count)), str(what)) for count, what in runs)
        while all(self._open):
            heads = [runs[0] for runs in self._open]
            if any(what != heads[0][1] for _, what in heads):
                return Difference(self._equal + 1, [what for _, what in heads])
            least = min(count for count, _ in heads)
            self._equal += least
            for runs, (count, what) in zip(self._open, heads, strict=True):
                runs.popleft()
                if count > least:
                    runs.appendleft((count - least, what))
        return None
