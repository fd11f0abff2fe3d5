"""Runs a user's script so that it leaves nothing behind: its files are not written.

What it opens to write goes nowhere, folders are not made, nothing is moved or removed; only what
it does in its own folder for temporary files happens. Checkpoints and summaries are not written.
"""

import builtins
import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from replicax._src.checkpoints import Checkpoint, CheckpointManager

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Functions of `os` whose first argument is a path that they make, change or remove.
_CHANGES = (
    *("mkdir", "makedirs", "rename", "replace", "renames", "remove", "unlink", "rmdir"),
    *("removedirs", "symlink", "link", "truncate", "chmod", "chown", "mkfifo", "utime"),
)


@contextlib.contextmanager
def without_effects(temporary: str) -> Iterator[None]:
    """Inside the block, files outside of the folder `temporary` are not changed."""

    def is_free(path: object, beside: object = None) -> bool:
        if not isinstance(path, str | bytes | os.PathLike):
            return True  # the number of a file that is open
        folder = f"/proc/self/fd/{beside}" if isinstance(beside, int) else ""
        found = os.path.realpath(os.path.join(folder, os.fsdecode(path)))
        return found.startswith((os.path.realpath(temporary) + os.sep, "/dev/"))

    def opened(plain: Callable[..., Any]) -> Callable[..., Any]:
        def open_(file: object, mode: str = "r", *args: object, **kwargs: object) -> Any:
            if set(mode) & set("wax+") and not is_free(file):
                file = os.devnull
                mode = mode.replace("x", "w")
            return plain(file, mode, *args, **kwargs)

        return open_

    def opened_by_number(path: object, flags: int, *args: object, **kwargs: object) -> int:
        if flags & _WRITES and not is_free(path, kwargs.get("dir_fd")):
            path, flags = os.devnull, os.O_RDWR
            kwargs.pop("dir_fd", None)
        return plain_open(path, flags, *args, **kwargs)

    def changing(plain: Callable[..., Any]) -> Callable[..., Any]:
        def change(path: object, *args: object, **kwargs: object) -> Any:
            beside = kwargs.get("dir_fd")
            return plain(path, *args, **kwargs) if is_free(path, beside) else None

        return change

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        """Catches what goes another way to a file."""
        if not guards or event != "open":
            return
        path, _, flags = arguments
        if isinstance(flags, int) and flags & _WRITES and not is_free(path):
            raise PermissionError(f"a script that is planned writes nothing; it opened {path!r}")

    plain_open: Any = os.open
    guards: list[bool] = []
    sys.addaudithook(refuse)
    with contextlib.ExitStack() as stack:
        replace = stack.enter_context
        replace(mock.patch.object(builtins, "open", opened(builtins.open)))
        replace(mock.patch.object(io, "open", opened(io.open)))
        replace(mock.patch.object(os, "open", opened_by_number))
        for name in _CHANGES:
            if hasattr(os, name):
                replace(mock.patch.object(os, name, changing(getattr(os, name))))
        replace(mock.patch.object(Checkpoint, "write", _unwritten))
        replace(mock.patch.object(Checkpoint, "save", _unwritten))
        replace(mock.patch.object(CheckpointManager, "save", lambda *_, **__: None))
        guards.append(True)
        try:
            yield
        finally:
            guards.clear()


def _unwritten(
    _: Checkpoint, file_prefix: str | os.PathLike[str], *__: object, **___: object
) -> str:
    return os.fspath(file_prefix)
