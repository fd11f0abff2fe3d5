"""Whether this process replays a capsule: then recorders record nothing, and hand over to it."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Protocol, final

from replicax._src.checkpoints import Checkpoint
from replicax._src.functions import Function
from replicax._src.recording._probe import Probe


class Replaying(Protocol):
    """Who replays."""

    def take_over(
        self, checkpoint: Checkpoint, function: Function[..., object], probe: Probe
    ) -> None:
        """Called where a program begins to record a function."""
        ...


@final
class _Nobody:
    """Takes recorders over, and does nothing."""

    def take_over(
        self, checkpoint: Checkpoint, function: Function[..., object], probe: Probe
    ) -> None:
        pass


def without_recording() -> contextlib.AbstractContextManager[None]:
    """Inside the block, recorders that are made record nothing."""
    return replaying(_Nobody())


_current: list[Replaying] = []


def replaying_now() -> Replaying | None:
    """Returns who replays in this process; None if nobody does."""
    return _current[-1] if _current else None


@contextlib.contextmanager
def replaying(who: Replaying) -> Generator[None]:
    """Inside the block, a function that would be recorded is handed over instead."""
    _current.append(who)
    try:
        yield
    finally:
        _current.pop()
