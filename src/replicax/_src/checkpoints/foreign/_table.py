"""Tables of blocks: sorted keys and their values in one file, as TensorFlow stores its indexes.

A file is a row of blocks and a footer. The footer says where the index block is, which says where
the others are; each has a checksum. Keys are stored as what they do not share with the one before.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import final

from replicax._src._checksums import checksum_of, masked

_FOOTER = 48  # bytes: two handles with padding, and the mark
_MARK = 0xDB4775248B80FB57
_TRAILER = 5  # bytes after a block: how it is compressed, and its checksum
_PLAIN = 0
_MOST_KEYS = 64  # times the bytes of a table: one key in 16 is written whole


@final
class TableError(ValueError):
    """A table is not what was once written; the text says where."""


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns a number of seven bits to a byte, and where it ends; `TableError` if it does not."""
    value = shift = 0
    while position < len(data) and shift < 64:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value, position
        shift += 7
    raise TableError("a number has no end")


def read_table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the keys and values of a table, in order.

    Args:
      data: the whole file.

    Raises:
      TableError: something does not fit: a mark, a checksum, a length.
    """
    if len(data) < _FOOTER or struct.unpack_from("<Q", data, len(data) - 8)[0] != _MARK:
        raise TableError("it does not end as a table does: it is cut off, or no table")
    footer = data[-_FOOTER:-8]
    _, position = _handle(footer, 0)  # of a block about blocks, which is empty
    index, _ = _handle(footer, position)
    last: bytes | None = None
    room = _MOST_KEYS * len(data)
    for _, handle in _entries(_block(data, *index)):
        for key, value in _entries(_block(data, *_handle(handle, 0)[0])):
            if last is not None and key <= last:
                raise TableError("its keys are not in order")
            last = key
            room -= len(key)
            if room < 0:
                raise TableError("its keys are too long for its size")
            yield key, value


def _handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    """Returns where a block is and how long, and where the handle ends."""
    start, position = read_varint(data, position)
    size, position = read_varint(data, position)
    return (start, size), position


def _block(data: bytes, start: int, size: int) -> bytes:
    end = start + size + _TRAILER
    if end > len(data) - _FOOTER:
        raise TableError(f"a block of {size} bytes at {start} reaches beyond its end")
    stored = struct.unpack_from("<I", data, end - 4)[0]
    if masked(checksum_of(data[start : end - 4])) != stored:
        raise TableError(f"the checksum of the block at {start} does not fit its content")
    if data[start + size] != _PLAIN:
        raise TableError(
            f"the block at {start} is compressed (kind {data[start + size]}), which TensorFlow's "
            "checkpoints are not"
        )
    return data[start : start + size]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    if len(block) < 4:
        raise TableError("a block is too short")
    restarts = struct.unpack_from("<I", block, len(block) - 4)[0]
    end = len(block) - 4 * (restarts + 1)
    if end < 0:
        raise TableError("a block is too short")
    key, position = b"", 0
    while position < end:
        shared, own, length = block[position : position + 3]  # in `end` and the restarts
        if shared | own | length < 0x80:  # most are of one byte
            position += 3
        else:
            shared, position = read_varint(block, position)
            own, position = read_varint(block, position)
            length, position = read_varint(block, position)
        if shared > len(key) or position + own + length > end:
            raise TableError("an entry reaches beyond its block")
        key = key[:shared] + block[position : position + own]
        yield key, block[position + own : position + own + length]
        position += own + length
