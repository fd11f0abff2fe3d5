"""The values of records in rows inside of rows, by the partitions of a `RaggedFeature`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from replicax._src.records._features import PaddedRows, RaggedFeature, empty_value
from replicax._src.records._partitions import UniformRowLength


def in_rows(key: str, feature: RaggedFeature, found: Any, others: Mapping[str, Any]) -> PaddedRows:
    """Divides the values of a record, or those of each of a batch, into rows.

    Args:
      key: The name of the feature.
      feature: With partitions.
      found: Its values: an array, of one record, or `PaddedRows`.
      others: What the partitions name, in the same form.

    Raises:
      ValueError: A partition does not fit the values.
    """
    values = _of_records(found)
    named = {name: _of_records(each) for name, each in others.items()}
    levels: list[list[np.ndarray]] = []  # the lengths of rows, innermost first, of each record
    counts = [len(each) for each in values]
    for part in reversed(feature.partitions):
        level: list[np.ndarray] = []
        for number, count in enumerate(counts):
            nothing = np.empty(0, np.int64)
            given = nothing if isinstance(part, UniformRowLength) else named[part.key][number]
            try:
                level.append(part.lengths(given, count))
            except ValueError as error:
                raise ValueError(
                    f"The feature {key!r} of record {number} cannot be divided by {part}: {error}."
                ) from None
        levels.append(level)
        counts = [len(each) for each in level]
    lengths = [np.concatenate(level) if level else np.empty(0, np.int64) for level in levels]
    if isinstance(found, PaddedRows):
        lengths.append(np.array(counts, np.int64))
    flat = np.concatenate(values) if values else found.rows.reshape(-1)
    return _padded(flat, lengths, feature.row_splits_dtype)


def _of_records(found: Any) -> list[np.ndarray]:
    """Returns the values of each record."""
    if not isinstance(found, PaddedRows):
        return [found]
    return [row[:length] for row, length in zip(*found)]


def _padded(flat: np.ndarray, lengths: list[np.ndarray], dtype: str) -> PaddedRows:
    """Returns values in rows of these lengths, the innermost first, filled up with nothing."""
    rows = flat
    for each in lengths:
        rows = _filled(rows, each)
    inner = lengths[0].astype(dtype)
    if len(lengths) == 1:
        return PaddedRows(rows, inner)
    deeper: Any = _padded(inner, lengths[1:], dtype)
    return PaddedRows(rows, deeper)


def _filled(items: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns items, which may be arrays, in rows that are filled up to the longest."""
    longest = int(lengths.max(initial=0))
    rows = np.full((len(lengths), longest, *items.shape[1:]), empty_value(items.dtype), items.dtype)
    rows[np.arange(longest) < lengths[:, None]] = items
    return rows
