"""The words that both sides of the control plane share: events, statuses, causes."""

from __future__ import annotations

import dataclasses
import enum
import signal
from typing import Any, final

# A worker that leaves because another is gone.
LEFT_STATUS = 1
# Preempted after saving: "start me again"; the number that TensorFlow uses for it.
RESTART_STATUS = 42

Message = dict[str, Any]


class EventKind(enum.StrEnum):
    """What the server notices; the package's docstring says what each means."""

    ARRIVED = enum.auto()
    STARTED = enum.auto()
    REFUSED = enum.auto()
    STATUS = enum.auto()
    FAILED = enum.auto()
    LOST = enum.auto()
    FINISHED = enum.auto()
    STALLED = enum.auto()
    DOWN = enum.auto()
    DONE = enum.auto()


class WorkerState(enum.StrEnum):
    """How far a worker has come in its life."""

    EXPECTED = enum.auto()
    ARRIVED = enum.auto()
    """It has said who it is, and waits for the verdict."""
    RUNNING = enum.auto()
    FINISHED = enum.auto()
    """It has come to its end, and waits for the others."""
    FAILED = enum.auto()
    LOST = enum.auto()
    ENDED = enum.auto()
    """Its process has ended, before it said anything."""


@final
@dataclasses.dataclass(frozen=True)
class Event:
    """Something that the server noticed."""

    kind: EventKind
    worker: int | None = None
    text: str = ""
    details: dict[str, Any] = dataclasses.field(default_factory=dict)


@final
@dataclasses.dataclass(frozen=True)
class WorkerStatus:
    """What the server knows of a worker.

    Attributes:
      worker: Its rank.
      name: How to call it, with its address where that is known.
      state: How far it has come.
      phase: What it says it is doing ("compiling step", "running step", "idle" ...).
      step: The step it says it is at.
      calls: How many collective programs it has launched.
      busy: Whether it asks to be left alone by the watchdog.
      pid: Its process id on `host`; None before it arrived.
      host: Where it runs.
      silent_for: Seconds since it was last heard of; None before it arrived.
    """

    worker: int
    name: str
    state: WorkerState
    phase: str = ""
    step: int = 0
    calls: int = 0
    busy: bool = False
    pid: int | None = None
    host: str | None = None
    silent_for: float | None = None


@final
@dataclasses.dataclass(frozen=True)
class Cause:
    """Why the job is over: the worker at fault (None: nobody in particular) and what it did.

    `text` continues the worker's name: "worker 2" + "was killed by SIGKILL".
    """

    kind: str
    worker: int | None
    name: str
    text: str

    @property
    def line(self) -> str:
        """The whole sentence."""
        return f"{self.name} {self.text}" if self.worker is not None else self.text


def how_it_ended(status: int) -> str:
    """Says in words what an exit status, as in `Popen.returncode`, means."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


def counted(number: int, noun: str) -> str:
    """Returns "1 call", "2 calls"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listed(items: list[str]) -> str:
    """Returns "a", "a and b", "a, b and c"."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def sentence(text: str) -> str:
    """Returns the text with a capital at its beginning and a full stop at its end."""
    text = text[:1].upper() + text[1:]
    return text if text.endswith(".") else f"{text}."
