"""What a server does beside its calls: writing its values to files, and reading them."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any, final


@final
class _Running:
    """A function on a thread of its own."""

    def __init__(self, work: Callable[[], Any]):
        self.value: Any = None
        self.error: Exception | None = None
        self._work: Callable[[], Any] | None = work
        self.thread = threading.Thread(target=self._run, name="rx.task", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        assert self._work is not None
        try:
            self.value = self._work()
        except Exception as error:
            self.error = _sendable(error)
        self._work = None  # and with it the values


@final
class Tasks:
    """The functions of one server, by token."""

    def __init__(self) -> None:
        self._running: dict[str, _Running] = {}

    def start(self, token: str, work: Callable[[], Any]) -> None:
        """Lets a function run."""
        self._running[token] = _Running(work)

    def outcome(self, token: str) -> tuple[Any, Exception | None] | None:
        """Returns the result and the error; None while it runs. `KeyError` if it is not known."""
        found = self._running[token]
        return None if found.thread.is_alive() else (found.value, found.error)

    def end(self, token: str) -> None:
        """Forgets a function, and its result."""
        self._running.pop(token, None)


def _sendable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error.with_traceback(None)
