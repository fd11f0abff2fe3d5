"""Finds the records in a piece of a TFRecord file and compares their checksums.

In Python, the walk from length to length is a short loop, the checksums of all lengths are one
NumPy expression, and only those of the contents are calls, one for each record.
"""

from __future__ import annotations

import enum
import functools
import struct
from typing import NamedTuple

import numpy as np

from replicax._src._checksums import MASK, crc32c
from replicax._src.records import _native

HEADER_BYTES = 12  # the length and its checksum
OVERHEAD = 16  # and the checksum of the content

_LENGTH = struct.Struct("<Q")


class FrameProblem(enum.Enum):
    """What does not match its checksum."""

    LENGTH = "length"
    CONTENT = "content"


_PROBLEMS = (None, FrameProblem.LENGTH, FrameProblem.CONTENT)  # by the numbers of the library


class Frames(NamedTuple):
    """The complete records at the beginning of a piece.

    Attributes:
      starts: Where the content of each starts; int64.
      lengths: How long it is; int64.
      end: Where the first record begins that is not complete, or corrupted.
      problem: What does not match its checksum in the record at `end`, or None.
    """

    starts: np.ndarray
    lengths: np.ndarray
    end: int
    problem: FrameProblem | None


def length_at(piece: bytes, position: int) -> int:
    """Returns the length of the record that begins at `position`."""
    return _LENGTH.unpack_from(piece, position)[0]


def find_frames(piece: bytes, verify: bool, native: bool | None) -> Frames:
    """Finds all complete records of `piece`.

    Args:
      piece: Bytes that begin with a record.
      verify: Whether to compare the checksums.
      native: Whether to use the compiled helper; None: if it is there.
    """
    library = _native.library(native)
    if library is not None:
        starts, lengths, end, problem = library.find_frames(np.frombuffer(piece, np.uint8), verify)
        return Frames(starts, lengths, end, _PROBLEMS[problem])
    starts, lengths, end = _walk(piece)
    # The record that is not complete must have a true length, or more would be read for nothing.
    hanging = [end] if len(piece) - end >= HEADER_BYTES else []
    if not verify:
        return Frames(starts, lengths, end, None)
    array = np.frombuffer(piece, np.uint8)
    heads = np.concatenate([starts - HEADER_BYTES, np.array(hanging, np.int64)])
    good, problem = _first_false(_lengths_match(array, heads)), None
    if good < len(heads):
        problem = FrameProblem.LENGTH
    checked = min(good, len(starts))
    bad = _first_wrong(piece, starts[:checked], lengths[:checked])
    if bad < checked:
        good, problem = bad, FrameProblem.CONTENT
    if problem:
        end = int(heads[good])
    return Frames(starts[:good], lengths[:good], end, problem)


def _walk(piece: bytes) -> tuple[np.ndarray, np.ndarray, int]:
    """Goes from length to length, to the end of the piece."""
    starts: list[int] = []
    lengths: list[int] = []
    unpack, size = _LENGTH.unpack_from, len(piece)
    position, last = 0, size - OVERHEAD
    while position <= last:
        length = unpack(piece, position)[0]
        following = position + OVERHEAD + length
        if following > size:
            break
        starts.append(position + HEADER_BYTES)
        lengths.append(length)
        position = following
    return np.array(starts, np.int64), np.array(lengths, np.int64), position


def _lengths_match(array: np.ndarray, heads: np.ndarray) -> np.ndarray:
    """Returns which records, by where they begin, have a length that matches its checksum."""
    rows = array[heads[:, None] + np.arange(HEADER_BYTES)]
    stored = np.ascontiguousarray(rows[:, 8:]).view("<u4")[:, 0].astype(np.uint32)
    return of_lengths(rows[:, :8]) == plain(stored)


def _first_wrong(piece: bytes, starts: np.ndarray, lengths: np.ndarray) -> int:
    """Returns the number of the first content that does not match its checksum, or of all."""
    if not len(starts):
        return 0
    array = np.frombuffer(piece, np.uint8)
    ends = starts + lengths
    stored = array[ends[:, None] + np.arange(4)].view("<u4")[:, 0].astype(np.uint32)
    crc, view = crc32c(), memoryview(piece)
    found = [crc(view[start:end]) for start, end in zip(starts.tolist(), ends.tolist())]
    return _first_false(np.array(found, np.uint32) == plain(stored))


def _first_false(which: np.ndarray) -> int:
    return len(which) if which.all() else int(which.argmin())


# ------------------------------------------------------------------ checksums
# They are CRC-32C, turned and shifted ("masked") as TensorFlow does.


def plain(crc: np.ndarray) -> np.ndarray:
    """Returns the inverse of `masked`, for an array of uint32."""
    turned = crc - np.uint32(MASK)
    return turned << np.uint32(15) | turned >> np.uint32(17)


def of_lengths(lengths: np.ndarray) -> np.ndarray:
    """Returns the plain checksums of 8-byte numbers; `lengths` is uint8 of shape (n, 8).

    CRC is linear: the checksum of eight bytes is the exclusive or of those of each byte alone.
    """
    table = _table()
    crc = np.full(len(lengths), _of_zeros(), np.uint32)
    for place in range(8):
        crc ^= table[place][lengths[:, place]]
    return crc


@functools.cache
def _of_zeros() -> int:
    return crc32c()(bytes(8))


@functools.cache
def _table() -> np.ndarray:
    """Returns what the byte `b` at place `p` changes in the checksum of eight bytes, at [p, b]."""
    crc = crc32c()
    rows = [[crc(bytes(p) + bytes([b]) + bytes(7 - p)) for b in range(256)] for p in range(8)]
    return np.array(rows, np.uint32) ^ np.uint32(_of_zeros())
