"""`LoopThread`: an asyncio loop in a thread of its own, for the message loop and the relay."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, final


@final
class LoopThread:
    """Runs a coroutine in a daemon thread until it is stopped.

    An exception in a callback is printed, and the loop goes on: everybody else counts on it.

    Args:
      name: The name of the thread.
      serve: Makes the coroutine. It is cancelled at the end, as are all tasks that it has started.
    """

    def __init__(self, name: str, serve: Callable[[], Coroutine[Any, Any, None]]) -> None:
        # Not `new_event_loop`: the program may have chosen another kind for its own loops.
        self.loop = asyncio.SelectorEventLoop()
        self.loop.set_exception_handler(_print_exception)
        self._serve = serve
        self._serving: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._serving = self.loop.create_task(self._serve())
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether the thread has been started and has not ended."""
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller is in this thread."""
        return threading.current_thread() is self._thread

    def call(self, function: Callable[[], object]) -> None:
        """Runs a function in the thread, soon; from any thread. After the end, it does nothing."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(function)

    def stop(self, timeout: float = 5.0) -> None:
        """Ends the coroutine and the thread, and waits for that, unless it is called in there."""
        if self._serving is None:
            self.loop.close()
            return
        self.call(self._stopping.set)
        if not self.is_current:
            self._thread.join(timeout)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._stopping.wait())


def _print_exception(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if error is None:
        print(context["message"], file=sys.stderr)
    else:
        traceback.print_exception(error, file=sys.stderr)
