"""`WorkerRecord`: what the server knows of one worker."""

from __future__ import annotations

import time

from replicax._src.cluster.control._loop import Connection
from replicax._src.cluster.control._meeting import Hello
from replicax._src.cluster.control._types import WorkerStatus
from replicax._src.cluster.control._watchdog import View


class WorkerRecord:
    """One worker. Written in the server's thread only.

    Attributes:
      rank: Which one.
      state: "expected", "arrived" (before the verdict), "running", "finished" (and waiting for the
        others), "failed", "lost", or "ended" (its process, before it said anything).
      connection: To it; None while there is none.
      hello: What it said when it arrived.
      status: Its exit status, where that is known.
      heard: When it last said anything, on the monotonic clock.
      moved: When it last made progress.
      stack: What it answered when it was asked for its Python stacks.
      departing: Whether it has said that it ends now, with whatever status.
      waits_in: The exchange that its main thread waits in, if any: it makes no call meanwhile.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.state = "expected"
        self.connection: Connection | None = None
        self.hello: Hello | None = None
        self.calls = 0
        self.phase = ""
        self.step = 0
        self.busy = False
        self.status: int | None = None
        self.heard = 0.0
        self.moved = 0.0
        self.stack: str | None = None
        self.departing = False
        self.waits_in: tuple[str, int] | None = None

    @property
    def in_job(self) -> bool:
        """Whether the others count on it: it runs, or has finished and waits for them."""
        return self.state in ("running", "finished")

    def arrive(self, hello: Hello, connection: Connection) -> None:
        """It has said who it is."""
        self.state, self.hello, self.connection = "arrived", hello, connection
        self.heard = self.moved = time.monotonic()
        self.phase = "waiting for the others"

    def run(self) -> None:
        """It has got the go-ahead, and starts JAX."""
        self.state, self.phase, self.busy = "running", "starting", True
        self.heard = self.moved = time.monotonic()

    def public(self, name: str) -> WorkerStatus:
        """For the server's owner."""
        return WorkerStatus(
            worker=self.rank,
            name=name,
            state=self.state,
            phase=self.phase,
            step=self.step,
            calls=self.calls,
            busy=self.busy,
            pid=self.hello.pid if self.hello else None,
            host=self.hello.host if self.hello else None,
            silent_for=time.monotonic() - self.heard if self.hello else None,
        )

    def view(self, name: str) -> View:
        """For the watchdog."""
        return View(
            worker=self.rank,
            name=name,
            state=self.state,
            calls=self.calls,
            phase=self.phase,
            step=self.step,
            busy=self.busy,
            pid=self.hello.pid if self.hello else None,
            host=self.hello.host if self.hello else None,
            heard=self.heard,
            moved=self.moved,
            stack=self.stack,
        )
