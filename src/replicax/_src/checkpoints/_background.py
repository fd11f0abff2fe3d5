"""Writing in the background: one save at a time, and no failure is lost."""

from __future__ import annotations

import atexit
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from typing import final


@final
class Background:
    """Runs one task at a time in a thread of its own; `wait` raises its error."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        _all.add(self)

    def start(self, task: Callable[[], object], name: str) -> None:
        """Starts a task; the one before must have been waited for."""
        thread = threading.Thread(target=self._run, args=(task,), name=name, daemon=False)
        thread.start()
        self._thread = thread  # now others may wait for it

    def _run(self, task: Callable[[], object]) -> None:
        try:
            task()
        except BaseException as error:
            self._error = error

    def finish(self) -> None:
        """Returns when nothing runs any more; its error is kept for `wait`."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def wait(self) -> None:
        """Returns when nothing runs any more; raises the error of what ran."""
        if self._thread is threading.current_thread():
            return
        self.finish()
        self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error


_all: weakref.WeakSet[Background] = weakref.WeakSet()


def finish_all() -> None:
    """Returns when this process writes nothing: what was saved can be found then."""
    for each in list(_all):
        each.finish()


@atexit.register
def _report_at_exit() -> None:
    """Python waits for the threads first. An error that nobody has asked for is shown."""
    for each in list(_all):
        try:
            each.wait()
        except BaseException as error:
            print("A checkpoint could not be saved in the background:", file=sys.stderr)
            traceback.print_exception(error)
