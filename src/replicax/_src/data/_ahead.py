"""Reading ahead: a thread makes the next items while the user works on this one.

The thread knows the queues and the function that makes items, and not who reads them: a reader that
is no longer referenced is collected, and the thread ends.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any, final

from replicax._src._jax_internals import thread_settings, with_thread_settings

_END = object()
_CLOSING_TIME = 5.0  # seconds for an item in the making; a user's function may take longer


class Failed:
    """In the place of an item that could not be made."""

    def __init__(self, error: BaseException):
        self.error = error


@final
class _Raised(Failed):
    """What `make` raised."""


def _nothing() -> None:
    pass


@final
class _Work:
    """What the thread works on."""

    def __init__(
        self,
        make: Callable[[], Any],
        ahead: int,
        close: Callable[[], None],
        name: str,
        interrupt: Callable[[], None],
    ):
        self._settings = thread_settings()  # such as `with jax.enable_x64(True)`, of who started it
        self._make = make
        self._close = close
        self._interrupt = interrupt
        self._name = name
        self._stopped = False
        self._closing = threading.Lock()
        # Both queues are C code that hands over in a microsecond; a condition takes twenty.
        self.items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.permits: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(ahead):
            self.permits.put(None)
        self.start()

    def start(self) -> None:
        self.thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            with with_thread_settings(self._settings):
                while True:
                    self.permits.get()
                    if self._stopped:
                        return
                    item = self._make()
                    self.items.put((item,))
                    if isinstance(item, Failed):
                        return  # who asks for the next one starts the thread again
                    del item
        except StopIteration:
            self.items.put(_END)
        except BaseException as error:
            self.items.put(_Raised(error))
        finally:
            if self._stopped:
                self._close_once()

    def stop(self, wait: bool = True) -> None:
        if self._stopped:
            return
        self._stopped = True
        self.permits.put(None)
        self._interrupt()
        if wait and self.thread is not threading.current_thread():
            self.thread.join(_CLOSING_TIME)
        if not self.thread.is_alive():  # or else it is in the middle of it, and closes it itself
            self._close_once()

    def _close_once(self) -> None:
        with self._closing:
            close, self._close = self._close, _nothing
        close()


@final
class ReadAhead:
    """The items that `make` returns until it raises StopIteration, up to `ahead` of them early.

    What fails ends the thread, not the items: the next request starts it again.

    Args:
      make: returns the next item, or `Failed` in its place. It runs in the thread.
      ahead: how many items may wait.
      close: called when there are no more, or nobody wants them.
      name: of the thread.
      interrupt: called when nobody wants more items, and `make` may be waiting for something.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        ahead: int,
        close: Callable[[], None] = _nothing,
        name: str = "rx.data.ahead",
        interrupt: Callable[[], None] = _nothing,
    ):
        self._work = _Work(make, ahead, close, name, interrupt)
        self._failed = self._ended = False
        # Also at the end of the program: a thread that is in JAX then would crash the interpreter.
        self._finalizer = weakref.finalize(self, self._work.stop)

    def get(self) -> Any:
        """Returns the next item; raises what `make` raised."""
        if self._ended:
            raise StopIteration
        if self._failed:
            self._failed = False
            self._work.start()
        item = self._next()
        if item is _END:
            self.close()
            raise StopIteration
        self._work.permits.put(None)
        if isinstance(item, _Raised):
            self._failed = True
            raise item.error
        self._failed = isinstance(item[0], Failed)
        return item[0]

    def _next(self) -> Any:
        while True:
            try:
                return self._work.items.get(timeout=5.0)
            except queue.Empty:
                if not self._work.thread.is_alive() and self._work.items.empty():
                    raise RuntimeError(
                        "The thread that reads the data set ahead has ended without an error. Was "
                        "the process forked after the iterator was made? Make the iterator in "
                        "the process that uses it."
                    ) from None

    def close(self, wait: bool = True) -> None:
        """Ends the thread; without waiting for it, if so told."""
        self._ended = True
        if wait:
            self._finalizer()
        elif self._finalizer.detach():
            self._work.stop(wait=False)
