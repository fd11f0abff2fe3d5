"""Reading ahead: a thread makes the next items while the user works on this one.

To hand an item over takes two threads some ten microseconds. Items that are made in little more are
made by who asks for them, if nobody minds, and some at once: each is quicker right after another.

The thread knows the queues and the function that makes items, and not who reads them: a reader that
is no longer referenced is collected, and the thread ends.
"""

from __future__ import annotations

import collections
import enum
import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, final

from replicax._src._jax_internals import thread_settings, trace_settings, with_thread_settings

_END = object()
_CLOSING_TIME = 5.0  # seconds for an item in the making; a user's function may take longer
_QUICK = 1e-4  # seconds of work
_PAUSES = 10  # times as long by the clock: threads may wait for each other, but not for a disk
_MANY_QUICK = 8  # in a row; and as many are then made at once
_MANY_SLOW = 3  # times in a row; one may have met a busy processor


class Failed:
    """In the place of an item that could not be made."""

    def __init__(self, error: BaseException):
        self.error = error


@final
class _Raised(Failed):
    """What `make` raised."""


@final
class _After(enum.Enum):
    """What becomes of the thread after an item."""

    GOES_ON = enum.auto()
    FAILED = enum.auto()
    """It has ended; who asks for the next item starts it again."""
    TOO_QUICK = enum.auto()
    """It has ended; who asks for the next item makes it."""


def _nothing() -> None:
    pass


def _now() -> tuple[float, float]:
    """Returns the time, and how long this thread has worked."""
    return time.perf_counter(), time.thread_time()


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
        quick: float,
    ):
        self._settings = thread_settings()  # such as `with jax.enable_x64(True)`, of who started it
        self.trace_settings = trace_settings()
        self.make = make
        self.quick = quick
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
                quick, after = 0, _After.GOES_ON
                while after is _After.GOES_ON:
                    self.permits.get()
                    if self._stopped:
                        return
                    begin = _now()
                    item = self.make()
                    quick = quick + 1 if self.was_quick(begin) else 0
                    if isinstance(item, Failed):
                        after = _After.FAILED
                    elif quick == _MANY_QUICK:
                        after = _After.TOO_QUICK
                    self.items.put((item, after))
                    del item
        except StopIteration:
            self.items.put((_END, _After.FAILED))
        except BaseException as error:
            self.items.put((_Raised(error), _After.FAILED))
        finally:
            if self._stopped:
                self._close_once()

    def was_quick(self, begin: tuple[float, float], items: int = 1) -> bool:
        """Returns whether so many items were made quickly since a time of `_now`."""
        clock, work = _now()
        most = items * self.quick
        return work - begin[1] < most and clock - begin[0] < _PAUSES * most

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
      may_rest: whether the thread may end while items are made quickly, and `get` make them.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        ahead: int,
        close: Callable[[], None] = _nothing,
        name: str = "rx.data.ahead",
        interrupt: Callable[[], None] = _nothing,
        may_rest: bool = False,
    ):
        self._work = _Work(make, ahead, close, name, interrupt, _QUICK if may_rest else 0)
        self._after = _After.GOES_ON
        self._made: collections.deque[Any] = collections.deque()
        self._slow = 0  # times in a row
        self._ended = False
        # Also at the end of the program: a thread that is in JAX then would crash the interpreter.
        self._finalizer = weakref.finalize(self, self._work.stop)

    def get(self) -> Any:
        """Returns the next item; raises what `make` raised."""
        if self._ended:
            raise StopIteration
        if not self._made:
            self._get_some()
        item = self._made.popleft()
        if item is _END:
            self.close()
            raise StopIteration
        if isinstance(item, _Raised):
            raise item.error
        return item

    def _get_some(self) -> None:
        """Gets an item from the thread, or makes some."""
        if self._after is _After.TOO_QUICK and trace_settings() == self._work.trace_settings:
            self._make_some()
            return
        if self._after is not _After.GOES_ON:
            self._start_again()
        item, self._after = self._next()
        self._work.permits.put(None)
        self._made.append(item)

    def _make_some(self) -> None:
        """Makes items that the thread need not make, as the last ones were quick."""
        work, made, begin = self._work, self._made, _now()
        end = begin[0] + 2 * work.quick
        try:
            made.append(work.make())
            while len(made) < _MANY_QUICK and time.perf_counter() < end:
                made.append(work.make())
        except StopIteration:
            made.append(_END)
        except Exception as error:
            made.append(_Raised(error))
        else:
            self._slow = 0 if work.was_quick(begin, len(made)) else self._slow + 1
            if self._slow == _MANY_SLOW:
                self._start_again()

    def _start_again(self) -> None:
        self._after, self._slow = _After.GOES_ON, 0
        self._work.start()

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
