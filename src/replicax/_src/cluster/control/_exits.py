"""How a worker's process ends: the hooks that notice it, and the quick way out.

JAX's own way out is a barrier in `atexit` that waits minutes for workers that will not come. So a
worker that fails, or leaves because another has failed, ends with `os._exit` before that. A worker
that has finished passes our own barrier, and then JAX's, which is quick because all are there.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, final

from replicax._src._errors import WorkerLostError

# What JAX raises when the other end of a collective is gone, among other things: by its type, or,
# because some of it comes as a ValueError, by its words.
_ECHO_TYPES = ("JaxRuntimeError", "XlaRuntimeError")
_ECHO_WORDS = re.compile(
    r"gloo|nccl|coordination service|connection (reset|closed|refused)|socket closed|unavailable:",
    re.IGNORECASE,
)
# How long the rest of a failing program (its atexit functions, its threads) may take.
_LAST_WORDS_SECONDS = 5.0
INTERRUPTED_STATUS = 128 + signal.SIGINT


class Exit(SystemExit):
    """What `sys.exit` raises in a worker: a SystemExit that notices when it ends the program.

    An atexit function is not told the exit status. The interpreter reads `code` just before it
    runs them, and it is the only reader that has no Python frame behind it.
    """

    status = 0
    where = ""

    @property
    def code(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As in SystemExit."""
        code = SystemExit.__dict__["code"].__get__(self)
        try:
            sys._getframe(1)
        except ValueError:
            Exit.status = code if isinstance(code, int) else int(code is not None)
            Exit.where = "".join(traceback.format_tb(self.__traceback__))
        return code


def raise_exit(status: object = None, /) -> None:
    """Replaces `sys.exit` in a worker."""
    if threading.current_thread() is not threading.main_thread():
        raise SystemExit(status)  # ends a thread without a word; a subclass would be printed
    raise Exit(status)


@final
class ExitHooks:
    """Installs the hooks of a worker.

    Args:
      on_exception: Called with the exception that ends the program, before it is printed; returns
        whether to print it.
      on_failed: Called after it was printed.
      on_exit: Called at the end of the program, after all atexit functions that were registered
        later than these hooks, and before all that were registered earlier.
    """

    def __init__(
        self,
        on_exception: Callable[[BaseException], bool],
        on_failed: Callable[[BaseException], None],
        on_exit: Callable[[], None],
    ) -> None:
        self._on_exception = on_exception
        self._on_failed = on_failed
        self._on_exit = on_exit
        self._pid = os.getpid()
        self._hook_before: Callable[..., Any] = sys.excepthook
        self._exit_before: Callable[..., Any] = sys.exit

    def install(self) -> None:
        """Notices the end of this program from now on."""
        self._hook_before, self._exit_before = sys.excepthook, sys.exit
        sys.excepthook = self._excepthook
        sys.exit = raise_exit  # pyright: ignore[reportAttributeAccessIssue]
        atexit.register(self._atexit)

    def remove(self) -> None:
        """Puts back what was there."""
        if sys.excepthook == self._excepthook:
            sys.excepthook = self._hook_before
        if sys.exit is raise_exit:
            sys.exit = self._exit_before
        atexit.unregister(self._atexit)

    def missed(self) -> BaseException | None:
        """Returns the exception that ends the program, if another hook has replaced ours."""
        if sys.excepthook == self._excepthook or hasattr(sys, "ps1"):
            return None
        found = getattr(sys, "last_value", None)  # the interpreter sets it before it calls a hook
        return found if isinstance(found, BaseException) else None

    def _excepthook(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if os.getpid() != self._pid:  # a forked child is no worker
            self._hook_before(kind, error, trace)
            return
        if self._on_exception(error):
            self._hook_before(kind, error, trace)
            flush()
        self._on_failed(error)

    def _atexit(self) -> None:
        if os.getpid() == self._pid:
            self._on_exit()


def is_echo(error: BaseException) -> bool:
    """Returns whether an exception may only be the sound of another worker's end."""
    seen = 0
    each: BaseException | None = error
    while each is not None and seen < 10:
        if isinstance(each, WorkerLostError) or type(each).__name__ in _ECHO_TYPES:
            return True
        if isinstance(each, (ValueError, RuntimeError)) and _ECHO_WORDS.search(text_of(each)):
            return True
        each = each.__cause__ or each.__context__
        seen += 1
    return False


def text_of(error: BaseException) -> str:
    """Returns `str(error)`, also of an exception that cannot tell what it is."""
    try:
        return str(error)
    except Exception:
        return "<exception str() failed>"


def status_of(error: BaseException) -> int:
    """Returns the exit status of a program that an exception ends."""
    return INTERRUPTED_STATUS if isinstance(error, KeyboardInterrupt) else 1


def say(line: str) -> None:
    """Writes a line on standard error, in one piece: other workers may write to the same place."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"replicax: {line}\n")
        sys.stderr.flush()


def flush() -> None:
    """Writes out what was printed, for a moment only: a reader may have stopped to read."""

    def both() -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()

    flusher = threading.Thread(target=both, name="replicax-flush", daemon=True)
    try:
        flusher.start()
    except RuntimeError:  # Python 3.12 starts no threads at its end
        both()
    else:
        flusher.join(0.3)


def quit_now(status: int) -> None:
    """Ends the process here: no atexit functions, no barriers."""
    flush()
    if status == INTERRUPTED_STATUS:  # as Python ends after Ctrl-C, so that shells understand it
        with contextlib.suppress(ValueError, OSError):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
    os._exit(status if 0 <= status < 256 else 1)


def quit_later(status: int) -> None:
    """Ends the process after a while, if it has not ended by itself."""

    timer = threading.Timer(_LAST_WORDS_SECONDS, os._exit, [status if 0 <= status < 256 else 1])
    timer.daemon = True
    with contextlib.suppress(RuntimeError):
        timer.start()
