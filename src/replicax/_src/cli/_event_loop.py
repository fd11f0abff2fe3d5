"""The launcher's loop: one thread that waits for pipes, processes, sockets and signals at once.

What is registered with the selector has a function without arguments as data, which is called when
the descriptor is readable. Other threads hand over work with `call_soon`.
"""

import collections
import contextlib
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, final

_ENDING_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
# Never sleep longer than this: the status line is redrawn, and where the end of a process cannot
# wake the loop, it is noticed.
_LONGEST_WAIT = 0.25


@final
class EventLoop:
    """Waits, and calls what is to be called; used as a context manager."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.told_to_end: int | None = None
        """The first signal that asked the launcher to end."""
        self.hurry = False
        """Whether Ctrl-C came again: there is nothing left to wait for."""
        self._calls: collections.deque[Callable[[], None]] = collections.deque()
        self._wake_here, self._wake_there = socket.socketpair()
        for end in (self._wake_here, self._wake_there):
            end.setblocking(False)
        self.selector.register(self._wake_here, selectors.EVENT_READ, self._drain)
        self._handlers: dict[int, Any] = {}
        self._wakeup_descriptor: int | None = None

    def __enter__(self) -> "EventLoop":
        # Only the main thread gets signals; in another, the caller ends the launch in its own way.
        if threading.current_thread() is threading.main_thread():
            self._wakeup_descriptor = signal.set_wakeup_fd(
                self._wake_there.fileno(), warn_on_full_buffer=False
            )
            for name in _ENDING_SIGNALS:
                number = getattr(signal, name, None)
                # Ignored on purpose (nohup, a background job of a shell): it stays so.
                if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                    self._handlers[number] = signal.signal(number, self._told)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if self._wakeup_descriptor is not None:
            signal.set_wakeup_fd(self._wakeup_descriptor)
        self.selector.close()
        self._wake_here.close()
        self._wake_there.close()

    def wait(self, deadline: float | None = None, often: bool = False) -> None:
        """Waits for something to happen, a short while at most, and calls what belongs to it."""
        seconds = 0.02 if often else _LONGEST_WAIT
        if deadline is not None:
            seconds = min(seconds, max(0.0, deadline - time.monotonic()))
        for key, _ in self.selector.select(seconds):
            # One of the calls before may have unregistered it.
            if key.fd in self.selector.get_map():
                key.data()
        self.run_calls()

    def run_calls(self) -> None:
        """Calls what other threads have handed over."""
        while self._calls:
            self._calls.popleft()()

    def call_soon(self, function: Callable[[], None]) -> None:
        """Has the loop call a function; from any thread."""
        self._calls.append(function)
        # Full: it wakes anyway. Closed: the launch is over.
        with contextlib.suppress(BlockingIOError, OSError):
            self._wake_there.send(b"\0")

    def _told(self, number: int, _frame: object) -> None:
        # A scheduler may repeat SIGTERM while the workers save; who repeats Ctrl-C means it.
        if number == signal.SIGINT and self.told_to_end is not None:
            self.hurry = True
        self.told_to_end = self.told_to_end or number

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_here.recv(4096):
                pass
