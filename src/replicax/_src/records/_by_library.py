"""Examples as arrays by the compiled helper, if all of them are regular and as the features say.

If anything is out of the ordinary, nothing is said about it: protobuf reads the batch again
(`_by_protobuf.py`), and finds either another form that is allowed or the error to raise. So there
is one meaning of a record, the one that protobuf gives it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from replicax._src._arrays import STRING
from replicax._src.records._features import KIND_OF, Column, FeatureConfig, FixedLenFeature, Kind
from replicax._src.records._native import Library, Plan
from replicax._src.records._records import Records, slices_of


def read_rows(
    library: Library, records: Records, features: Mapping[str, FeatureConfig]
) -> dict[str, np.ndarray] | None:
    """Reads features of fixed length that are all there, in one call of the library.

    Every step of `read_columns` costs a few microseconds for a batch, whatever its size.

    Returns:
      What `parse_example` returns; None if it is not as simple as that.
    """
    wanted = tuple(features.items())
    fixed = [feature for _, feature in wanted if isinstance(feature, FixedLenFeature)]
    if len(fixed) < len(wanted):
        return None
    count = len(records)
    columns: list[np.ndarray] = [
        np.empty((2, count * feature.size), np.int64)
        if feature.dtype == STRING
        else np.empty((count, *feature.shape), feature.dtype)
        for feature in fixed
    ]
    plan = _plan(tuple((name, f.dtype, f.size) for (name, _), f in zip(wanted, fixed)))
    if not library.read_rows(records, plan, columns):
        return None
    for number, feature in enumerate(fixed):
        if feature.dtype == STRING:
            strings = _strings(records, *columns[number])
            columns[number] = strings.reshape(count, *feature.shape)
    return {name: column for (name, _), column in zip(wanted, columns)}


@functools.lru_cache(maxsize=64)
def _plan(wanted: tuple[tuple[str, np.dtype, int], ...]) -> Plan:
    names, dtypes, sizes = zip(*wanted)
    return Plan([name.encode() for name in names], [KIND_OF[dtype] for dtype in dtypes], sizes)


def read_columns(
    library: Library, records: Records, features: Mapping[str, FeatureConfig]
) -> list[Column] | None:
    """Reads the values of each feature; returns None if protobuf must read them."""
    lists = library.find_lists(records, [name.encode() for name in features])
    if lists is None:
        return None
    columns: list[Column] = []
    for feature, kinds, starts, lengths in zip(features.values(), *lists):
        present = kinds == KIND_OF[feature.dtype]
        if present.all():
            present = None
        elif (kinds[~present] != Kind.MISSING).any():
            return None
        else:
            starts, lengths = starts[present], lengths[present]
        found = library.read_lists(records.bytes_of_buffer, starts, lengths, KIND_OF[feature.dtype])
        if found is None:
            return None
        values, counts = found
        if feature.dtype == STRING:
            values = _strings(records, *values)
        columns.append(Column(values, counts, present))
    return columns


def _strings(records: Records, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    strings = np.empty(len(starts), STRING)
    strings[:] = slices_of(records.buffer, starts, lengths)
    return strings
