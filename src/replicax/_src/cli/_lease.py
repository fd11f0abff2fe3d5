"""`Lease`: who leads a job, written down in a folder that all hosts see.

Each term of a leader is a file, `replicax-leader-N`. Whoever creates it leads, and a file can be
created once. The leader writes to its file every second, and so renews its lease. One that could
not for `_STOP_SECONDS` leads no more and ends its workers; the others wait for `_VACANT_SECONDS`
in which they see nothing new, before one of them creates the next file. Each of these is measured
on one host, so that clocks need not agree. Files of earlier terms stay: with one of them gone,
somebody who is late could create it again.

All that touches the folder is done by one thread, so that a file system that does not answer holds
up nobody else.
"""

import contextlib
import dataclasses
import json
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import final

from replicax._src.cli._options import Usage

_BEAT_SECONDS = 1.0
_STOP_SECONDS = 8.0
_VACANT_SECONDS = 12.0
_NAME = re.compile(r"replicax-leader-(\d{6,})")
# Written in one piece over what was there, so that no reader finds the file empty.
_SIZE = 512
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # goes on in a machine that sleeps


@final
@dataclasses.dataclass(frozen=True)
class Term:
    """What a leader has written down."""

    number: int
    node: int
    """The node whose launcher leads."""
    address: str
    """Where it listens for the others."""
    generation: int = -1
    """The last one that has started; none yet: -1."""
    restarts: int = 0
    status: int | None = None
    """Of the job, once it is over."""
    released: bool = False
    """Whether the leader has left the lead to another."""
    beat: int = 0

    def encoded(self) -> bytes:
        """Returns what to write to the file."""
        return json.dumps(dataclasses.asdict(self)).encode().ljust(_SIZE - 1) + b"\n"

    @classmethod
    def decoded(cls, number: int, data: bytes) -> "Term | None":
        """Returns what a file says; None if its leader has not yet written it, or it is damaged."""
        try:
            fields = json.loads(data)
            types = {"address": str, "released": bool, "status": int | None}
            for field in dataclasses.fields(cls):
                if not isinstance(fields[field.name], types.get(field.name, int)):
                    return None
            return cls(**fields) if fields["number"] == number else None
        except (ValueError, TypeError, KeyError):
            return None


@final
class Lease:
    """Looks at the folder all the time; holds the lease, if it was asked to and could get it.

    Args:
      folder: Which all hosts see. It is made if it is not there.
      node: The rank of this launcher.
    """

    def __init__(self, folder: str, node: int) -> None:
        self.folder = Path(folder)
        self._node = node
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            os.listdir(self.folder)
        except OSError as error:
            raise Usage(
                f"--shared-folder {folder}: {(error.strerror or str(error)).lower()}. Name a "
                "folder that the launchers of all hosts can write to."
            ) from error
        self._lock = threading.Lock()
        self._newest = (0, b"")
        self._changes = 0
        self._changed_at = self._answered_at = _now()
        self._wish: tuple[Term, bool] | None = None
        self._held: Term | None = None
        self.on_renewal: Callable[[float], None] = lambda seconds: None
        """Called in the thread: the lease is good for so many seconds from now."""
        self._file: int | None = None
        self._renewed_at = 0.0
        self._trouble = ""
        self._wake = threading.Event()
        self._written = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="replicax-lease", daemon=True)
        self._thread.start()

    # --- asked by the launcher -------------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        """Whether this launcher leads: it has the newest term, and has renewed it in time."""
        with self._lock:
            held = self._held
            if held is None or held.released or held.status is not None:
                return False
            return self._newest[0] <= held.number and _now() - self._renewed_at < _STOP_SECONDS

    @property
    def term(self) -> Term | None:
        """What the newest leader has written down; None if there is none, or nothing readable."""
        with self._lock:
            return Term.decoded(*self._newest)

    @property
    def is_vacant(self) -> bool:
        """Whether nobody leads."""
        with self._lock:
            return self._is_vacant()

    @property
    def is_alive(self) -> bool:
        """Whether somebody leads, and has written since this launcher looks."""
        with self._lock:
            return self._changes > 1 and not self._is_vacant()

    @property
    def trouble(self) -> str:
        """What is wrong with the folder, or ""."""
        silent = _now() - self._answered_at
        if silent > _STOP_SECONDS:
            return f"{self.folder} has not answered for {silent:.0f} s"
        return f"{self.folder}: {self._trouble}" if self._trouble else ""

    def claim(self, address: str, new_job: bool) -> None:
        """Asks for the next term, if nobody leads; `is_held` tells of success, soon.

        Args:
          address: Where this launcher listens.
          new_job: Whether this begins a job, and does not go on with what the last term has left.
        """
        with self._lock:
            self._wish = Term(0, self._node, address), new_job
        self._wake.set()

    def note(self, generation: int, restarts: int) -> None:
        """Writes down how far the job has come, for the launcher that leads next."""
        self._rewrite(generation=generation, restarts=restarts)

    def end(self, status: int | None) -> None:
        """Writes down with what status the job is over; None: that another launcher may lead it."""
        self._rewrite(status=status, released=status is None)

    def close(self) -> None:
        """Ends the thread, unless the file system holds it."""
        self._closing = True
        self._wake.set()
        self._thread.join(_BEAT_SECONDS)

    def _rewrite(self, **changes: int | None) -> None:
        """Has the thread write, and waits a little for it; who reads has a time-out anyway."""
        with self._lock:
            if self._held is None:
                return
            self._held = dataclasses.replace(self._held, **changes)  # pyright: ignore[reportArgumentType]
            self._written.clear()
        self._wake.set()
        self._written.wait(2 * _BEAT_SECONDS)

    def _is_vacant(self) -> bool:
        number, data = self._newest
        term = Term.decoded(number, data)
        if number == 0 or (term is not None and (term.released or term.status is not None)):
            return True
        return _now() - self._changed_at > _VACANT_SECONDS

    # --- in the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            try:
                self._renew()
                self._look()
                self._claim_if_wished()
                if self._held is None or self.is_held:  # else it is why the lease was lost
                    self._trouble = ""
            except OSError as error:
                self._trouble = (error.strerror or str(error)).lower()
            self._answered_at = _now()
            self._wake.wait(_BEAT_SECONDS)
            self._wake.clear()
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)

    def _renew(self) -> None:
        began = _now()
        with self._lock:
            term, file = self._held, self._file
            if term is None or file is None:
                return
            is_over = term.released or term.status is not None
            # What comes too late renews nothing: another may lead by now.
            if began - self._renewed_at >= _STOP_SECONDS and not is_over:
                return
            term = self._held = dataclasses.replace(term, beat=term.beat + 1)
        os.pwrite(file, term.encoded(), 0)
        os.fsync(file)
        with self._lock:
            self._renewed_at = began
            if self._held == term:
                self._held = None if is_over else term
                self._written.set()
                if not is_over:
                    self.on_renewal(began + _STOP_SECONDS - _now())

    def _look(self) -> None:
        numbers = [
            int(found[1]) for found in map(_NAME.fullmatch, os.listdir(self.folder)) if found
        ]
        number = max([*numbers, self._newest[0]])
        data = self._path(number).read_bytes() if number else b""
        with self._lock:
            if self._newest != (number, data):
                self._newest = (number, data)
                self._changes += 1
                self._changed_at = _now()

    def _claim_if_wished(self) -> None:
        with self._lock:
            wish, self._wish = self._wish, None
            if wish is None or not self._is_vacant():
                return
            number, last = self._newest[0] + 1, Term.decoded(*self._newest)
        term, new_job = wish
        if not new_job and last is not None:
            term = dataclasses.replace(term, generation=last.generation, restarts=last.restarts)
        term = dataclasses.replace(term, number=number)
        began = _now()
        try:
            file = os.open(self._path(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            with self._lock:
                # Another was faster, though this host may not see its file in the listing yet.
                self._newest, self._changed_at = (number, b""), _now()
            return
        os.pwrite(file, term.encoded(), 0)
        os.fsync(file)
        old, self._file = self._file, file
        if old is not None:
            os.close(old)
        with self._lock:
            self._held, self._renewed_at = term, began
            self._newest, self._changed_at = (number, term.encoded()), _now()

    def _path(self, number: int) -> Path:
        return self.folder / f"replicax-leader-{number:06}"


def _now() -> float:
    return time.clock_gettime(_CLOCK)
