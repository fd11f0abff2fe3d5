"""What becomes of one generation of workers: it finishes, fails, or is preempted, as a whole.

Here are no processes and no sockets: `Generation` is told what the control server says and how
processes end, and says who is to blame, when all must be killed, and what came out.
"""

import dataclasses
import enum
import signal
import time
from collections.abc import Callable
from typing import final

from replicax._src.cluster.control import RESTART_STATUS, Event, EventKind, how_it_ended

# A worker that fails on its own runs its exit functions; then it is killed as well.
_SECONDS_TO_FAIL = 1.0
# When all have finished, Python and JAX take a moment to shut down; one that hangs there is killed.
_SECONDS_TO_SHUT_DOWN = 60.0
# An error can be long; the worker has printed all of it.
_LONGEST_TEXT = 300


class Result(enum.Enum):
    """What became of a generation."""

    FINISHED = "finished"
    FAILED = "failed"
    PREEMPTED = "preempted"


@final
@dataclasses.dataclass(frozen=True)
class Failure:
    """The first thing that went wrong."""

    worker: int | None
    text: str
    status: int
    """The exit status of the job, if this ends it."""
    lost: bool = False
    """Whether the worker was killed, as if its device or machine were gone."""


@final
class Generation:
    """Follows one generation: told what happens, it knows when to kill and what came out."""

    def __init__(
        self, number: int, workers: int, grace: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.number = number
        self.workers = workers
        self.exits: dict[int, int] = {}
        self.cause: Failure | None = None
        self.kill_at: float | None = None
        """When all that still runs is to be killed, on the clock; None: not at all, so far."""
        self.report = ""
        """What the watchdog has found, in many lines."""
        self.told_to_end = False
        self._done = False
        self._preempted = False
        self._grace = grace
        self._clock = clock
        self.started = clock()

    @property
    def over(self) -> bool:
        """Whether all workers have ended, or it is time to kill them."""
        if len(self.exits) == self.workers:
            return True
        return self.kill_at is not None and self._clock() >= self.kill_at

    @property
    def result(self) -> Result:
        """What came out, once it is over."""
        if self._preempted:
            return Result.PREEMPTED
        clean = all(status == 0 for status in self.exits.values())
        if self.cause is None and clean and (self._done or len(self.exits) == self.workers):
            return Result.FINISHED
        return Result.FAILED

    @property
    def lost(self) -> list[int]:
        """The workers that were killed, as if their devices were gone: the first, and its like."""
        if self.cause is None or self.cause.worker is None or not self.cause.lost:
            return []
        status = self.exits.get(self.cause.worker)
        return sorted(
            {self.cause.worker, *(rank for rank, each in self.exits.items() if each == status)}
        )

    def end_within(self, seconds: float) -> None:
        """Notes that all workers were told to end; they have this long."""
        self.told_to_end = True
        self.kill_at = self._clock() + seconds

    def heard(self, event: Event) -> None:
        """Takes in what the control server says."""
        if event.kind is EventKind.FINISHED and event.details.get("status") == RESTART_STATUS:
            self._leave_preempted()
        elif event.kind is EventKind.DONE:
            self._done = True
            self._kill_in(_SECONDS_TO_SHUT_DOWN)
        elif event.kind is EventKind.FAILED:
            early = event.details.get("type") == "EarlyExit"  # no error, but it left the others
            self._blame(event, event.text if early else f"failed: {event.text}", _SECONDS_TO_FAIL)
        elif event.kind is EventKind.REFUSED:
            # Each worker raises the reason, as an exception of its own.
            self._blame(event, event.text, _SECONDS_TO_FAIL)
        elif event.kind is EventKind.LOST:
            if event.details.get("status") == RESTART_STATUS:
                self._leave_preempted()
            else:
                self._blame(event, event.text, 0)
        elif event.kind in (EventKind.STALLED, EventKind.DOWN):
            self.report = event.details.get("report") or self.report
            self._blame(event, event.text, 0)

    def exited(self, worker: int, status: int) -> None:
        """Notes that a process has ended: negative statuses are signals."""
        self.exits[worker] = status
        if status == RESTART_STATUS:
            self._leave_preempted()
        elif status != 0:
            self._fail(
                Failure(worker, how_it_ended(status), _as_exit_status(status), status < 0), 0
            )
        if self.cause is not None and self.cause.worker == worker:
            self._kill_in(0)  # it has said all that it had to say

    def lose(self, worker: int, text: str) -> None:
        """Notes that a worker went with its node: nothing more will be heard of its process."""
        self.exits.setdefault(worker, -signal.SIGKILL)
        self._fail(Failure(worker, text, 1, lost=True), 0)

    def _blame(self, event: Event, text: str, seconds: float) -> None:
        status = event.details.get("status") or 1
        text = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."
        self._fail(Failure(event.worker, text, _as_exit_status(status), status < 0), seconds)

    def _fail(self, cause: Failure, seconds: float) -> None:
        if self._preempted or self.told_to_end:
            return  # they end anyway, and some cannot do without the others
        if self.cause is None:
            self.cause = cause
            self._kill_in(seconds)

    def _leave_preempted(self) -> None:
        """Notes that a worker has saved and leaves; the others have saved as well, and follow."""
        if self.cause is None and not self._preempted:
            self._preempted = True
            self._kill_in(self._grace)

    def _kill_in(self, seconds: float) -> None:
        at = self._clock() + seconds
        self.kill_at = at if self.kill_at is None else min(self.kill_at, at)


def _as_exit_status(status: int) -> int:
    """Returns a return code as shells give it: 128 + the signal."""
    return 128 - status if status < 0 else status
