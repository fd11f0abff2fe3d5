"""Which files to read, and writing them back."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

# Folders that have other people's code, or none.
_SKIPPED = ("__pycache__", "build", "dist", "node_modules", "site-packages", "venv")


def python_files(paths: Sequence[str]) -> Iterator[Path]:
    """Yields the files that are named and the Python files of folders that are, once each.

    Folders whose name begins with a dot, virtual environments and built packages are passed over.

    Raises:
      FileNotFoundError: One of them does not exist.
    """
    seen: set[Path] = set()
    for name in paths:
        path = Path(name)
        if not path.exists():
            raise FileNotFoundError(f"there is no file or folder {name!r} in {os.getcwd()}.")
        for file in _below(path) if path.is_dir() else (path,):
            if (real := file.resolve()) not in seen:
                seen.add(real)
                yield file


def _below(folder: Path) -> Iterator[Path]:
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if not _is_skipped(Path(here, each)))
        yield from (Path(here, name) for name in sorted(files) if name.endswith(".py"))


def _is_skipped(folder: Path) -> bool:
    return (
        folder.name.startswith(".")
        or folder.name in _SKIPPED
        or (folder / "pyvenv.cfg").exists()  # a virtual environment
    )


def write_whole(path: Path, content: bytes) -> None:
    """Replaces a file, so that whoever reads it meanwhile sees the old one or the new one."""
    path = path.resolve()  # a link stays a link
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(temporary, path.stat().st_mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
