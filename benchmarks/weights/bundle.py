"""Writes a checkpoint in TensorFlow's form, so that both sides have the same to read."""

import struct
from pathlib import Path

import numpy as np


def write_bundle(prefix: Path, arrays: dict[str, np.ndarray]) -> None:
    """Writes float32 arrays, under these names in order, as one index and one file of data."""
    entries = [(b"", _field(1, 1) + _bytes(3, _field(1, 1)))]  # one shard, version 1
    offset = 0
    with open(f"{prefix}.data-00000-of-00001", "wb") as data:
        for name, array in sorted(arrays.items()):
            content = array.tobytes()
            shape = b"".join(_bytes(2, _field(1, size)) for size in array.shape)
            entry = _field(1, 1) + _bytes(2, shape) + _field(4, offset) + _field(5, len(content))
            entry += bytes([6 << 3 | 5]) + struct.pack("<I", _checksum(content))
            entries.append((name.encode(), entry))
            offset += data.write(content)
    block = _block(entries)
    start = _varint(0) + _varint(len(block) - 5)
    empty = _block([])
    index = _block([(entries[-1][0], start)])
    footer = _varint(len(block)) + _varint(len(empty) - 5)
    footer += _varint(len(block) + len(empty)) + _varint(len(index) - 5)
    mark = struct.pack("<Q", 0xDB4775248B80FB57)
    Path(f"{prefix}.index").write_bytes(block + empty + index + footer.ljust(40, b"\0") + mark)


def _block(entries: list[tuple[bytes, bytes]]) -> bytes:
    """A block in which no key shares anything with the one before: each is a restart."""
    content, restarts = b"", []
    for key, value in entries:
        restarts.append(len(content))
        content += _varint(0) + _varint(len(key)) + _varint(len(value)) + key + value
    restarts = restarts or [0]
    content += struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts)) + b"\0"
    return content + struct.pack("<I", _checksum(content))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _bytes(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _checksum(content: bytes) -> int:
    import crc32c  # only this benchmark needs it, and the harness imports them all

    crc = crc32c.crc32c(content)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
