"""Examples made by protobuf, and by hand in forms that protobuf's own writer never uses."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from replicax._src.records import (
    BytesList,
    Example,
    Feature,
    Features,
    FloatList,
    Int64List,
)


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, content: bytes) -> bytes:
    """A field that has a length."""
    return bytes([8 * number + 2]) + varint(len(content)) + content


def entry(key: bytes, value: bytes) -> bytes:
    return field(1, field(1, key) + field(2, value))


def record(*entries: bytes) -> bytes:
    """An `Example` of entries as they are."""
    return field(1, b"".join(entries))


def floats(*values: float) -> bytes:
    return np.array(values, "<f4").tobytes()


def packed_floats(*values: float) -> bytes:
    """A `Feature` of floats in the usual form."""
    return field(2, field(1, floats(*values)))


def unpacked_floats(*values: float) -> bytes:
    """A `Feature` of floats, each in a field of its own."""
    return field(2, b"".join(b"\x0d" + floats(value) for value in values))


def feature(values: Iterable[Any], kind: str | None = None) -> Any:
    """A `Feature` of the given values; of the given kind if there are none."""
    values = list(values)
    first = values[0] if values else {"float": 0.0, "int64": 0, "bytes": b""}[kind or "float"]
    if isinstance(first, bytes):
        return Feature(bytes_list=BytesList(value=values))
    if isinstance(first, int | np.integer):
        return Feature(int64_list=Int64List(value=values))
    return Feature(float_list=FloatList(value=values))


def example(**features: Any) -> bytes:
    """A serialized `Example`; a list becomes a feature."""
    made = {
        name: value if isinstance(value, Feature) else feature(value)
        for name, value in features.items()
    }
    return Example(features=Features(feature=made)).SerializeToString()
