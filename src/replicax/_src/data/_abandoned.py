"""Files that somebody writes under a name of their own, and what is left of them after a kill.

Who writes such a file holds a lock on it, which the system releases when the process ends, however
that ends. So whoever comes later can tell the files of the living from those of the dead. Where a
file system has no locks, all count as alive; and for an hour after the last change, since there are
file systems where only processes of one host know of each other's locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time

_SECONDS = 3600.0


def create_locked(path: str) -> int:
    """Creates a file that counts as somebody's until its descriptor, which is returned, is closed.

    Raises:
      FileExistsError: it is there already.
    """
    while True:
        # Others may read it, as the process's umask says: a folder can be shared.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_nlink:
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # somebody has found it before it was locked, and has removed it


def is_abandoned(path: str) -> bool:
    """Returns whether a file is there, and nobody writes it any more."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return time.time() - os.fstat(descriptor).st_mtime > _SECONDS
    except OSError:
        return False
    finally:
        os.close(descriptor)


def remove_abandoned(folder: str, name: re.Pattern[str]) -> None:
    """Removes the files of a folder that have such a name, and that nobody writes any more."""
    names: list[str] = []
    with contextlib.suppress(OSError):  # one may write to some folders, and not list them
        names = os.listdir(folder)
    for each in names:
        path = os.path.join(folder, each)
        if name.fullmatch(each) and is_abandoned(path):
            with contextlib.suppress(OSError):
                os.unlink(path)
