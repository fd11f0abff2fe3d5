"""What was planned, for who asks for all of it: the command `replicax plan`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import final

from replicax._src.planning._plan import Plan

_CALLS, _SECONDS = 1000, 20.0  # without anything new, before a program is left


class NothingNew(BaseException):
    """Internal: a program that is only followed has called the same functions for long enough.

    A BaseException, so that a user's `except Exception` does not catch it.
    """


@final
class Log:
    """What was planned inside of a `recording()`.

    Attributes:
      plans: of functions, in the order of their first calls.
      batch: how many rows the largest batch of a data set had, in all replicas.
    """

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.batch = 0
        self._postponed: dict[str, Callable[[], Plan]] = {}
        self._calls = 0
        self._since = time.monotonic()

    def add(self, plan: Plan) -> None:
        self.plans.append(plan)
        self._postponed.pop(plan.name, None)
        self._calls, self._since = 0, time.monotonic()

    def postpone(self, name: str, make: Callable[[], Plan]) -> None:
        self._postponed.setdefault(name, make)

    def finish(self) -> None:
        """Makes the plans of functions that were called once, when they made their variables."""
        for make in list(self._postponed.values()):
            make()

    def count_call(self) -> None:
        self._calls += 1
        if self._calls > _CALLS and time.monotonic() - self._since > _SECONDS:
            raise NothingNew


_logs: list[Log] = []


@contextlib.contextmanager
def recording() -> Iterator[Log]:
    """Yields a log to which every plan made inside the block is added."""
    log = Log()
    _logs.append(log)
    try:
        yield log
    finally:
        _logs.remove(log)


def note(plan: Plan) -> None:
    """Adds a plan that was just made."""
    for log in _logs:
        log.add(plan)


def note_call() -> None:
    """Counts the call of a function whose plan is made."""
    for log in _logs:
        log.count_call()


def note_batch(rows: int) -> None:
    """Notes how many rows a batch has."""
    for log in _logs:
        log.batch = max(log.batch, rows)


def postpone(name: str, make: Callable[[], Plan]) -> None:
    """Leaves a plan for later: the next call of the function is of another program."""
    for log in _logs:
        log.postpone(name, make)
