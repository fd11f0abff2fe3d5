"""The checksum of TFRecord files: CRC-32C, turned and shifted ("masked") as TensorFlow does."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

_MASK = 0xA282EAD8


@functools.cache
def crc32c() -> Callable[[bytes | memoryview], int]:
    """Returns the function of the package `crc32c`, which is loaded when it is needed."""
    from crc32c import crc32c as function

    return function


def masked(crc: int) -> int:
    """Returns the checksum as it stands in a file, given the plain one."""
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def plain(crc: np.ndarray) -> np.ndarray:
    """Returns the inverse of `masked`, for an array of uint32."""
    turned = crc - np.uint32(_MASK)
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
