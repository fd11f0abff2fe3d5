"""Runs a user's script so that it leaves nothing behind: its files are not written.

What it opens to write is an empty file in its folder for temporary files, without the name; outside
of that folder none is made, nothing is moved or removed. Checkpoints, summaries and recordings are
not written.
"""

import builtins
import contextlib
import importlib.util
import io
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from replicax._src.checkpoints import Checkpoint, CheckpointManager, keeping_leftovers
from replicax._src.recording import without_recording

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Functions of `os` whose first argument is a path that they make, change or remove, and those with
# a second one.
_CHANGES = (
    *("mkdir", "makedirs", "remove", "unlink", "rmdir", "removedirs"),
    *("truncate", "chmod", "chown", "mkfifo", "utime"),
)
_CHANGES_OF_TWO = ("rename", "replace", "renames", "symlink", "link")


@contextlib.contextmanager
def without_effects(temporary: str) -> Iterator[None]:
    """Inside the block, files outside of the folder `temporary` are not changed."""

    def is_free(path: object, beside: object = None) -> bool:
        if not isinstance(path, str | bytes | os.PathLike):
            return True  # the number of a file that is open
        folder = f"/proc/self/fd/{beside}" if isinstance(beside, int) else ""
        found = os.path.realpath(os.path.join(folder, os.fsdecode(path)))
        return found.startswith((os.path.realpath(temporary) + os.sep, "/dev/"))

    def elsewhere() -> str:
        return os.path.join(temporary, f"written-{next(numbers)}")

    def opened(plain: Callable[..., Any]) -> Callable[..., Any]:
        def open_(file: object, mode: str = "r", *args: object, **kwargs: object) -> Any:
            if set(mode) & set("wax+") and not is_free(file):
                file = elsewhere()
                mode = mode.replace("x", "w").replace("r", "w")
            return plain(file, mode, *args, **kwargs)

        return open_

    def opened_by_number(path: object, flags: int, *args: object, **kwargs: object) -> int:
        if flags & _WRITES and not is_free(path, kwargs.get("dir_fd")):
            path, flags = elsewhere(), os.O_RDWR | os.O_CREAT
            kwargs.pop("dir_fd", None)
        return plain_open(path, flags, *args, **kwargs)

    def changing(plain: Callable[..., Any]) -> Callable[..., Any]:
        def change(path: object, *args: object, **kwargs: object) -> Any:
            beside = kwargs.get("dir_fd")
            return plain(path, *args, **kwargs) if is_free(path, beside) else None

        return change

    def changing_two(plain: Callable[..., Any]) -> Callable[..., Any]:
        def change(src: object, dst: object, *args: object, **kwargs: object) -> Any:
            places = (src, kwargs.get("src_dir_fd")), (dst, kwargs.get("dst_dir_fd"))
            if plain is plain_symlink:  # what it names is not touched
                places = ((dst, kwargs.get("dir_fd")),)
            if all(is_free(*place) for place in places):
                return plain(src, dst, *args, **kwargs)

        return change

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        """Catches what goes another way to a file."""
        if not guards or event != "open":
            return
        path, _, flags = arguments
        if isinstance(flags, int) and flags & _WRITES and not is_free(path):
            raise PermissionError(f"a script that is planned writes nothing; it opened {path!r}")

    plain_open: Any = os.open
    plain_symlink: Any = os.symlink
    guards: list[bool] = []
    numbers = itertools.count()
    sys.addaudithook(refuse)
    with contextlib.ExitStack() as stack:
        replace = stack.enter_context
        replace(mock.patch.object(builtins, "open", opened(builtins.open)))
        replace(mock.patch.object(io, "open", opened(io.open)))
        replace(mock.patch.object(os, "open", opened_by_number))
        for name in _CHANGES:
            if hasattr(os, name):
                replace(mock.patch.object(os, name, changing(getattr(os, name))))
        for name in _CHANGES_OF_TWO:
            if hasattr(os, name):
                replace(mock.patch.object(os, name, changing_two(getattr(os, name))))
        replace(_hdf5_in_memory(is_free))
        replace(mock.patch.object(Checkpoint, "write", _unwritten))
        replace(mock.patch.object(Checkpoint, "save", _unwritten))
        replace(mock.patch.object(CheckpointManager, "save", lambda *_, **__: None))
        replace(keeping_leftovers())
        replace(without_recording())
        guards.append(True)
        try:
            yield
        finally:
            guards.clear()


def _unwritten(
    _: Checkpoint, file_prefix: str | os.PathLike[str], *__: object, **___: object
) -> str:
    return os.fspath(file_prefix)


@contextlib.contextmanager
def _hdf5_in_memory(is_free: Callable[[object], bool]) -> Iterator[None]:
    """Weights of Keras are files of HDF5, which a library in C opens: its own are in memory."""
    if importlib.util.find_spec("h5py") is None:
        yield
        return
    import h5py

    plain: Callable[..., None] = h5py.File.__init__

    def init(
        self: h5py.File, name: object, mode: str = "r", *args: object, **kwargs: object
    ) -> None:
        if mode != "r" and isinstance(name, str | bytes | os.PathLike) and not is_free(name):
            args, kwargs = (), {"driver": "core", "backing_store": False}
        plain(self, name, mode, *args, **kwargs)

    with mock.patch.object(h5py.File, "__init__", init):
        yield
