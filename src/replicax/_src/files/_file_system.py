"""Where files are: on this machine, or behind an address such as `gs://bucket`, through fsspec.

Errors are those of `rx.errors`, in every file system.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import importlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from typing import IO, Any, NamedTuple, Protocol, final

from replicax._src._errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    NotFoundError,
    PermissionDeniedError,
)
from replicax._src._local_path import ADDRESS, without_scheme
from replicax._src._whole_file import whole_file

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
_PACKAGES = {"gs": "gcsfs", "gcs": "gcsfs", "s3": "s3fs", "az": "adlfs", "abfs": "adlfs"}


class FileStatistics(NamedTuple):
    """What `stat` returns, as TensorFlow has it.

    Attributes:
      length: of the file, in bytes.
      mtime_nsec: when it was changed, in nanoseconds since 1970.
      is_directory: whether it is a folder.
    """

    length: int
    mtime_nsec: int
    is_directory: bool


class FileSystem(Protocol):
    """Files and folders of one kind; a path is what comes after `file://`, or the whole address."""

    @property
    def scheme(self) -> str: ...
    def open(self, path: str, mode: str) -> IO[bytes]: ...
    def exists(self, path: str) -> bool: ...
    def isdir(self, path: str) -> bool: ...
    def listdir(self, path: str) -> list[str]: ...
    def glob(self, pattern: str) -> list[str]: ...
    def mkdir(self, path: str) -> None: ...
    def makedirs(self, path: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def rmtree(self, path: str) -> None: ...
    def copy(self, src: str, dst: str) -> None: ...
    def rename(self, src: str, dst: str) -> None: ...
    def stat(self, path: str) -> FileStatistics: ...


def file_system_of(path: Path) -> tuple[FileSystem, str]:
    """Returns who has a path, and the path there."""
    text = os.fsdecode(path)
    found = ADDRESS.match(text)
    if found is None:
        return LOCAL, text
    if found[1] == "file":
        return LOCAL, without_scheme(text)
    return RemoteFiles(found[1], text), text


@contextlib.contextmanager
def clear_errors(path: str) -> Iterator[None]:
    """Turns errors of the operating system into those of `rx.errors`, which name the path."""
    try:
        yield
    except (AlreadyExistsError, FailedPreconditionError, NotFoundError, PermissionDeniedError):
        raise
    except FileNotFoundError as error:
        raise NotFoundError(f"There is no file or folder {path!r}.") from error
    except FileExistsError as error:
        raise AlreadyExistsError(f"{path!r} is there already.") from error
    except PermissionError as error:
        raise PermissionDeniedError(f"{path!r}: {error.strerror or error}.") from error
    except IsADirectoryError as error:
        raise FailedPreconditionError(f"{path!r} is a folder, and a file is needed.") from error
    except NotADirectoryError as error:
        raise FailedPreconditionError(f"{path!r}: a part of it is a file, no folder.") from error
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            raise FailedPreconditionError(f"The folder {path!r} is not empty.") from error
        raise


@contextlib.contextmanager
def at(path: Path) -> Iterator[tuple[FileSystem, str]]:
    """Gives who has a path, and the path there; errors in the block are those of `rx.errors`."""
    system, place = file_system_of(path)
    with clear_errors(place):
        yield system, place


@final
class LocalFiles:
    """The files of this machine."""

    scheme = "file"

    def open(self, path: str, mode: str) -> IO[bytes]:
        return open(path, mode)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def isdir(self, path: str) -> bool:
        return os.path.isdir(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def glob(self, pattern: str) -> list[str]:
        folder, _, _ = pattern.rpartition("/")
        start = "/" if pattern.startswith("/") else "" if folder else "./"
        found = [start]
        for part in [each for each in pattern.split("/") if each]:
            found = [made for path in found for made in self._matching(path, part)]
        return sorted(found)

    def _matching(self, folder: str, part: str) -> list[str]:
        """Returns what is in a folder by a name with wildcards; `*` is for hidden files too."""
        start = folder if not folder or folder.endswith("/") else f"{folder}/"
        if not any(sign in part for sign in "*?["):
            return [start + part] if os.path.lexists(start + part) else []
        try:
            names = os.listdir(folder or ".")
        except OSError:
            return []
        return [start + name for name in names if fnmatch.fnmatchcase(name, part)]

    def mkdir(self, path: str) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
        self._refuse_file(path)

    def makedirs(self, path: str) -> None:
        with contextlib.suppress(FileExistsError):
            os.makedirs(path, exist_ok=True)
        self._refuse_file(path)

    def _refuse_file(self, path: str) -> None:
        if os.path.lexists(path) and not os.path.isdir(path):
            raise FailedPreconditionError(f"{path!r} is a file, and cannot be made a folder.")

    def remove(self, path: str) -> None:
        if os.path.isdir(path) and not os.path.islink(path):
            raise IsADirectoryError(path)
        os.remove(path)

    def rmtree(self, path: str) -> None:
        path = path.rstrip("/") or path  # with a slash, a link is what it leads to
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.remove(path)

    def copy(self, src: str, dst: str) -> None:
        if os.path.isdir(src):
            raise ValueError(f"copy() copies a file, and {src!r} is a folder.")
        if os.path.isdir(dst):
            raise IsADirectoryError(dst)
        if os.path.exists(dst) and os.path.samefile(src, dst):
            raise shutil.SameFileError(f"{src!r} and {dst!r} are the same file.")
        with replaced(dst) as place:
            shutil.copyfile(src, place)

    def rename(self, src: str, dst: str) -> None:
        os.replace(src, dst)

    def stat(self, path: str) -> FileStatistics:
        found = os.stat(path)
        return FileStatistics(found.st_size, found.st_mtime_ns, os.path.isdir(path))


LOCAL = LocalFiles()


@contextlib.contextmanager
def replaced(path: str) -> Iterator[str]:
    """Gives where the new content of a file is written, which takes the place of the old one.

    If the block fails, as on a full disk, the old file is as it was. A file that is not there, is
    no plain file, is another user's or has several names is written in place.
    """
    target = os.path.realpath(path)  # of a link, what it leads to
    number, beside = -1, None
    with contextlib.suppress(OSError):
        found = os.stat(target)
        is_own = found.st_uid == os.geteuid() and os.access(target, os.W_OK)
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and is_own:
            number, beside = tempfile.mkstemp(prefix=".replicax-", dir=os.path.dirname(target))
    if beside is None:
        yield path
        return
    try:
        with whole_file(target, beside, number, durable=False):
            yield beside
            shutil.copymode(target, beside)
    except OSError as error:
        if beside in (error.filename, error.filename2):
            error.filename, error.filename2 = path, None
        raise


@final
class RemoteFiles:
    """Files behind an address: what fsspec, with a package for the scheme, can reach."""

    def __init__(self, scheme: str, address: str):
        self.scheme = scheme
        try:
            core = importlib.import_module("fsspec.core")
        except ImportError:
            raise ImportError(self._advice(address, "fsspec")) from None
        try:
            self._files: Any = core.url_to_fs(address)[0]
        except ImportError as error:
            if scheme not in _PACKAGES:
                raise ImportError(
                    f"{address!r} is reached through fsspec, which needs another package: {error}."
                ) from error
            raise ImportError(self._advice(address, _PACKAGES[scheme])) from error
        except ValueError as error:
            raise NotImplementedError(
                f"{address!r}: no file system for {scheme!r} is known ({error}). For files on this "
                "machine leave the scheme out."
            ) from error

    def _advice(self, address: str, missing: str) -> str:
        package = _PACKAGES.get(self.scheme, "")
        install = f"fsspec {package}".strip()
        return (
            f"{address!r} is reached through fsspec, and {missing!r} is not installed. Run "
            f"`pip install {install}`."
        )

    def _address(self, path: object) -> str:
        return str(self._files.unstrip_protocol(path))

    def open(self, path: str, mode: str) -> IO[bytes]:
        return self._files.open(path, mode)

    def exists(self, path: str) -> bool:
        return bool(self._files.exists(path))

    def isdir(self, path: str) -> bool:
        return bool(self._files.isdir(path))

    def listdir(self, path: str) -> list[str]:
        if not self._files.isdir(path):
            raise FileNotFoundError(path)
        found = self._files.ls(path, detail=False)
        return sorted({str(each).rstrip("/").rpartition("/")[2] for each in found})

    def glob(self, pattern: str) -> list[str]:
        return sorted(self._address(each) for each in self._files.glob(pattern))

    def mkdir(self, path: str) -> None:
        self._files.makedirs(path, exist_ok=True)  # where there are no folders, none is missing

    def makedirs(self, path: str) -> None:
        self._files.makedirs(path, exist_ok=True)

    def remove(self, path: str) -> None:
        if self._files.isdir(path):
            raise IsADirectoryError(path)
        self._files.rm_file(path)

    def rmtree(self, path: str) -> None:
        if not self._files.exists(path):
            raise FileNotFoundError(path)
        self._files.rm(path, recursive=True)

    def copy(self, src: str, dst: str) -> None:
        self._files.cp_file(src, dst)

    def rename(self, src: str, dst: str) -> None:
        self._files.mv(src, dst, recursive=self._files.isdir(src))

    def stat(self, path: str) -> FileStatistics:
        found = self._files.info(path)
        changed: Any = found.get("mtime") or found.get("LastModified") or found.get("created") or 0
        seconds = changed.timestamp() if hasattr(changed, "timestamp") else float(changed)
        return FileStatistics(
            int(found.get("size") or 0), int(seconds * 1e9), found.get("type") == "directory"
        )
