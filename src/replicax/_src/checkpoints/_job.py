"""The workers that save and restore together: the cluster's membership, or this process alone.

`exchange` is what all of it rests on: every worker gives something and gets what all gave, in the
order of the workers. It must be called by all of them, with the same topic.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Callable
from typing import Any, Protocol, final

from replicax._src._errors import CheckpointError
from replicax._src.cluster import current_membership


class Job(Protocol):
    """This worker among the others."""

    worker: int
    workers: int

    def exchange(self, topic: str, payload: object, timeout: float | None = None) -> list[Any]:
        """Returns what each worker gave, in their order: `payload`, of numbers, texts, lists."""
        ...

    def phase(self, phase: str, busy: bool | None = None) -> contextlib.AbstractContextManager[Any]:
        """Reports to the watchdog what this worker is doing; `busy`, if that may take long."""
        ...


@final
class OneWorker:
    """A job of this process alone."""

    worker = 0
    workers = 1

    def exchange(self, topic: str, payload: object, timeout: float | None = None) -> list[Any]:
        return [payload]

    def phase(self, phase: str, busy: bool | None = None) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()


ALONE = OneWorker()
_source: Callable[[], Job | None] = current_membership  # tests put another one here
_counters: weakref.WeakKeyDictionary[Job, Any] = weakref.WeakKeyDictionary()  # of meetings


def current_job() -> Job:
    """Returns the job that this process belongs to."""
    return _source() or ALONE


def topic(job: Job) -> str:
    """Returns a name for one meeting: the same on all workers that call the same things in order.

    A name of its own for each, because saves of two managers may be under way at once.
    """
    return f"checkpoint {next(_counters.setdefault(job, itertools.count()))}"


def told_by_first(job: Job, what: str, find: Callable[[], Any]) -> Any:
    """Returns what the first worker finds; its error is raised on all."""
    value, error = None, None
    if job.worker == 0:
        try:
            value = find()
        except Exception as failure:
            error = failure
    told = None if error is None else f"{type(error).__name__}: {error}"
    value, told = job.exchange(f"{topic(job)}-{what}", [value, told])[0]
    if error is not None:
        raise error
    if told is not None:
        raise CheckpointError(f"Worker 0 failed: {told}")
    return value
