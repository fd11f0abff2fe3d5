"""Bytes of a file by their place in it, decompressed on the way: what all scanners read from.

Scanners ask for "so many bytes from this offset on". They may go back to where the last answer
began, no further: a record that was cut off is then simply asked for again, with the same call for
plain files (which read it again) and for compressed ones (which keep the last answer).
"""

from __future__ import annotations

import os
import zlib
from typing import IO, Any, Self, final

import numpy as np

from replicax._src._errors import DataLossError
from replicax._src._local_path import without_scheme
from replicax._src._typing import override

FileName = str | bytes | os.PathLike[str] | os.PathLike[bytes]

COMPRESSION_TYPES = (None, "", "GZIP", "ZLIB")
# Large enough that the costs of a block do not count; small enough that it stays in the cache, and
# that the C library hands the memory of one block to the next instead of to the system.
BLOCK_BYTES = 1 << 19

_WINDOW_BITS = {"GZIP": 16 + zlib.MAX_WBITS, "ZLIB": zlib.MAX_WBITS}
_COMPRESSED_BYTES = 1 << 18


def check_compression_type(compression_type: object) -> str:
    """Returns "", "GZIP" or "ZLIB".

    Raises:
      ValueError: If it is none of TensorFlow's compression types.
    """
    if isinstance(compression_type, bytes):
        compression_type = compression_type.decode(errors="replace")
    if compression_type not in COMPRESSION_TYPES:
        raise ValueError(
            f"compression_type={compression_type!r} is not known. It must be one of "
            f"{', '.join(map(repr, COMPRESSION_TYPES))} (None and '': not compressed)."
        )
    return compression_type or ""


def check_path(path: FileName | np.ndarray | np.generic) -> str:
    """Returns a file name as a `str`.

    Raises:
      TypeError: If it is no file name.
    """
    if isinstance(path, np.ndarray | np.generic) and path.ndim == 0:
        path = path.item()  # a file name that came through a data set
    try:
        return without_scheme(os.fsdecode(path))  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            "A file name is a `str`, `bytes` or `os.PathLike`. "
            f"Received {type(path).__name__}: {path!r:.80}."
        ) from None


def check_blocks(block_bytes: int) -> None:
    """Raises a `ValueError` if files cannot be read in blocks of this size."""
    if block_bytes < 1:
        raise ValueError(f"`block_bytes` must be at least 1. Received block_bytes={block_bytes}.")


class Closed:
    """The base of what is closed at the end of a `with` block."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@final
class Source(Closed):
    """The bytes of one file, decompressed. A context manager that closes it.

    Raises:
      FileNotFoundError: If there is no such file, or it is a directory.
    """

    def __init__(self, path: FileName, compression_type: str | None = None) -> None:
        self.path = check_path(path)
        self.compression = check_compression_type(compression_type)
        self._file = open_for_reading(self.path)
        self._inflater = Inflater(self._file, self.compression) if self.compression else None
        self._kept = b""
        self._kept_from = 0

    @property
    def size(self) -> int | None:
        """How many bytes there are, or None where only reading to the end would tell."""
        return None if self._inflater else os.fstat(self._file.fileno()).st_size

    def read(self, offset: int, count: int) -> bytes:
        """Returns `count` bytes from `offset` on; fewer only where the file ends, or is damaged."""
        if (size := self.size) is not None:
            if offset >= size:  # which may be further than the system can seek
                return b""
            self._file.seek(offset)
            return _read_fully(self._file, min(count, size - offset))
        while offset > (end := self.end):
            self._kept, self._kept_from = self._inflate(min(offset - end, 1 << 20)), end
            if not self._kept:
                return b""
        kept = self._kept[offset - self._kept_from :]
        if missing := max(0, count - len(kept)):
            kept += self._inflate(missing)
        self._kept, self._kept_from = kept, offset
        return kept[:count]

    @property
    def end(self) -> int:
        """Where the last answer ended; once an answer was too short, the size of the data."""
        return self._kept_from + len(self._kept)

    def _inflate(self, count: int) -> bytes:
        assert self._inflater is not None
        return self._inflater.read(count)

    def raise_if_damaged(self) -> None:
        """Raises the damage that ended the data, if any did; for the end of what could be read.

        Raises:
          DataLossError: If the compressed data ended too early or could not be decompressed.
        """
        if self._inflater is not None and (damage := self._inflater.damage):
            offset = self.end
            raise DataLossError(
                f"{self.path}: {damage} (after {offset} bytes of decompressed data). It was read "
                f"as {self.compression}: check `compression_type`, or copy the file again.",
                self.path,
                offset,
            )

    @override
    def close(self) -> None:
        self._file.close()


@final
class Inflater:
    """Decompresses a file, piece by piece; remembers damage instead of raising it at once.

    So all records before the damage are still delivered. As in TensorFlow, a GZIP file may have
    several members, and whatever comes after ZLIB data is not looked at. Compressed data that ends
    too early is taken for a complete file by TensorFlow; here that is damage.
    """

    def __init__(self, file: IO[bytes], compression: str) -> None:
        self._file = file
        self._compression = compression
        self._member = self._new_member()
        self._input = b""
        self._at_once = _COMPRESSED_BYTES  # how much to decompress in one call
        self._started = False  # whether there was any input for this member
        self._at_end = False
        self.damage: str | None = None

    def _new_member(self) -> Any:
        return zlib.decompressobj(_WINDOW_BITS[self._compression])

    def read(self, count: int) -> bytes:
        """Returns `count` bytes; fewer only at the end or before damage."""
        pieces: list[bytes] = []
        while count > 0 and not self._at_end:
            self._input = self._input or self._file.read(_COMPRESSED_BYTES)
            piece = self._decompress(min(count, _COMPRESSED_BYTES << 10))
            pieces.append(piece)
            count -= len(piece)
        return b"".join(pieces)

    def _decompress(self, count: int) -> bytes:
        """Returns some of the next `count` bytes.

        Python drops what was decompressed before damage in the same call. So the call is made
        again, with half of the input, until a single byte of it is left.
        """
        ended = not self._input
        chunk, before = self._input[: self._at_once], self._member.copy()
        try:
            piece = self._member.decompress(chunk, count if self._at_once > 1 else 1)
        except zlib.error as error:
            self._member = before
            if self._at_once == 1:
                self._at_end = True
                self.damage = f"the data cannot be decompressed: {error}"
            self._at_once = max(len(chunk) // 2, 1)
            return b""
        self._started = self._started or not ended
        self._input = self._member.unconsumed_tail + self._input[len(chunk) :]
        if ended and not piece:
            self._at_end = True
            self.damage = "the compressed data is cut off" if self._started else None
        if self._member.eof:
            self._input = self._member.unused_data + self._input
            self._at_end = self._compression == "ZLIB"
            self._member = self._new_member()
            self._started = False
        return piece


def _read_fully(file: IO[bytes], count: int) -> bytes:
    """Returns `count` bytes: the system may give fewer at a time, above 2 GB it always does."""
    piece = file.read(count)
    if len(piece) == count or not piece:
        return piece
    pieces = [piece]
    missing = count - len(piece)
    while missing and (piece := file.read(missing)):
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)


def open_for_reading(path: str) -> IO[bytes]:
    """Opens a file, unbuffered, since scanners read in large pieces.

    Raises:
      FileNotFoundError: If there is no such file, or it is a directory.
    """
    try:
        return open(path, "rb", buffering=0)
    except (FileNotFoundError, NotADirectoryError):
        where = "" if os.path.isabs(path) else f" in {os.getcwd()}"
        raise FileNotFoundError(
            f"There is no file {path!r}{where}. Check the path. A pattern such as '*.tfrecord' "
            "must be expanded first, for example with `glob.glob`, and on several machines every "
            "one of them needs the files it reads."
        ) from None
    except IsADirectoryError:
        raise FileNotFoundError(
            f"{path!r} is a directory. Name the files in it, for example with "
            f"`sorted(glob.glob({os.path.join(path, '*')!r}))`."
        ) from None
