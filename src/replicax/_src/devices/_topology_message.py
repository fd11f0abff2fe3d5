"""A topology as bytes: TensorFlow's `TopologyProto`, four fields of small integers, by hand.

Protobuf's wire format is a sequence of fields. A field begins with its number and its wire type in
one varint; an integer follows as a varint, everything else with its length or of a fixed size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_MESH_SHAPE, _NUM_TASKS, _NUM_DEVICES_PER_TASK, _DEVICE_COORDINATES = 1, 2, 3, 4
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5  # wire types


def write_topology(
    mesh_shape: Iterable[int], tasks: int, devices_per_task: int, coordinates: Iterable[int]
) -> bytes:
    """Returns the bytes that TensorFlow writes for the same topology."""
    return (
        _list_field(_MESH_SHAPE, mesh_shape)
        + _number_field(_NUM_TASKS, tasks)
        + _number_field(_NUM_DEVICES_PER_TASK, devices_per_task)
        + _list_field(_DEVICE_COORDINATES, coordinates)
    )


def read_topology(serialized: bytes) -> tuple[list[int], int, int, list[int]]:
    """Returns what `write_topology` was given; nothing but the form is checked.

    Raises:
      ValueError: The bytes are no such message.
    """
    lists: dict[int, list[int]] = {_MESH_SHAPE: [], _DEVICE_COORDINATES: []}
    numbers: dict[int, int] = {_NUM_TASKS: 0, _NUM_DEVICES_PER_TASK: 0}
    try:
        for field, value in _fields(serialized):
            if field in lists:
                lists[field] += [value] if isinstance(value, int) else _numbers(value)
            elif field in numbers and isinstance(value, int):
                numbers[field] = value
    except IndexError:
        raise ValueError(
            f"`serialized` is not a serialized topology: {len(serialized)} bytes that end in the "
            "middle of a field. Pass what `topology.serialized()` returned."
        ) from None
    return (
        lists[_MESH_SHAPE],
        numbers[_NUM_TASKS],
        numbers[_NUM_DEVICES_PER_TASK],
        lists[_DEVICE_COORDINATES],
    )


def _list_field(field: int, numbers: Iterable[int]) -> bytes:
    content = b"".join(_varint(number) for number in numbers)
    return _varint(field << 3 | _BYTES) + _varint(len(content)) + content if content else b""


def _number_field(field: int, number: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(number) if number else b""


def _varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        wire_type = tag & 7
        if wire_type == _VARINT:
            value, at = _read_varint(message, at)
            yield tag >> 3, _as_int32(value)
            continue
        if wire_type == _BYTES:
            size, at = _read_varint(message, at)
        elif wire_type in (_EIGHT_BYTES, _FOUR_BYTES):
            size = 8 if wire_type == _EIGHT_BYTES else 4
        else:
            raise ValueError(
                f"`serialized` is not a serialized topology: a field has the wire type "
                f"{wire_type}. Pass what `topology.serialized()` returned."
            )
        if at + size > len(message):
            raise IndexError
        if wire_type == _BYTES:
            yield tag >> 3, message[at : at + size]
        at += size


def _numbers(packed: bytes) -> list[int]:
    found: list[int] = []
    at = 0
    while at < len(packed):
        value, at = _read_varint(packed, at)
        found.append(_as_int32(value))
    return found


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    """Returns the number that begins at a place, and the place after it."""
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _as_int32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
