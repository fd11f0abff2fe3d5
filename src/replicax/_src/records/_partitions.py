"""How the values of a record are divided into rows: what `RaggedFeature(partitions=)` takes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Lengths = np.ndarray


class RowSplits(NamedTuple):
    """Rows by where they start, and where the last one ends."""

    key: str

    def lengths(self, given: np.ndarray, count: int) -> Lengths:
        return _between(given, count) if given.size or count else given


class RowLengths(NamedTuple):
    """Rows by their lengths."""

    key: str

    def lengths(self, given: np.ndarray, count: int) -> Lengths:
        return _checked(given, count)


class RowStarts(NamedTuple):
    """Rows by where they start."""

    key: str

    def lengths(self, given: np.ndarray, count: int) -> Lengths:
        return _between(np.append(given, count), count) if given.size or count else given


class RowLimits(NamedTuple):
    """Rows by where they end."""

    key: str

    def lengths(self, given: np.ndarray, count: int) -> Lengths:
        return _between(np.append(0, given), count)


class ValueRowIds(NamedTuple):
    """Rows by the number of the row of each value, in order."""

    key: str

    def lengths(self, given: np.ndarray, count: int) -> Lengths:
        if given.size != count or (np.diff(given, prepend=0) < 0).any():
            raise ValueError(f"it has {given.size} row numbers, in order, for {count} values")
        if count and given[-1] > _MOST_ROWS:
            raise ValueError(f"it has a row with the number {given[-1]}")
        return np.bincount(given) if count else given


class UniformRowLength(NamedTuple):
    """Rows of one length."""

    length: int

    def lengths(self, given: np.ndarray, count: int) -> Lengths:
        if self.length < 1 or count % self.length:
            raise ValueError(f"{count} values are no whole number of rows of {self.length}")
        return np.full(count // self.length, self.length, np.int64)


Partition = RowSplits | RowLengths | RowStarts | RowLimits | ValueRowIds | UniformRowLength
_MOST_ROWS = 1 << 24


def _between(limits: np.ndarray, count: int) -> Lengths:
    """Returns the lengths of rows that lie between limits, the first of which must be 0."""
    if not limits.size or limits[0] != 0:
        raise ValueError("its rows do not start at 0")
    if limits[-1] != count or (limits[1:] < limits[:-1]).any():
        raise ValueError(f"its rows do not end at {count}, in order")
    return np.diff(limits)


def _checked(lengths: np.ndarray, count: int) -> Lengths:
    if (lengths < 0).any() or (lengths > count).any() or lengths.sum() != count:
        raise ValueError(f"the lengths of its rows do not add up to {count}")
    return lengths
