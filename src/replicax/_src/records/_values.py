"""The values in the lists that `_layout.py` found: the second half of parsing examples.

All lists of one feature are decoded together, into one flat array and a number of values for each
record. What the feature is (fixed, sparse, padded) is none of the business here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from replicax._src._arrays import STRING
from replicax._src.records import _native
from replicax._src.records._features import FLOAT32, INT64
from replicax._src.records._layout import BYTES, FLOAT, INT
from replicax._src.records._records import Records, slices_of

KIND_OF = {STRING: BYTES, FLOAT32: FLOAT, INT64: INT}
_TAG_1 = 0x0A  # of each string in a list
_SHORT = 16  # bytes: below this, an index for each byte is faster than a slice for each piece


class Values(NamedTuple):
    """The values of many lists.

    Attributes:
      flat: All values, list after list.
      counts: How many each list has; int64.
      odd: Which lists are not regular, one bool for each, or None if all are. The other attributes
        mean nothing if one is odd.
    """

    flat: np.ndarray
    counts: np.ndarray
    odd: np.ndarray | None


def read_lists(
    records: Records,
    starts: np.ndarray,
    lengths: np.ndarray,
    dtype: np.dtype,
    native: bool | None,
) -> Values:
    """The values of the lists of `dtype` at the given places in the buffer of `records`."""
    library = _native.library(native)
    buffer = records.bytes_of_buffer
    if dtype == STRING:
        find_bytes = library.find_bytes if library else _find_bytes
        first, sizes, counts, odd = find_bytes(buffer, starts, lengths)
        flat = np.empty(len(first), STRING)
        flat[:] = slices_of(records.buffer, first, sizes)
        return Values(flat, counts, odd)
    if dtype == INT64:
        if library:
            return Values(*library.read_varints(buffer, starts, lengths))
        return _read_varints(_join(records, starts, lengths), lengths)
    odd = lengths % 4 != 0
    if odd.any():
        return Values(np.empty(0, dtype), lengths, odd)
    joined = library.join(buffer, starts, lengths) if library else _join(records, starts, lengths)
    joined = joined.view("<f4")
    return Values(joined.astype(FLOAT32, copy=False), lengths // 4, None)


def _join(records: Records, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Pieces of the buffer, one after the other; uint8."""
    total = int(lengths.sum())
    if not total:
        return np.zeros(0, np.uint8)
    buffer = records.bytes_of_buffer
    if total == lengths[0] * lengths.size and (lengths == lengths[0]).all():
        # Row i of `windows` are the bytes from i on. They overlap; only the wanted ones are copied.
        length = int(lengths[0])
        shape = (buffer.size - length + 1, length)
        windows = np.ndarray(shape, np.uint8, records.buffer, 0, (1, 1))
        return windows[starts].reshape(-1)
    if total < _SHORT * lengths.size:
        before = np.cumsum(lengths) - lengths
        return buffer[np.repeat(starts - before, lengths) + np.arange(total)]
    return np.frombuffer(bytearray().join(slices_of(records.buffer, starts, lengths)), np.uint8)


def _fields(
    buffer: np.ndarray, positions: np.ndarray, stops: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reads a tag 1 and a length at each position: where the content is, its size, all well?"""
    if not buffer.size:
        zeros = np.zeros_like(positions)
        return zeros, zeros, np.zeros(positions.shape, np.bool_)
    last = buffer.size - 1
    good = (positions + 2 <= stops) & (buffer[np.minimum(positions, last)] == _TAG_1)
    byte = buffer[np.minimum(positions + 1, last)]
    sizes = (byte & 0x7F).astype(np.int64)
    positions = positions + 2
    for shift in (7, 14, 21):
        more = (byte >= 0x80) & good
        if not more.any():
            break
        good &= ~more | (positions < stops)
        byte = np.where(more, buffer[np.minimum(positions, last)], 0)
        sizes |= (byte & 0x7F).astype(np.int64) << shift
        positions += more
    good &= (byte < 0x80) & (positions + sizes <= stops)
    return positions, sizes, good


def _read_varints(packed: np.ndarray, sizes: np.ndarray) -> Values:
    """Integers of 1 to 10 bytes, seven bits in each; the last byte of each is below 128."""
    is_last = packed < 0x80
    if is_last.all():
        return Values(packed.astype(INT64), sizes, None)
    ends = np.flatnonzero(is_last)
    lasts = np.append(0, np.cumsum(is_last))
    borders = np.append(0, np.cumsum(sizes))
    counts = np.diff(lasts[borders])
    odd = (sizes > 0) & ~is_last[np.maximum(borders[1:] - 1, 0)]
    begins = np.append(0, ends[:-1] + 1)
    widths = ends - begins + 1
    too_wide = (widths > 10) | ((widths == 10) & (packed[ends] > 1))
    if too_wide.any():
        odd[np.searchsorted(borders, begins[too_wide], side="right") - 1] = True
    if odd.any():
        return Values(np.empty(0, INT64), counts, odd)
    values = (packed[begins] & 0x7F).astype(np.uint64)
    for place in range(1, int(widths.max())):
        which = np.flatnonzero(widths > place)
        bits = (packed[begins[which] + place] & 0x7F).astype(np.uint64)
        values[which] |= bits << np.uint64(7 * place)
    return Values(values.view(INT64), counts, None)


def _find_bytes(
    buffer: np.ndarray, starts: np.ndarray, lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Where the byte strings of each list are, how long, how many, and which lists are odd.

    The first strings of all lists are read together, then all second ones, and so on.
    """
    count = len(starts)
    counts, odd = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    positions, stops = starts.copy(), starts + lengths
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    going = np.flatnonzero(positions < stops)
    while going.size:
        first, sizes, good = _fields(buffer, positions[going], stops[going])
        odd[going[~good]] = True
        going, first, sizes = going[good], first[good], sizes[good]
        found.append((going, first, sizes))
        counts[going] += 1
        positions[going] = first + sizes
        going = going[positions[going] < stops[going]]
    if odd.any() or not found:
        none = np.zeros(0, np.int64)
        return none, none, counts, odd if odd.any() else None
    owners, first, sizes = (np.concatenate(parts) for parts in zip(*found))
    if len(found) > 1:
        order = np.argsort(owners, kind="stable")
        first, sizes = first[order], sizes[order]
    return first, sizes, counts, None
