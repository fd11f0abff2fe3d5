"""The functions of `tf.io.gfile`."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import AnyStr

from replicax._src._errors import AlreadyExistsError, NotFoundError
from replicax._src.files._file_system import (
    LOCAL,
    FileStatistics,
    Path,
    at,
    clear_errors,
    file_system_of,
    replaced,
)


def exists(path: Path) -> bool:
    """Returns whether there is a file or a folder of this name."""
    system, place = file_system_of(path)
    return system.exists(place)


def isdir(path: Path) -> bool:
    """Returns whether there is a folder of this name."""
    system, place = file_system_of(path)
    return system.isdir(place)


def listdir(path: Path) -> list[str]:
    """Returns the names of what is in a folder.

    Raises:
      NotFoundError: there is no such folder.
    """
    with at(path) as (system, place):
        if not system.isdir(place):
            raise NotFoundError(f"There is no folder {place!r}.")
        return system.listdir(place)


def glob(pattern: Path | Sequence[Path]) -> list[str]:
    """Returns the names that match a pattern, or one of several, sorted for each.

    `*` stands for any part of a name, hidden ones too, `?` for one letter, `[ab]` for one of them;
    none of them for a `/`.
    """
    if isinstance(pattern, list | tuple):
        return [name for each in pattern for name in glob(each)]
    with at(pattern) as (system, place):  # type: ignore[arg-type]
        return system.glob(place)


def mkdir(path: Path) -> None:
    """Makes a folder in one that is there; a folder that is there already is left as it is."""
    with at(path) as (system, place):
        system.mkdir(place)


def makedirs(path: Path) -> None:
    """Makes a folder, and those that it is in; one that is there already is left as it is."""
    with at(path) as (system, place):
        system.makedirs(place)


def remove(path: Path) -> None:
    """Deletes a file."""
    with at(path) as (system, place):
        system.remove(place)


def rmtree(path: Path) -> None:
    """Deletes a folder with all that is in it; of a file, the file, as TensorFlow does."""
    with at(path) as (system, place):
        system.rmtree(place)


def copy(src: Path, dst: Path, overwrite: bool = False) -> None:
    """Copies a file.

    Raises:
      AlreadyExistsError: there is a file `dst`, and `overwrite` is not True.
    """
    system, source = file_system_of(src)
    other, target = file_system_of(dst)
    _refuse_to_overwrite(dst, overwrite, "copy")
    with clear_errors(source if not exists(src) else target):
        if system.scheme == other.scheme:
            system.copy(source, target)
            return
        whole = replaced(target) if other is LOCAL else contextlib.nullcontext(target)
        with system.open(source, "rb") as reader, whole as place, other.open(place, "wb") as writer:
            shutil.copyfileobj(reader, writer)


def rename(src: Path, dst: Path, overwrite: bool = False) -> None:
    """Gives a file or a folder another name.

    Raises:
      AlreadyExistsError: there is a file `dst`, and `overwrite` is not True.
    """
    system, source = file_system_of(src)
    other, target = file_system_of(dst)
    _refuse_to_overwrite(dst, overwrite, "rename")
    if system.scheme != other.scheme:
        raise NotImplementedError(
            f"rename() does not move between file systems: {source!r} to {target!r}. Use copy() "
            "and remove()."
        )
    with clear_errors(source if not exists(src) else target):
        system.rename(source, target)


def _refuse_to_overwrite(path: Path, overwrite: bool, operation: str) -> None:
    if not overwrite and exists(path):
        raise AlreadyExistsError(
            f"{os.fsdecode(path)!r} is there already. {operation}(..., overwrite=True) replaces it."
        )


def stat(path: Path) -> FileStatistics:
    """Returns the length of a file, when it was changed, and whether it is a folder."""
    with at(path) as (system, place):
        return system.stat(place)


def walk(
    top: Path, topdown: bool = True, onerror: Callable[[Exception], object] | None = None
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yields `(folder, names of folders, names of files)` for a folder and all below it.

    Links to folders are followed, but for those that lead back to a folder that they are in.

    Args:
      top: where to start.
      topdown: whether a folder comes before those in it.
      onerror: gets the error of a folder that cannot be read; those are left out.
    """
    yield from _walk(os.fsdecode(top), topdown, onerror, ())


def _walk(
    folder: str,
    topdown: bool,
    onerror: Callable[[Exception], object] | None,
    above: tuple[str, ...],
) -> Iterator[tuple[str, list[str], list[str]]]:
    real = os.path.realpath(folder)
    if real in above:
        return
    try:
        names = listdir(folder)
    except Exception as error:
        if onerror is not None:
            onerror(error)
        return
    folders = [name for name in names if isdir(join(folder, name))]
    here = folder, folders, [name for name in names if name not in folders]
    if topdown:
        yield here
    for name in folders:
        yield from _walk(join(folder, name), topdown, onerror, (*above, real))
    if not topdown:
        yield here


def join(path: AnyStr, *paths: AnyStr) -> AnyStr:
    """Returns the parts as one path: `join("gs://bucket", "file")`."""
    return os.path.join(path, *paths)  # pyright: ignore[reportCallIssue, reportArgumentType]


def get_registered_schemes() -> list[str]:
    """Returns which files can be reached without another package: those of this machine."""
    return ["", "file"]


def read_file(filename: Path, name: str | None = None) -> bytes:
    """Returns the bytes of a file."""
    with at(filename) as (system, place), system.open(place, "rb") as file:
        return file.read()


def write_file(filename: Path, contents: str | bytes, name: str | None = None) -> None:
    """Writes a file, and the folders that it is in; what was in it is gone."""
    with at(filename) as (system, place):
        if folder := os.path.dirname(place):
            system.makedirs(folder)
        with system.open(place, "wb") as file:
            file.write(contents.encode() if isinstance(contents, str) else contents)
