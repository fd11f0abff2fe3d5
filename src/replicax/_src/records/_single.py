"""One record at a time: NumPy is for many values, so what is not an array here is plain Python.

Only for regular records in which everything is as the features say. The others take the way of a
batch of one, which knows all forms and all errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from replicax._src._arrays import STRING
from replicax._src.records._features import (
    FLOAT32,
    INT64,
    Feature,
    FixedLenFeature,
    VarLenFeature,
)
from replicax._src.records._layout import TAG_1, field_at, walk
from replicax._src.records._sparse import SparseTensor
from replicax._src.records._values import KIND_OF


def read_one(record: bytes, features: Mapping[str, Feature]) -> dict[str, Any] | None:
    """What `parse_single_example` returns, or None if a batch of one must find out."""
    numbers = {name.encode(): number for number, name in enumerate(features)}
    layout = walk(record, 0, len(record), numbers)
    if layout is None:
        return None
    result: dict[str, Any] = {}
    for number, (name, feature) in enumerate(features.items()):
        kind, start, length = layout.lists.get(number, (None, 0, 0))
        fixed = isinstance(feature, FixedLenFeature)
        if kind is None and fixed:
            if feature.default_row is None:
                return None
            row = feature.default_row
            result[name] = row.copy() if feature.shape else row[()]
            continue
        values = _values(record, start, start + length, feature.dtype)
        if values is None or kind not in (None, KIND_OF[feature.dtype]):
            return None
        if isinstance(feature, VarLenFeature):
            count = len(values)
            result[name] = SparseTensor(
                np.arange(count)[:, None], values, np.array([count], np.int64)
            )
        elif len(values) != feature.size if fixed else len(values) % feature.size:
            return None
        elif fixed:
            result[name] = values.reshape(feature.shape) if feature.shape else values[0]
        else:
            result[name] = values.reshape(-1, *feature.shape)
    return result


def _values(record: bytes, start: int, stop: int, dtype: np.dtype) -> np.ndarray | None:
    """The values of a list, or None if it is odd."""
    if dtype == FLOAT32:
        if (stop - start) % 4:
            return None
        return np.frombuffer(record[start:stop], "<f4").astype(FLOAT32)
    values = _strings(record, start, stop) if dtype == STRING else _integers(record, start, stop)
    if values is None:
        return None
    array = np.empty(len(values), STRING if dtype == STRING else INT64)
    array[:] = values
    return array


def _strings(record: bytes, position: int, stop: int) -> list[bytes] | None:
    strings = []
    while position < stop:
        start, position = field_at(record, position, stop, TAG_1)
        if position < 0:
            return None
        strings.append(record[start:position])
    return strings


def _integers(record: bytes, position: int, stop: int) -> list[int] | None:
    integers = []
    value = shift = 0
    for byte in record[position:stop]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if value >> 64:
                return None
            integers.append(value - (1 << 64) if value >> 63 else value)
            value = shift = 0
        elif shift == 70:  # ten bytes are the most
            return None
    return None if shift else integers
