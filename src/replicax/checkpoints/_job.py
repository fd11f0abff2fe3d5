"""The workers that save and restore together: the cluster's membership, or this process alone.

`exchange` is what all of it rests on: every worker gives something and gets what all gave, in the
order of the workers. It must be called by all of them, with the same topic.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any, Protocol

from replicax.cluster import current_membership


class Job(Protocol):
    """This worker among the others."""

    worker: int
    workers: int

    def exchange(self, topic: str, payload: Any, timeout: float | None = None) -> list[Any]:
        """What each worker gave, in their order; `payload` is made of numbers, texts, lists."""
        ...

    def phase(self, phase: str, busy: bool | None = None) -> contextlib.AbstractContextManager[Any]:
        """Tells whoever watches what this worker is doing; `busy`, if that may take long."""
        ...


class OneWorker:
    """A job of this process alone."""

    worker = 0
    workers = 1

    def exchange(self, topic: str, payload: Any, timeout: float | None = None) -> list[Any]:
        return [payload]

    def phase(self, phase: str, busy: bool | None = None) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()


_alone = OneWorker()
_source: Callable[[], Job | None] = current_membership  # tests put another one here
_counters: dict[int, Any] = {}  # how many meetings each job has had


def current_job() -> Job:
    """The job that this process belongs to."""
    return _source() or _alone


def topic(job: Job) -> str:
    """A name for one meeting; the same on all workers if they call the same things in order.

    A name of its own for each, because saves of two managers may be under way at once.
    """
    return f"checkpoint {next(_counters.setdefault(id(job), itertools.count()))}"


def told_by_first(job: Job, what: str, value: Any) -> Any:
    """What the first worker says."""
    return job.exchange(f"{topic(job)}-{what}", value if job.worker == 0 else None)[0]
