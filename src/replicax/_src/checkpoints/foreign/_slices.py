"""Variables that were saved in slices: which part each is, and under which key the index has it.

Keys are in an encoding whose order is that of what they stand for: zero, the name, the number of
dimensions, then the start and the length in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, final

import numpy as np

FULL = -1  # the length of a slice that is as long as the whole

_HEADERS = (b"", b"\x80", b"\xc0", b"\xe0", b"\xf0", b"\xf8", b"\xfc", b"\xfe", b"\xff")


@final
class Part(NamedTuple):
    """A slice of a tensor: its start and length in each dimension."""

    starts: tuple[int, ...]
    lengths: tuple[int, ...]

    def __str__(self) -> str:
        ends = (
            ":" if length == FULL else f"{start}:{start + length}"
            for start, length in zip(self.starts, self.lengths)
        )
        return f"[{', '.join(ends)}]"

    def within(self, shape: tuple[int, ...]) -> tuple[slice, ...] | None:
        """Returns the part as NumPy takes it; None if it is not inside of such a tensor."""
        if len(self.starts) != len(shape):
            return None
        found = []
        for start, length, size in zip(self.starts, self.lengths, shape):
            end = size if length == FULL else start + length
            if not 0 <= start <= end <= size:
                return None
            found.append(slice(start, end))
        return tuple(found)

    def key(self, name: str) -> bytes:
        """Returns the key of this slice of the tensor `name`."""
        text = name.encode().replace(b"\xff", b"\xff\x00").replace(b"\x00", b"\x00\xff")
        key = b"\x00" + text + b"\x00\x01" + _count(len(self.starts))
        for start, length in zip(self.starts, self.lengths):
            key += _signed(start) + _signed(length)
        return key


def overlap(places: Sequence[tuple[slice, ...]]) -> bool:
    """Returns whether two of these parts of a tensor have something in common."""
    starts = np.array([[each.start for each in place] for place in places])
    stops = np.array([[each.stop for each in place] for place in places])
    for index in range(1, len(places)):
        common = np.minimum(stops[:index], stops[index]) - np.maximum(starts[:index], starts[index])
        if (common > 0).all(axis=1).any():
            return True
    return False


def part_of(message: Any) -> Part:
    """Returns the slice that a message describes."""
    starts, lengths = [], []
    for extent in message.extent:
        whole = extent.WhichOneof("kind") is None
        starts.append(0 if whole else extent.start)
        lengths.append(FULL if whole else extent.length)
    return Part(tuple(starts), tuple(lengths))


def _count(value: int) -> bytes:
    digits = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([len(digits)]) + digits


def _signed(value: int) -> bytes:
    """Returns a number in as few bytes as it needs; the first bits say how many."""
    bits = (~value if value < 0 else value).bit_length()
    length = bits // 7 + 1
    digits = bytearray(value.to_bytes(max(length, 8), "big", signed=True)[-length:])
    header = _HEADERS[length] if length < len(_HEADERS) else b"\xff" + _HEADERS[length - 8]
    for index, mark in enumerate(header):
        digits[index] ^= mark
    return bytes(digits)
