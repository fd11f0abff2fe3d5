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
from typing import Any, final
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
    files = _Files(temporary)
    sys.addaudithook(files.refuse)
    with contextlib.ExitStack() as stack:
        replace = stack.enter_context
        replace(mock.patch.object(builtins, "open", files.opened(builtins.open)))
        replace(mock.patch.object(io, "open", files.opened(io.open)))
        replace(mock.patch.object(os, "open", files.opened_by_number(os.open)))
        for name in _CHANGES:
            if hasattr(os, name):
                replace(mock.patch.object(os, name, files.changing(getattr(os, name))))
        for name in _CHANGES_OF_TWO:
            if hasattr(os, name):
                replace(mock.patch.object(os, name, files.changing_two(name, getattr(os, name))))
        replace(_hdf5_in_memory(files.is_free))
        replace(mock.patch.object(Checkpoint, "write", _unwritten))
        replace(mock.patch.object(Checkpoint, "save", _unwritten))
        replace(mock.patch.object(CheckpointManager, "save", lambda *_, **__: None))
        replace(keeping_leftovers())
        replace(without_recording())
        files.guarded = True
        try:
            yield
        finally:
            files.guarded = False


@final
class _Files:
    """What a script may do to files: change those in one folder.

    Attributes:
      guarded: whether `refuse` is to catch what goes another way to a file.
    """

    def __init__(self, temporary: str):
        self._temporary = temporary
        self._numbers = itertools.count()
        self.guarded = False

    def is_free(self, path: object, beside: object = None) -> bool:
        """Returns whether a file, named as it is beside an open folder, may be changed."""
        if not isinstance(path, str | bytes | os.PathLike):
            return True  # the number of a file that is open
        folder = f"/proc/self/fd/{beside}" if isinstance(beside, int) else ""
        found = os.path.realpath(os.path.join(folder, os.fsdecode(path)))
        return found.startswith((os.path.realpath(self._temporary) + os.sep, "/dev/"))

    def _elsewhere(self) -> str:
        return os.path.join(self._temporary, f"written-{next(self._numbers)}")

    def opened(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Returns what takes the place of `open`."""

        def open_(file: object, mode: str = "r", *args: object, **kwargs: object) -> Any:
            if set(mode) & set("wax+") and not self.is_free(file):
                file = self._elsewhere()
                mode = mode.replace("x", "w").replace("r", "w")
            return plain(file, mode, *args, **kwargs)

        return open_

    def opened_by_number(self, plain: Callable[..., int]) -> Callable[..., int]:
        """Returns what takes the place of `os.open`."""

        def open_(path: object, flags: int, *args: object, **kwargs: object) -> int:
            if flags & _WRITES and not self.is_free(path, kwargs.get("dir_fd")):
                path, flags = self._elsewhere(), os.O_RDWR | os.O_CREAT
                kwargs.pop("dir_fd", None)
            return plain(path, flags, *args, **kwargs)

        return open_

    def changing(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Returns what takes the place of a function that changes a path."""

        def change(path: object, *args: object, **kwargs: object) -> Any:
            beside = kwargs.get("dir_fd")
            return plain(path, *args, **kwargs) if self.is_free(path, beside) else None

        return change

    def changing_two(self, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Returns what takes the place of a function that changes two paths."""

        def change(src: object, dst: object, *args: object, **kwargs: object) -> Any:
            places = (src, kwargs.get("src_dir_fd")), (dst, kwargs.get("dst_dir_fd"))
            if name == "symlink":  # what it names is not touched
                places = ((dst, kwargs.get("dir_fd")),)
            if all(self.is_free(*place) for place in places):
                return plain(src, dst, *args, **kwargs)

        return change

    def refuse(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Catches what goes another way to a file; Python calls it for all that it audits."""
        if not self.guarded or event != "open":
            return
        path, _, flags = arguments
        if isinstance(flags, int) and flags & _WRITES and not self.is_free(path):
            raise PermissionError(f"a script that is planned writes nothing; it opened {path!r}")


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
