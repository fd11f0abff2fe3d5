"""Reading ahead: a thread makes the next items while the user works on this one.

The thread knows the queues and the function that makes items, and not who reads them: a reader that
nobody holds any more is collected, and the thread ends.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any

from replicax._jax_internals import thread_settings, with_thread_settings

_END = object()
_CLOSING_TIME = 5.0  # seconds for an item in the making; a user's function may take longer


class _Failure:
    def __init__(self, error: BaseException):
        self.error = error


class _Work:
    """What the thread works on."""

    def __init__(self, make: Callable[[], Any], ahead: int, close: Callable[[], None]):
        self.settings = thread_settings()  # such as `with jax.enable_x64(True)`, of who started it
        self.make = make
        self.close = close
        self.stopped = False
        # Both queues are C code that hands over in a microsecond; a condition takes twenty.
        self.items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.permits: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(ahead):
            self.permits.put(None)

    def run(self) -> None:
        try:
            with with_thread_settings(self.settings):
                while True:
                    self.permits.get()
                    if self.stopped:
                        return
                    self.items.put((self.make(),))
        except StopIteration:
            pass
        except BaseException as error:
            self.items.put(_Failure(error))
        finally:
            try:
                self.close()
            except BaseException as error:
                self.items.put(_Failure(error))
            self.items.put(_END)

    def stop(self, thread: threading.Thread) -> None:
        self.stopped = True
        self.permits.put(None)
        if thread is not threading.current_thread():
            thread.join(_CLOSING_TIME)


class Ahead:
    """The items that `make` returns until it raises StopIteration, up to `ahead` of them early.

    Args:
      make: returns the next item. It runs in the thread.
      ahead: how many items may wait.
      close: called in the thread when it ends.
      name: of the thread.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        ahead: int,
        close: Callable[[], None] = lambda: None,
        name: str = "rx.data.ahead",
    ):
        self._work = _Work(make, ahead, close)
        self._thread = threading.Thread(target=self._work.run, name=name, daemon=True)
        self._ended = False
        # Also at the end of the program: a thread that is in JAX then would crash the interpreter.
        self._finalizer = weakref.finalize(self, self._work.stop, self._thread)
        self._thread.start()

    def get(self) -> Any:
        """The next item; raises what `make` raised."""
        if self._ended:
            raise StopIteration
        item = self._next()
        if type(item) is tuple:
            self._work.permits.put(None)
            return item[0]
        self._ended = True
        self.close()
        if isinstance(item, _Failure):
            raise item.error
        raise StopIteration

    def _next(self) -> Any:
        while True:
            try:
                return self._work.items.get(timeout=5.0)
            except queue.Empty:
                if not self._thread.is_alive() and self._work.items.empty():
                    raise RuntimeError(
                        "The thread that reads the data set ahead has ended without a word. Was "
                        "the process forked after the iterator was made? Make the iterator in "
                        "the process that uses it."
                    ) from None

    def close(self) -> None:
        """Ends the thread."""
        self._ended = True
        self._finalizer()
