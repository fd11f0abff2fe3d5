"""A lock on the path of a checkpoint: two processes that save there do not destroy each other's.

The system releases it when the process ends, however that ends: nobody waits for the dead.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from typing import final

from replicax._src.checkpoints._names import LOCK


@final
class PathLock:
    """Held while a checkpoint is made at a path, or what was left there is put in order."""

    def __init__(self, target: str):
        """Takes the lock.

        Args:
          target: the path of the checkpoint.

        Raises:
          BlockingIOError: somebody else has it; the text says who.
        """
        self._path = target + LOCK
        self._process: int | None = os.getpid()
        while True:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            self._descriptor = os.open(self._path, flags, 0o666)
            try:
                self._take()
            except BaseException:
                os.close(self._descriptor)
                raise
            if self._is_still_there():
                break
            os.close(self._descriptor)  # who had it before has removed the file meanwhile
        with contextlib.suppress(OSError):  # on a full disk nobody is told who it is
            os.ftruncate(self._descriptor, 0)
            os.pwrite(
                self._descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0
            )

    def _take(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._descriptor, 300, 0).decode(errors="replace")
            raise BlockingIOError(
                f"{owner or 'another process'} saves there at the moment. Give every program a "
                "directory of its own, or let one of them end first"
            ) from None
        except OSError:
            pass  # a file system without locks

    def _is_still_there(self) -> bool:
        try:
            now = os.stat(self._path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(os.fstat(self._descriptor), now)

    @property
    def is_held(self) -> bool:
        """Whether this process has it; a forked child has not."""
        return self._process == os.getpid()

    def release(self) -> None:
        """Lets others save there."""
        if self.is_held:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        os.close(self._descriptor)
        self._process = None
