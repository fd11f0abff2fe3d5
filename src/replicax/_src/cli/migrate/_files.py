"""Which files to read, and writing them back."""

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from replicax._src._whole_file import whole_file

# Folders that have other people's code, or none.
_SKIPPED = ("__pycache__", "build", "dist", "node_modules", "site-packages", "venv")


def python_files(name: str, complain: Callable[[OSError], None]) -> Iterator[Path]:
    """Yields a file that is named, or the Python files and notebooks of a folder that is.

    Folders whose name begins with a dot, virtual environments and built packages are passed over.
    Links in a folder that lead out of it are not followed: it is what was named, and no more.

    Args:
      name: of a file or a folder.
      complain: is told of folders below it that cannot be read, and of such links.

    Raises:
      OSError: There is no such file or folder, or it is nothing that a program is written in.
    """
    path = Path(name)
    if not name or not path.exists():  # the empty name is that of no file; Path("") is the folder
        raise FileNotFoundError(f"there is no such file or folder in {os.getcwd()}")
    if not path.is_dir() and not path.is_file():
        raise OSError("is neither a file nor a folder")
    yield from _below(path, complain) if path.is_dir() else (path,)


def _below(folder: Path, complain: Callable[[OSError], None]) -> Iterator[Path]:
    for here, folders, files in os.walk(folder, onerror=complain):
        folders[:] = sorted(each for each in folders if not _is_skipped(Path(here, each)))
        for path in (
            Path(here, name) for name in sorted(files) if name.endswith((".py", ".ipynb"))
        ):
            if not path.is_file():  # a pipe, or a link to nowhere
                continue
            if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
                reason = f"is a link out of {folder}: it was not followed; name the file to port it"
                complain(OSError(errno.EXDEV, reason, str(path)))
                continue
            yield path


def _is_skipped(folder: Path) -> bool:
    return (
        folder.name.startswith(".")
        or folder.name in _SKIPPED
        or (folder / "pyvenv.cfg").exists()  # a virtual environment
    )


def write_whole(path: Path, content: bytes) -> None:
    """Replaces a file, so that whoever reads it meanwhile sees the old one or the new one."""
    path = path.resolve()  # a link stays a link
    if not os.access(path, os.W_OK):  # to replace it, the folder need only be writable
        raise PermissionError("is write-protected: nothing was written")
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with whole_file(str(path), temporary, descriptor) as file:
        file.write(content)
        old = path.stat()
        os.chmod(temporary, old.st_mode)
        with contextlib.suppress(PermissionError):  # only the administrator can
            os.chown(temporary, old.st_uid, old.st_gid)
    folder = os.open(path.parent, os.O_RDONLY)  # or a power cut may bring the old name back
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
