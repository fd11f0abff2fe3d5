"""A value that each thread has for itself, and that a block of code may change for its length."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar, final

Value = TypeVar("Value")


@final
class ThreadValue(threading.local, Generic[Value]):
    """What a thread has in `value`; new threads start from what this is made with."""

    def __init__(self, value: Value):
        self.value = value  # called again in each thread

    @contextlib.contextmanager
    def set(self, value: Value) -> Iterator[Value]:
        """Returns a context manager in which this thread has another value."""
        before, self.value = self.value, value
        try:
            yield value
        finally:
            self.value = before
