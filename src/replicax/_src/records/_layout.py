"""Where the lists of values are in the records of a batch: the first half of parsing examples.

An `Example` is regular if it is what all common writers write: features one after the other, each a
name and then one list. The place of a list in a regular record is two numbers. Any other form that
protobuf allows, and anything malformed, is *odd*; `_regular.py` deals with it, slowly.

Records of the same length nearly always have the same layout. So one of them is walked through, and
all whose bytes between the lists are the same have their lists in the same places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from replicax._src.records import _native
from replicax._src.records._records import Records

# The tags of the three lists in a `Feature` are 8 * kind + 2. Kind 0: the feature is not there.
MISSING, BYTES, FLOAT, INT = range(4)
TAG_1, TAG_2 = 0x0A, 0x12  # of the fields 1 and 2, if they have a length
_TAGS_OF_LISTS = (8 * BYTES + 2, 8 * FLOAT + 2, 8 * INT + 2)
_FEW = 7  # records of one length: not worth a comparison
_MANY = 8  # times more records are left than had the last layout: layouts differ, stop comparing


class Lists(NamedTuple):
    """Where the lists are. Rows are features, columns are records.

    Attributes:
      kinds: MISSING, BYTES, FLOAT or INT; int8.
      starts: Where a list starts in the buffer of the records: its first number, or the message of
        byte strings; int64.
      lengths: How many bytes it is; int64.
      odd: Which records are not regular; one bool for each record.
    """

    kinds: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    odd: np.ndarray


class Layout(NamedTuple):
    """What one walk finds: (kind, start, length) of lists by feature, and values to pass over."""

    lists: dict[int, tuple[int, int, int]]
    ignored: list[tuple[int, int]]


def find_lists(records: Records, keys: Sequence[bytes], native: bool | None) -> Lists:
    """Finds the lists of the features named by `keys` in all records."""
    count = len(records)
    found = Lists(
        np.zeros((len(keys), count), np.int8),
        np.zeros((len(keys), count), np.int64),
        np.zeros((len(keys), count), np.int64),
        np.zeros(count, np.bool_),
    )
    library = _native.library(native)
    if library is not None:
        library.find_lists(
            records.bytes_of_buffer, records.starts, records.lengths, keys, found.odd, *found[:3]
        )
        return found
    numbers = {key: number for number, key in enumerate(keys)}
    buffer = records.bytes_of_buffer
    alone: list[int] = []  # records to walk through one by one
    for rest in _of_equal_length(records.lengths):
        fitted = rest.size
        while rest.size > _FEW and fitted * _MANY > rest.size:
            first, rest = int(rest[0]), rest[1:]
            layout = _walk_record(records, first, numbers)
            if layout is None:
                found.odd[first] = True
                continue
            fits = _fitting(buffer, records, first, rest, layout)
            same, rest = np.append(first, rest[fits]), rest[~fits]
            fitted = same.size
            offsets = records.starts[same] - records.starts[first]
            for number, (kind, start, length) in layout.lists.items():
                found.kinds[number, same] = kind
                found.starts[number, same] = start + offsets
                found.lengths[number, same] = length
        alone.extend(rest.tolist())
    _walk_all(records, alone, numbers, found)
    return found


def _walk_all(records: Records, alone: list[int], numbers: dict[bytes, int], found: Lists) -> None:
    """Walks through some records and notes what it finds; all at the end, which is faster."""
    rows: list[tuple[int, int, int, int, int]] = []
    for index in alone:
        layout = _walk_record(records, index, numbers)
        if layout is None:
            found.odd[index] = True
        else:
            rows.extend((index, number, *place) for number, place in layout.lists.items())
    if rows:
        index, number, kinds, starts, lengths = np.array(rows, np.int64).T
        found.kinds[number, index] = kinds
        found.starts[number, index] = starts
        found.lengths[number, index] = lengths


def _of_equal_length(lengths: np.ndarray) -> list[np.ndarray]:
    """The indices of the records, grouped by length."""
    if not lengths.size:
        return []
    if (lengths == lengths[0]).all():
        return [np.arange(lengths.size)]
    order = np.argsort(lengths, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1)


def _fitting(
    buffer: np.ndarray, records: Records, first: int, others: np.ndarray, layout: Layout
) -> np.ndarray:
    """Which of the others have the bytes of `first` everywhere outside of its lists."""
    start = int(records.starts[first])
    fixed = np.ones(int(records.lengths[first]), np.bool_)
    for _, list_start, length in layout.lists.values():
        fixed[list_start - start : list_start - start + length] = False
    for value_start, value_end in layout.ignored:
        fixed[value_start - start : value_end - start] = False
    places = np.flatnonzero(fixed)
    rows = buffer[records.starts[others][:, None] + places]
    return (rows == buffer[start + places]).all(axis=1)


def _walk_record(records: Records, index: int, numbers: dict[bytes, int]) -> Layout | None:
    start, length = int(records.starts[index]), int(records.lengths[index])
    buffer = records.buffer
    if not isinstance(buffer, bytes):  # a memoryview would give slow slices
        record = buffer[start : start + length].tobytes()
        layout = walk(record, 0, length, numbers)
        if layout is None:
            return None
        return Layout(
            {k: (kind, at + start, size) for k, (kind, at, size) in layout.lists.items()},
            [(begin + start, end + start) for begin, end in layout.ignored],
        )
    return walk(buffer, start, start + length, numbers)


def walk(buffer: bytes, start: int, stop: int, numbers: dict[bytes, int]) -> Layout | None:
    """Walks through the `Example` at `start` to `stop`; None if it is odd.

    Args:
      buffer: The bytes.
      start: Where the record starts.
      stop: Where it ends; nothing behind it is looked at.
      numbers: The features to look for, by name.
    """
    lists: dict[int, tuple[int, int, int]] = {}
    ignored: list[tuple[int, int]] = []
    if start == stop:
        return Layout(lists, ignored)
    position, end = field_at(buffer, start, stop, TAG_1)
    if end != stop:
        return None
    while position < stop:
        position, entry = field_at(buffer, position, stop, TAG_1)
        key, key_end = field_at(buffer, position, entry, TAG_1)
        value, value_end = field_at(buffer, key_end, entry, TAG_2)
        if value_end < 0 or value_end != entry:
            return None
        number = numbers.get(buffer[key:key_end])
        if number is None:
            ignored.append((value, value_end))
        elif value == value_end:  # a feature without a list counts as missing
            lists.pop(number, None)
        else:
            tag = buffer[value]
            content, end = field_at(buffer, value, value_end, tag)
            if tag not in _TAGS_OF_LISTS or end != value_end:
                return None
            if tag != TAG_1 and content < end:  # numbers: all in one field
                content, end = field_at(buffer, content, value_end, TAG_1)
                if end != value_end:
                    return None
            lists[number] = (tag >> 3, content, end - content)  # of several, the last one counts
        position = entry
    return Layout(lists, ignored)


def field_at(buffer: bytes, position: int, stop: int, tag: int) -> tuple[int, int]:
    """Where the content of the field at `position` starts and ends; (-1, -1) if it is odd.

    Lengths of more than four bytes are odd: protobuf is not quite clear about them.
    """
    if position < 0 or position + 2 > stop or buffer[position] != tag:
        return -1, -1
    length = buffer[position + 1]
    position += 2
    if length >= 0x80:
        length &= 0x7F
        for shift in (7, 14, 21):
            if position >= stop:
                return -1, -1
            byte = buffer[position]
            position += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            return -1, -1
    end = position + length
    return (position, end) if end <= stop else (-1, -1)
