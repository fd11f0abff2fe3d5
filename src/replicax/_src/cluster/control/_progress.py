"""What a worker says of itself. Its threads write it; the client's thread sends it now and then."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import final

# Phases that may take as long as they like.
_LONG = ("starting", "compiling")


@final
class WorkerProgress:
    """How far this worker is.

    Attributes:
      calls: Collective programs launched so far.
      phase: What it is doing: "starting", "compiling step", "running step", "saving", "idle".
      step: The training step, where somebody counts.
      busy: More than 0 while the watchdog should not expect progress of this worker.
    """

    __slots__ = ("_lock", "_runs", "_waiting", "busy", "calls", "phase", "step")

    def __init__(self) -> None:
        self.calls = 0
        self.phase = "starting"
        self.step = 0
        self.busy = 0
        self._waiting = 0
        self._lock = threading.Lock()
        self._runs: list[tuple[int, str]] = []

    def called(self, what: str) -> int:
        """Notes the launch of a collective program; returns its number, from 1."""
        with self._lock:
            self.calls = number = self.calls + 1
            runs = self._runs
            if runs and runs[-1][1] == what:
                runs[-1] = (runs[-1][0] + 1, what)
            else:
                runs.append((1, what))
        return number

    def sample(self) -> tuple[int, str, int, bool]:
        """Returns how far it is, for comparing and sending."""
        return self.calls, self.phase, self.step, self.busy > 0 and not self._waiting

    def take_runs(self) -> list[tuple[int, str]]:
        """Returns what was called since the last time: how often in a row, and what."""
        with self._lock:
            runs, self._runs = self._runs, []
        return runs

    @contextlib.contextmanager
    def in_phase(self, phase: str, busy: bool | None = None) -> Iterator[None]:
        """Sets the phase inside `with`, and the one before after it. In any thread.

        Args:
          phase: What the worker is doing.
          busy: Whether that may take long; None: if it is starting or compiling.
        """
        more = int(phase.startswith(_LONG) if busy is None else busy)
        with self._lock:
            before, self.phase = self.phase, phase
            self.busy += more
        try:
            yield
        finally:
            with self._lock:
                self.phase = before
                self.busy -= more

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Says inside `with` that this worker waits for others: it is not busy, whatever it did."""
        with self._lock:
            before, self.phase = self.phase, f"waiting for all workers ({what})"
            self._waiting += 1
        try:
            yield
        finally:
            with self._lock:
                self.phase = before
                self._waiting -= 1
