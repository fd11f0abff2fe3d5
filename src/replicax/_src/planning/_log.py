"""The plans that were made, for who asks for all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from replicax._src.planning._plan import Plan

_logs: list[list[Plan]] = []


@contextlib.contextmanager
def recording() -> Iterator[list[Plan]]:
    """Yields a list to which every plan made inside the block is added."""
    log: list[Plan] = []
    _logs.append(log)
    try:
        yield log
    finally:
        _logs.remove(log)


def note(plan: Plan) -> None:
    """Adds a plan that was just made."""
    for log in _logs:
        log.append(plan)
