"""`SummaryWriter`: where summaries go; which writer is the default one, and whether it records.

Names and meaning are those of `tf.summary`. Default writer, step and condition are context
variables, so that replica threads have those of the caller of `strategy.run`.

The file is written by tensorboardX, which needs no TensorFlow. Of it, only what encodes summaries
and writes records is used: its own `SummaryWriter` writes in a thread behind a queue, and its
`flush` does not wait for that.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple, SupportsInt

import jax

from replicax._src._local_path import absolute_path, is_address, naming
from replicax._src._typing import Tracer
from replicax._src.context import world
from replicax._src.watching._held_values import speaks_for_the_job

_numbers = itertools.count()  # of files


def tensorboardx() -> Any:
    """Returns the package, or raises an error that says how to get it."""
    try:
        import tensorboardX
        import tensorboardX.event_file_writer
        import tensorboardX.summary
    except ImportError as error:
        raise ImportError(
            "rx.summary needs the package `tensorboardX`, which is not installed. Run "
            '`pip install "replicax[tensorboard]"`.'
        ) from error
    return tensorboardX


class Default(NamedTuple):
    """What summaries are written with unless they say otherwise."""

    writer: SummaryWriter | None
    step: SupportsInt | None


_NONE = Default(None, None)
default: ContextVar[Default] = ContextVar("summaries", default=_NONE)
_condition: ContextVar[bool | Callable[[], Any]] = ContextVar("record_if", default=True)


class _Kept(NamedTuple):
    """A summary that is not in the file yet, because its value may not be computed yet."""

    make: Callable[[], Any]
    step: Callable[[], int]
    wall_time: float


class SummaryWriter:
    """Writes summaries for TensorBoard; made by `rx.summary.create_file_writer`.

    Every worker of a job may make one and use it in the same way. The first worker writes, into one
    file; the others do nothing.
    """

    def __init__(self, logdir: str | None, max_queue: int, flush_millis: int, suffix: str) -> None:
        self._logdir = logdir
        self._max_queue = max_queue
        self._flush_seconds = flush_millis / 1000
        self._suffix = suffix
        self._file: Any = None  # `EventsWriter` of tensorboardX, from the first summary on
        self._kept: list[_Kept] = []
        self._flushed = time.monotonic()
        self._closed = False
        self._expects_programs = False
        self._failure: Exception | None = None  # the first of a compiled program, not raised yet
        self._lock = threading.RLock()

    @property
    def logdir(self) -> str | None:
        """The folder; None for a writer that does nothing."""
        return self._logdir

    @contextlib.contextmanager
    def as_default(self, step: SupportsInt | None = None) -> Iterator[SummaryWriter]:
        """Context manager: summaries go to this writer, with this step unless they name another.

        Args:
          step: a number, or a variable, which is read for each summary.
        """
        token = default.set(self._as_default(step))
        try:
            yield self
        finally:
            default.reset(token)

    def set_as_default(self, step: SupportsInt | None = None) -> None:
        """Makes it the default writer, until another one becomes that."""
        default.set(self._as_default(step))

    def _as_default(self, step: SupportsInt | None) -> Default:
        self._check_open()
        return Default(self, default.get().step if step is None else step)

    def init(self) -> None:
        """Does nothing: the file is made with the first summary."""

    def expect_programs(self) -> None:
        """Notes that compiled programs hand over summaries: they are waited for at the end."""
        self._expects_programs = True

    def _await_programs(self) -> None:
        """Waits until programs that run have handed over theirs. Not under the lock."""
        if self._expects_programs:
            jax.effects_barrier()
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure

    def not_written(self, call: str, error: Exception) -> None:
        """Takes the error of a summary of a compiled program, which `flush` or `close` raises."""
        if self._failure is None:
            self._failure = error
            print(f"replicax: {call} was not written: {error}", file=sys.stderr, flush=True)

    def flush(self) -> None:
        """Brings all summaries onto the disk; waits for their values."""
        self._await_programs()
        self._flush()

    def _flush(self) -> None:
        with self._lock:
            if self._closed:  # then it is all there
                return
            self._write_kept()
            if self._file is not None:
                with naming(self._logdir or ""):
                    self._file.flush()
            self._flushed = time.monotonic()

    def close(self) -> None:
        """Writes what is left and ends the file. It can be called again."""
        self._await_programs()
        with self._lock:
            if self._closed:
                return
            try:
                self._write_kept()
            finally:
                self._closed = True
                if self._file is not None:
                    atexit.unregister(self.close)
                    self._file.close()

    def add(self, make: Callable[[], Any], step: Callable[[], int]) -> None:
        """Takes a summary, which `make` makes of its value, and waits for it if need be."""
        with self._lock:
            self._check_open()
            if self._logdir is None or not speaks_for_the_job():
                return
            if self._file is None:  # only now is it known for certain which worker this is
                if not is_address(self._logdir):
                    os.makedirs(self._logdir, exist_ok=True)
                # The name has the second in it: a second writer of that second would overwrite it.
                unique = f".{os.getpid()}.{next(_numbers)}{self._suffix}"
                path = os.path.join(self._logdir, "events")
                self._file = tensorboardx().event_file_writer.EventsWriter(path, unique)
                atexit.register(self.close)
            self._kept.append(_Kept(make, step, time.time()))
            if time.monotonic() - self._flushed >= self._flush_seconds:
                self._flush()  # in a program's thread too, where nothing waits for programs
            elif len(self._kept) > self._max_queue:
                self._write_kept()

    def _write_kept(self) -> None:
        while self._kept:
            make, step, wall_time = self._kept.pop(0)  # if it fails, the others can be written
            event = tensorboardx().event_file_writer.event_pb2.Event
            made = event(summary=make(), step=step(), wall_time=wall_time)
            with naming(self._logdir or ""):
                self._file.write_event(made)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(
                f"The summary writer of {self._logdir} is closed. Close it after the last summary, "
                "or make another one with rx.summary.create_file_writer."
            )

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return f"<SummaryWriter of {self._logdir}{state}>"


def create_file_writer(
    logdir: str | os.PathLike[str],
    max_queue: int | None = None,
    flush_millis: int | None = None,
    filename_suffix: str | None = None,
    name: str | None = None,
) -> SummaryWriter:
    """Returns a writer of summaries into a folder, which TensorBoard shows.

    Needs the package tensorboardX: `pip install "replicax[tensorboard]"`.

    Args:
      logdir: the folder; it is made with the first summary.
      max_queue: how many summaries are kept until they are written. Their values are not waited for
        before that, so that the devices go on. By default 10.
      flush_millis: at most so much time passes between two summaries until all are on the disk.
        By default 120000, two minutes.
      filename_suffix: the end of the file's name; by default ".v2".
      name: not used; as in TensorFlow.
    """
    del name
    world().refuse_in_program(
        lambda: RuntimeError(
            "rx.summary.create_file_writer was called inside an rx.function, which is compiled. "
            "Make the writer before, and write what the function returns."
        )
    )
    folder = os.fspath(logdir)
    if not isinstance(folder, str) or not folder:
        raise ValueError(
            f"rx.summary.create_file_writer: `logdir` must be a folder; got {logdir!r}."
        )
    if not is_address(folder):  # tensorboardX writes to some of them
        folder = absolute_path(folder, "logdir")
    for place in (Path(folder), *Path(folder).parents):
        if place.exists():
            if not place.is_dir():
                raise NotADirectoryError(
                    f"rx.summary.create_file_writer: {place} is a file; `logdir` must be a folder."
                )
            break
    for argument, number in {"max_queue": max_queue, "flush_millis": flush_millis}.items():
        if number is not None and (not isinstance(number, int) or number < 0):
            raise ValueError(
                f"rx.summary.create_file_writer: `{argument}` must be a whole number and "
                f"not negative; got {number!r}."
            )
    tensorboardx()  # better now than in the first step
    return SummaryWriter(
        folder,
        10 if max_queue is None else max_queue,
        120_000 if flush_millis is None else flush_millis,
        ".v2" if filename_suffix is None else filename_suffix,
    )


def create_noop_writer() -> SummaryWriter:
    """Returns a writer that writes nothing, for where a program must have one."""
    return SummaryWriter(None, 0, 0, "")


@contextlib.contextmanager
def record_if(condition: bool | Callable[[], Any]) -> Iterator[None]:
    """Context manager: summaries are written only if `condition` is true, or returns true.

    >>> import replicax as rx
    >>> with rx.summary.record_if(False):
    ...     rx.summary.should_record_summaries()
    False
    """
    token = _condition.set(condition)
    try:
        yield
    finally:
        _condition.reset(token)


def should_record_summaries() -> bool:
    """Returns whether there is a default writer, and `record_if` lets it write.

    In a compiled function the condition may be known only when it runs: then it is an array.
    """
    if default.get().writer is None:
        return False
    when = _condition.get()
    value = when() if callable(when) else when
    return value if isinstance(value, Tracer) else bool(value)  # type: ignore[return-value]
