"""CRC-32C, the checksum of checkpoints and of TensorFlow's files."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

MASK = 0xA282EAD8


@functools.cache
def crc32c() -> Callable[..., int]:
    """Returns the function of the package `crc32c`, which is loaded when it is needed.

    It takes the bytes, and the checksum of those before them.
    """
    from crc32c import crc32c as function

    return function


def checksum_of(data: bytes | bytearray | memoryview | np.ndarray, start: int = 0) -> int:
    """Returns the checksum of some bytes; `start` is that of the bytes before them."""
    return crc32c()(data, start)


def masked(crc: int) -> int:
    """Returns a checksum as it stands in TensorFlow's files, turned and shifted."""
    return ((crc >> 15 | crc << 17) + MASK) & 0xFFFFFFFF
