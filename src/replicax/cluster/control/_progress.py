"""What a worker says of itself: plain attributes that its main thread writes without a lock.

The client's thread samples them a few times a second; nothing is sent when they are written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

# Phases that may take as long as they like.
_LONG = ("starting", "compiling")


class Progress:
    """How far this worker is.

    Attributes:
      calls: Collective programs launched so far.
      phase: What it is doing: "starting", "compiling step", "running step", "saving", "idle".
      step: The training step, where somebody counts.
      busy: More than 0 while the watchdog should not expect progress of this worker.
    """

    __slots__ = ("busy", "calls", "phase", "step")

    def __init__(self) -> None:
        self.calls = 0
        self.phase = "starting"
        self.step = 0
        self.busy = 0

    def sample(self) -> tuple[int, str, int, bool]:
        """All of it, for comparing and sending."""
        return self.calls, self.phase, self.step, self.busy > 0

    @contextlib.contextmanager
    def in_phase(self, phase: str, busy: bool | None = None) -> Iterator[None]:
        """Sets the phase inside `with`, and the one before after it.

        Args:
          phase: What the worker is doing.
          busy: Whether that may take long; None: if it is starting or compiling.
        """
        before = self.phase
        more = int(phase.startswith(_LONG) if busy is None else busy)
        self.phase = phase
        self.busy += more
        try:
            yield
        finally:
            self.phase = before
            self.busy -= more
