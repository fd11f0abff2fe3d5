"""Removing checkpoints, and only checkpoints; and putting in order what killed programs left.

What is removed or replaced first gets a name that tells so. Whoever comes after a kill knows from
the names what is left to do, and leaves alone what has none of them.
"""

from __future__ import annotations

import contextlib
import os
import shutil

from replicax._src.checkpoints._lock import PathLock
from replicax._src.checkpoints._manifest import open_regular
from replicax._src.checkpoints._names import (
    LEFTOVERS,
    MANIFEST,
    OBJECTS,
    PARTIAL,
    REMOVED,
    REPLACED,
    is_numbered,
    is_of_a_checkpoint,
)
from replicax._src.checkpoints._problems import DamagedCheckpointError

# How files begin that only a checkpoint has. One is enough: the other may be damaged.
_BEGINNINGS = {MANIFEST: b'{"format": "replicax checkpoint"', OBJECTS: b'{"objects": [{"kind": "'}


def why_not_ours(path: str) -> str | None:
    """Returns what is at a path if it may not be removed; None for a checkpoint or nothing."""
    if os.path.islink(path):
        return f"a symbolic link to {os.readlink(path)}"
    if not os.path.lexists(path):
        return None
    if not os.path.isdir(path):
        return "a file"
    if not os.listdir(path):
        return None
    if (stranger := _stranger_in(path)) is not None:
        return f"a folder with {stranger!r} in it, which is not of a checkpoint"
    return None if _has_our_mark(path) else "a folder that is no checkpoint"


def _stranger_in(path: str) -> str | None:
    """Returns something in a folder that is in no checkpoint; links are not followed."""
    for root, folders, files in os.walk(path):
        for name in sorted((*folders, *files)):
            inside = os.path.relpath(os.path.join(root, name), path)
            if not is_of_a_checkpoint(inside):
                return inside
    return None


def _has_our_mark(path: str) -> bool:
    for name, beginning in _BEGINNINGS.items():
        with contextlib.suppress(OSError, DamagedCheckpointError):
            with open(open_regular(path, name), "rb") as file:
                if file.read(len(beginning)) == beginning:
                    return True
    return False


def require_replaceable(path: str) -> None:
    """`FileExistsError` if there is something else than a checkpoint at a path."""
    reason = why_not_ours(path)
    if reason is not None:
        raise FileExistsError(
            f"at that path there is {reason}. Only a checkpoint is replaced, and nothing was "
            "touched. Save to another path, or move it away first"
        )


def remove(path: str) -> None:
    """Removes a checkpoint. If the process is killed meanwhile, `remove_leftovers` goes on."""
    _remove_as(path, path + REMOVED)


def _remove_as(path: str, removed: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # another process was faster
        shutil.rmtree(removed, ignore_errors=True)
        os.rename(path, removed)
        shutil.rmtree(removed, ignore_errors=True)


def settle(target: str) -> None:
    """Removes what was left beside a checkpoint; under its lock.

    If the process was killed when the old checkpoint had lost its name and the new one had not got
    it, the old one gets it back.
    """
    for ending in (PARTIAL, REMOVED):
        shutil.rmtree(target + ending, ignore_errors=True)
    if os.path.lexists(target + REPLACED):
        if os.path.lexists(target):
            _remove_as(target + REPLACED, target + REMOVED)
        else:
            os.rename(target + REPLACED, target)


def remove_leftovers(directory: str, prefix: str) -> None:
    """Puts in order what killed programs left of the checkpoints `{prefix}-{number}`."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for name in _with_leftovers(os.listdir(directory), prefix):
            with contextlib.suppress(OSError):  # who is at work there does it
                lock = PathLock(os.path.join(directory, name))
                try:
                    settle(os.path.join(directory, name))
                finally:
                    lock.release()


def _with_leftovers(names: list[str], prefix: str) -> set[str]:
    found = set()
    for name in names:
        for ending in LEFTOVERS:
            whole = name.removesuffix(ending)
            if whole != name and is_numbered(whole, prefix):
                found.add(whole)
    return found
