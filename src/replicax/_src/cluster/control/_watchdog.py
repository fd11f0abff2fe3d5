"""The watchdog: when is a job stuck, who is to blame, and what to print about it.

A pure function of what the server knows: it looks a few times a second and answers yes or no. A
collective program ends for all workers or for none, so one stuck worker stops the progress of all:
the job is stuck when nobody has moved for `timeout` seconds, while nobody is compiling or has asked
to be left alone. A worker that has not been heard of for that long is stopped, whatever the others
do: its heartbeat comes from a thread of its own.
"""

from __future__ import annotations

import dataclasses
import socket

from replicax._src.cluster.control._sockets import process_state
from replicax._src.cluster.control._types import counted, listed


@dataclasses.dataclass
class View:
    """A worker as the watchdog sees it; `heard` and `moved` are times of the monotonic clock."""

    worker: int
    name: str
    state: str
    calls: int
    phase: str
    step: int
    busy: bool
    pid: int | None
    host: str | None
    heard: float
    moved: float
    stack: str | None = None

    @property
    def place(self) -> str:
        """ "step 12, call 120, running step"; without the step where the program does not say."""
        if self.state == "finished":
            return f"finished after {counted(self.calls, 'call')}"
        step = f"step {self.step}, " if self.step else ""
        return f"{step}call {self.calls}, {self.phase}"


def is_stalled(views: list[View], now: float, timeout: float) -> bool:
    """Whether the job should be looked into."""
    if any(now - view.heard > timeout for view in views):
        return True
    running = [view for view in views if view.state != "finished"]
    if not running or any(view.busy for view in running):
        return False
    if len(running) < len(views):
        return False  # who has finished is not waited for: a last evaluation may take its time
    return now - max(view.moved for view in views) > timeout


def suspects(views: list[View]) -> list[View]:
    """Who holds up the others: who does not answer; else who is behind; else nobody known."""
    silent = [view for view in views if view.stack is None]
    if silent:
        return silent
    running = [view for view in views if view.state != "finished"]
    active = [view for view in running if not view.phase.startswith("waiting")]
    if 0 < len(active) < len(running):
        return active
    first = min((view.calls for view in running), default=0)
    behind = [view for view in running if view.calls == first]
    return behind if len(behind) < len(running) or len(running) == 1 else []


def verdict(views: list[View], timeout: float) -> str:
    """The one line: what the suspects did, to be read after the name of the first."""
    found = suspects(views)
    if not found:
        return f"No worker has made progress for {timeout:g} s"
    first = found[0]
    if first.stack is None:
        state = state_of(first)
        text = f"does not answer{f' (its process is {state})' if state else ''}"
    else:
        furthest = max(view.calls for view in views)
        text = f"has made no progress for {timeout:g} s ({first.place})"
        if furthest > first.calls:
            text += f"; the others are at call {furthest}"
    also = [view.name for view in found[1:]]
    return text + (f"; so with {listed(also)}" if also else "")


def report(views: list[View], timeout: float) -> str:
    """Many lines: step, phase and Python stack of each worker."""
    blocks = [f"No progress for {timeout:g} s. What each worker was doing:"]
    for view in views:
        block = f"{view.name}: {view.place}"
        if view.stack is None:
            state = state_of(view)
            block += "\n  no answer" + (f"; its process is {state}" if state else "")
        else:
            block += "\n" + "\n".join(f"  {line}" for line in view.stack.splitlines())
        blocks.append(block)
    return "\n".join(blocks)


def state_of(view: View) -> str | None:
    """What the kernel says about the process, if it is one of this machine."""
    if view.pid is None or view.host != socket.gethostname():
        return None
    return process_state(view.pid)
