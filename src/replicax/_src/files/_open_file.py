"""`GFile`: an open file, as TensorFlow has it."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from typing import IO, Any, Self, final

from replicax._src._errors import PermissionDeniedError
from replicax._src._local_path import naming
from replicax._src.files._file_system import Path, at

_MODES = ("r", "w", "a", "r+", "w+", "a+")


@final
class GFile:
    """A file to read from or write to; it is opened when it is first used.

    >>> import os, tempfile
    >>> name = os.path.join(tempfile.mkdtemp(), "note.txt")
    >>> with GFile(name, "w") as file:
    ...     file.write("one\\ntwo\\n")
    >>> with GFile(name) as file:
    ...     list(file)
    ['one\\n', 'two\\n']

    Args:
      name: of the file.
      mode: "r", "w" or "a", with "+" for both, and with "b" for bytes in place of text (UTF-8).
    """

    def __init__(self, name: Path, mode: str = "r"):
        if mode.replace("b", "") not in _MODES:
            raise ValueError(f"The mode of a GFile is one of {', '.join(_MODES)}; got {mode!r}.")
        self._name = name
        self._mode = mode
        self._file: IO[bytes] | None = None
        self._is_written = False  # and closed: to open it again could empty it

    @property
    def name(self) -> Any:
        """The name of the file."""
        return self._name

    @property
    def mode(self) -> str:
        """How it is opened."""
        return self._mode

    def _opened(self, to_write: bool) -> IO[bytes]:
        plain = self._mode.replace("b", "")
        if plain == ("r" if to_write else "w") or (plain == "a" and not to_write):
            what = "writing" if to_write else "reading"
            raise PermissionDeniedError(
                f"{self._name!r} is not open for {what}: its mode is {self._mode!r}."
            )
        return self._any()

    def _any(self) -> IO[bytes]:
        if self._is_written:
            raise ValueError(f"{self._name!r} is closed. Open it again: GFile(name, mode).")
        if self._file is None:
            with at(self._name) as (system, path):
                self._file = system.open(path, self._mode.replace("b", "") + "b")
        return self._file

    def _as_asked(self, content: bytes) -> Any:
        return content if "b" in self._mode else content.decode()

    def read(self, n: int = -1) -> Any:
        """Returns the next `n` bytes, or all that follow."""
        return self._as_asked(self._opened(to_write=False).read(n))

    def readline(self) -> Any:
        """Returns the next line, with its end; nothing after the last."""
        return self._as_asked(self._opened(to_write=False).readline())

    def readlines(self) -> list[Any]:
        """Returns all lines that follow."""
        return list(self)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    def next(self) -> Any:
        """Returns the next line; raises `StopIteration` after the last."""
        return next(self)

    def write(self, file_content: str | bytes) -> None:
        """Writes a text or bytes."""
        content = file_content.encode() if isinstance(file_content, str) else file_content
        file = self._opened(to_write=True)
        with naming(os.fsdecode(self._name)):
            file.write(content)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> None:
        """Goes to a place, counted in bytes from the start, from here or from the end."""
        self._opened(to_write=False).seek(offset, whence)

    def tell(self) -> int:
        """Returns the place, in bytes."""
        return self._any().tell()

    def seekable(self) -> bool:
        """Returns True, as TensorFlow's does."""
        return True

    def size(self) -> int:
        """Returns the length of the file, in bytes."""
        with at(self._name) as (system, path):
            return system.stat(path).length

    def flush(self) -> None:
        """Writes what is held back."""
        if self._file is not None and not self._file.closed:
            with naming(os.fsdecode(self._name)):
                self._file.flush()

    def close(self) -> None:
        """Closes the file; one that was read is opened again when it is used again."""
        file, self._file = self._file, None
        if file is not None:
            self._is_written = "r" not in self._mode
            with naming(os.fsdecode(self._name)):
                file.close()

    def __enter__(self) -> Self:
        if "w" in self._mode:
            self._any()  # it is empty also if nothing is written
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Programs write GFile(name).read(), and TensorFlow's closes itself.
        if self.__dict__.get("_file") is not None:
            with contextlib.suppress(Exception):
                self.close()

    def __repr__(self) -> str:
        return f"GFile({self._name!r}, {self._mode!r})"
