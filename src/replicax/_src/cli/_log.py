"""One combined log: whole lines of all workers, each with its worker in front; a status line below.

A thread writes, so that a reader who does not keep up (a pager) never keeps the launcher from
noticing a dead worker. Lines are handed over whole, so they are never torn or mixed.
"""

import contextlib
import errno
import os
import select
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TextIO, final

Paint = Callable[[str, str], str]
"""Puts a colour (an ANSI code) around a text."""

# Told apart on dark and on light backgrounds; the launcher's own lines are bold.
_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
_ERASE = b"\r\x1b[K"
# A line without an end is handed out after so many bytes, and a progress bar (`\r`) so often.
_LONGEST_LINE = 1 << 20
_PROGRESS_BAR_SECONDS = 5.0
# With more than this waiting to be written, workers are made to wait, as with any full pipe.
_MOST_WAITING = 8 << 20


def colours_wanted(descriptor: int) -> bool:
    """Returns whether to colour what goes to a file (https://no-color.org, force-color.org)."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return os.environ["FORCE_COLOR"] not in ("0", "false")
    return os.isatty(descriptor) and os.environ.get("TERM") != "dumb"


def painter(out: TextIO, plainly: bool = False) -> Paint:
    """Returns what colours text that is printed to `out`, or leaves it as it is."""
    try:
        coloured = not plainly and colours_wanted(out.fileno())
    except (OSError, ValueError):  # not a file: a string in a test
        coloured = False
    return lambda code, text: f"\x1b[{code}m{text}\x1b[0m" if coloured else text


@final
class Lines:
    """Cuts a stream of bytes into whole lines."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._last_bar = time.monotonic()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yields the lines that `data` completes, without their ends."""
        self._rest += data
        while (end := self._rest.find(b"\n")) >= 0 or len(self._rest) > _LONGEST_LINE:
            end = end if end >= 0 else _LONGEST_LINE
            line = bytes(self._rest[:end])
            del self._rest[: end + (self._rest[end : end + 1] == b"\n")]
            yield _as_seen(line)
        yield from self._progress_bar()

    def end(self) -> Iterator[bytes]:
        """Yields what is left when the stream ends."""
        if self._rest:
            yield _as_seen(bytes(self._rest))
            self._rest.clear()

    def _progress_bar(self) -> Iterator[bytes]:
        """Yields now and then the latest state of a line that is written over and over."""
        if b"\r" not in self._rest:
            return
        before, _, last = bytes(self._rest).rpartition(b"\r")
        shown = last or before.rpartition(b"\r")[2]
        self._rest[:] = last or shown + b"\r"  # what was written over is not needed any more
        if shown and time.monotonic() - self._last_bar >= _PROGRESS_BAR_SECONDS:
            self._last_bar = time.monotonic()
            yield shown


def _as_seen(line: bytes) -> bytes:
    """Returns what a terminal would show of a line with carriage returns in it."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


@final
class WorkerFiles:
    """A file for the lines of each worker, `worker-0.log` and so on, in a folder."""

    def __init__(self, folder: str) -> None:
        """Makes the folder, or raises `OSError`. What is in its files already stays there."""
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._open: dict[int, BinaryIO] = {}

    def add(self, lines: list[tuple[int, bytes]]) -> OSError | None:
        """Appends lines to the files of their workers; returns why they could not be written."""
        error = None
        for rank, line in lines:
            try:
                if rank not in self._open:
                    self._open[rank] = open(self._folder / f"worker-{rank}.log", "ab")
                self._open[rank].write(line)
            except OSError as reason:
                error = reason
        for file in self._open.values():
            try:
                file.flush()
            except OSError as reason:
                error = reason
        return error

    def close(self) -> None:
        """Closes the files."""
        for file in self._open.values():
            with contextlib.suppress(OSError):
                file.close()


@final
class Log:
    """Writes the combined log to a file descriptor, and on a terminal the status line below it.

    Args:
      descriptor: of an open file; that of standard output by default.
      files: where the lines of each worker go as well.
    """

    def __init__(self, descriptor: int | None = None, files: WorkerFiles | None = None) -> None:
        if descriptor is None:
            out: TextIO = sys.stdout
            out.flush()
            descriptor = out.fileno()
        self._descriptor = descriptor
        self._files = files
        self._for_files: list[tuple[int, bytes]] = []
        self._colours = colours_wanted(self._descriptor)
        self.has_status = os.isatty(self._descriptor) and os.environ.get("TERM") != "dumb"
        self._changed = threading.Condition()
        self._waiting: list[bytes] = []
        self._size = 0
        self._status = b""
        self._shown = b""
        self._closed = False
        self.reader_is_gone = False
        self._thread = threading.Thread(target=self._write_all, name="replicax-log", daemon=True)
        self._thread.start()

    @property
    def full(self) -> bool:
        """Whether so much waits to be written that workers should wait too."""
        return self._size > _MOST_WAITING

    def wait_for_room(self, seconds: float) -> None:
        """Waits until workers need not wait any more, for a while at most."""
        if self.full:
            with self._changed:
                self._changed.wait_for(lambda: not self.full, seconds)

    def worker(self, rank: int, line: bytes) -> None:
        """Adds a line of a worker."""
        if self._files is not None:
            with self._changed:
                self._for_files.append((rank, line + b"\n"))
        prefix = f"[worker {rank}]"
        if self._colours:
            prefix = f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m{prefix}\x1b[0m"
            if b"\x1b" in line:
                line += b"\x1b[0m"  # a colour that the worker left on ends with its line
        self._add(prefix.encode() + b" " + line + b"\n")

    def say(self, text: str) -> None:
        """Adds lines of the launcher's own."""
        prefix = "\x1b[1m[launch]\x1b[0m" if self._colours else "[launch]"
        lines = "".join(f"{prefix} {line}\n" for line in text.splitlines())
        self._add(lines.encode(errors="replace"))

    def status(self, text: str) -> None:
        """Shows a line below the log, on a terminal only; an empty one takes it away."""
        if self.has_status:
            width = shutil.get_terminal_size().columns - 1
            with self._changed:
                self._status = text[:width].encode(errors="replace")
                self._changed.notify_all()

    def close(self, timeout: float) -> None:
        """Writes what is left, for at most `timeout` seconds after the reader last took some."""
        self.status("")
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        left = -1
        while self._thread.is_alive() and self._size != left:
            left = self._size
            self._thread.join(timeout)

    def _add(self, data: bytes) -> None:
        with self._changed:
            self._waiting.append(data)
            self._size += len(data)
            self._changed.notify_all()

    def _write_all(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or self._status != self._shown or self._closed):
                    self._changed.wait()
                lines, status = self._waiting, self._status
                for_files, self._for_files = self._for_files, []
                self._waiting = []
                last = self._closed
            if self._files is not None and (error := self._files.add(for_files)) is not None:
                # A full disk must not end a training that can go on.
                self._files.close()
                self._files = None
                lines.append(
                    f"[launch] --log-dir: {error}. From here on the lines of workers are only in "
                    "this log.\n".encode(errors="replace")
                )
            data = b"".join(lines)
            if self.has_status and (self._shown or status):
                data = (_ERASE if self._shown else b"") + data + status
            self._shown = status
            self._write(data)
            if last:
                if self._files is not None:
                    self._files.close()
                return

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            # After the reader has gone there is nobody to write to, but the job may go on.
            written = len(view) if self.reader_is_gone else self._write_some(view[:65536])
            view = view[written:]
            with self._changed:
                self._size = max(0, self._size - written)
                self._changed.notify_all()

    def _write_some(self, view: memoryview) -> int:
        try:
            return os.write(self._descriptor, view)
        except BlockingIOError:
            select.select([], [self._descriptor], [])
            return 0
        except OSError as error:
            # A pipe without a reader ends the job (as with any program); a closed terminal,
            # or a full disk below a log file, must not end a training that can go on.
            self.reader_is_gone = error.errno == errno.EPIPE
            return len(view)
