"""Paths that users give, of what is read and written on this machine."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator

ADDRESS = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://")
_HERE = "file://"
_UP = re.compile(r"(.*/)?\.\.(?=/|\Z)", re.DOTALL)  # to the last of them


def is_address(path: str) -> bool:
    """Returns whether a text names something elsewhere, such as `gs://bucket`."""
    return ADDRESS.match(path) is not None and not path.startswith(_HERE)


def as_path(given: object, what: str) -> str:
    """Returns the path that was given as text, without a `file://` before it.

    To the operating system `gs://bucket/x` is a folder `gs:` in the working directory: what is
    written there would be lost with the machine.

    Args:
      given: by the user.
      what: the call and its argument, for the error.

    Raises:
      TypeError: it is no path.
      ValueError: it is the address of something elsewhere.
    """
    path = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(path, str):
        raise TypeError(
            f'`{what}` must be a path, as "run/checkpoints" or a pathlib.Path; got {given!r}, of '
            f"type {type(given).__name__}."
        )
    if "\0" in path:
        raise ValueError(f"`{what}` must be a path of the file system; got {path!r}.")
    path = without_scheme(path)
    if is_address(path):
        raise ValueError(
            f"`{what}` must be a path of the file system; got {path!r}. Write to a folder of this "
            "machine, which may be one that is mounted; rx.io.gfile.copy copies files elsewhere."
        )
    return path


def without_scheme(path: str) -> str:
    """Returns a path without a `file://` before it.

    Raises:
      ValueError: a host is named, or no path. TensorFlow reads that file of this machine.
    """
    if path.startswith(_HERE) and not path.startswith(_HERE + "/"):
        raise ValueError(f"Write file:///path, with three slashes; got {path!r}.")
    return path.removeprefix(_HERE)


def absolute_path(given: object, what: str) -> str:
    """Returns the path that was given, which stays the same if the program changes its folder."""
    path = as_path(given, what)
    if not path:
        raise ValueError(f"`{what}` must name a file or a folder; got {given!r}.")
    return made_absolute(path)


def made_absolute(path: str) -> str:
    """Returns a path from `/` on: that of the same file, also where a `..` comes after a link."""
    if up := _UP.match(path):
        path = os.path.join(os.path.realpath(up[0]), path[up.end() :].lstrip("/"))
    return os.path.abspath(path)


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Names a file in errors of the system that name none, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = path
        raise
