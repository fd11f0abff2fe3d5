"""`parse_example`: many serialized examples to NumPy arrays, all at once.

First `_layout.py` finds the lists, then `_values.py` reads them; here they get the shape that the
features ask for, and whatever does not fit becomes an error that names record and feature.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from replicax._src.records._features import (
    NAMES,
    Feature,
    FixedLenFeature,
    FixedLenSequenceFeature,
    VarLenFeature,
    check_features,
)
from replicax._src.records._layout import BYTES, FLOAT, INT, MISSING, Lists, find_lists
from replicax._src.records._record_array import RecordArray
from replicax._src.records._records import Records
from replicax._src.records._regular import make_regular, names_in
from replicax._src.records._rows import read_rows
from replicax._src.records._single import read_one
from replicax._src.records._sparse import SparseTensor
from replicax._src.records._unparsed import Unparsed
from replicax._src.records._values import KIND_OF, Values, read_lists

_KIND_NAMES = {BYTES: "string", FLOAT: "float32", INT: "int64"}


def parse_example(
    serialized: Records | Sequence[bytes] | np.ndarray | bytes,
    features: Mapping[str, Feature],
    example_names: Sequence[Any] | None = None,
    name: str | None = None,
    *,
    native: bool | None = None,
) -> dict[str, Any]:
    """Parses serialized `tf.train.Example`s into arrays whose first axis is that of the records.

    >>> from replicax._src.records import Example, Feature, Features, Int64List
    >>> def record(*ages):
    ...     ages = Feature(int64_list=Int64List(value=ages))
    ...     return Example(features=Features(feature={"ages": ages})).SerializeToString()
    >>> parse_example([record(1, 2), record(3, 4)], {"ages": FixedLenFeature([2], "int64")})
    {'ages': array([[1, 2], [3, 4]])}

    Features of a record that are not asked for are passed over. Bytes come as object arrays.

    Args:
      serialized: The records: a list, an object array, or `Records`.
      features: What each feature is: a `FixedLenFeature` gives an array of shape
        `(records, *shape)`, a `VarLenFeature` a `SparseTensor`, a `FixedLenSequenceFeature` a
        padded array of shape `(records, longest, *shape)`.
      example_names: What to call the records in errors.
      name: Has no effect here; taken so that calls can stay as they are.
      native: Whether to use the compiled helper; None: if it is there.

    Raises:
      ValueError: If a record is malformed, lacks a feature that has no default value, or holds a
        feature of another kind or another number of values.
    """
    if type(serialized) is Unparsed:
        return serialized.parsed(features)
    if isinstance(serialized, bytes):  # as in TensorFlow
        return parse_single_example(serialized, features, example_names, native=native)
    features = check_features(features)
    records = _as_records(serialized)
    title = _titles(example_names, len(records))
    if (rows := read_rows(records, features, native)) is not None:
        return rows
    keys = [name.encode() for name in features]
    while True:
        lists = find_lists(records, keys, native)
        columns, odd = _read(records, lists, features, native)
        if odd is None:
            break
        records = make_regular(records, odd, list(features), title)
    parser = _Parser(records, title)
    result = {}
    for number, (key, feature) in enumerate(features.items()):
        there, values = columns[number]
        parser.check_kinds(key, feature, lists.kinds[number])
        result[key] = parser.shape(key, feature, there, values)
    return result


def parse_single_example(
    serialized: bytes,
    features: Mapping[str, Feature],
    example_names: Any = None,
    name: str | None = None,
    *,
    native: bool | None = None,
) -> dict[str, Any]:
    """Parses one serialized `tf.train.Example` into a dict of arrays of the features' shapes.

    A `VarLenFeature` gives a `SparseTensor` of one dimension, a `FixedLenSequenceFeature` an array
    of shape `(rows, *shape)`, and a single value of bytes is just that. One record at a time is
    slow: where you can, collect a batch and call `parse_example`.

    Args:
      serialized: The bytes of the record.
      features: What each feature is, as in `parse_example`.
      example_names: What to call the record in errors.
      name: Has no effect here; taken so that calls can stay as they are.
      native: Whether to use the compiled helper; None: if it is there.

    Raises:
      ValueError: As in `parse_example`.
    """
    if type(serialized) is Unparsed and not serialized.is_batch:
        return serialized.parsed(features)
    if isinstance(serialized, np.ndarray) and serialized.ndim == 0:
        serialized = serialized.item()
    if not isinstance(serialized, bytes):
        raise TypeError(
            "`parse_single_example` takes the `bytes` of one record. Received "
            f"{type(serialized).__name__}: {serialized!r:.80}. For several records use "
            "`parse_example`."
        )
    features = check_features(features)
    if (values := read_one(serialized, features)) is not None:
        return values
    names = None if example_names is None else [example_names]
    batch = parse_example([serialized], features, names, native=native)
    return {key: _only(value) for key, value in batch.items()}


def _only(value: Any) -> Any:
    """The value of the only record in a batch."""
    if isinstance(value, SparseTensor):
        return SparseTensor(value.indices[:, 1:], value.values, value.dense_shape[1:])
    return value[0]


def _as_records(serialized: Any) -> Records:
    if isinstance(serialized, Records):
        return serialized
    if isinstance(serialized, RecordArray) and serialized.records is not None:
        return serialized.records
    if isinstance(serialized, np.ndarray):
        if serialized.dtype.kind == "S" and serialized.size:
            raise TypeError(
                f"`serialized` is an array of dtype {serialized.dtype}, which loses zero bytes at "
                "the end of a record. Pass a list, or an array of dtype object."
            )
        if serialized.ndim != 1:
            raise ValueError(
                "`serialized` must be a list of records, that is, have one dimension. "
                f"Received shape {serialized.shape}."
            )
        serialized = serialized.tolist()
    if not isinstance(serialized, Sequence) or isinstance(serialized, str):
        raise TypeError(
            "`serialized` is a list or an object array of `bytes`, or `Records`. "
            f"Received {type(serialized).__name__}: {serialized!r:.80}."
        )
    return Records.from_list(serialized)


def _titles(example_names: Sequence[Any] | None, count: int) -> Callable[[int], str]:
    """What to call a record in an error."""
    if example_names is None:
        return lambda number: f"record {number} of the batch"
    if len(example_names) != count:
        raise ValueError(
            f"`example_names` has {len(example_names)} names for {count} records. Give each one."
        )
    return lambda number: f"record {number} of the batch ({example_names[number]!r})"


def _read(
    records: Records, lists: Lists, features: Mapping[str, Feature], native: bool | None
) -> tuple[list[tuple[np.ndarray | None, Values]], np.ndarray | None]:
    """Reads all lists that are of the right kind.

    Returns:
      For each feature, which records have it (None: all) and the values; and which records are odd
      (None: none).
    """
    columns = []
    odd = lists.odd
    for number, feature in enumerate(features.values()):
        there = lists.kinds[number] == KIND_OF[feature.dtype]
        starts, lengths = lists.starts[number], lists.lengths[number]
        everywhere = bool(there.all())
        if not everywhere:
            starts, lengths = starts[there], lengths[there]
        values = read_lists(records, starts, lengths, feature.dtype, native)
        if values.odd is not None:
            odd = odd.copy()
            odd[np.flatnonzero(there)[values.odd]] = True
        columns.append((None if everywhere else there, values))
    return columns, odd if odd.any() else None


class _Parser:
    """Gives the values their shapes, and knows the records to speak of in errors."""

    def __init__(self, records: Records, title: Callable[[int], str]) -> None:
        self._records = records
        self._title = title

    def check_kinds(self, key: str, feature: Feature, kinds: np.ndarray) -> None:
        wrong = (kinds != KIND_OF[feature.dtype]) & (kinds != MISSING)
        if wrong.any():
            number = int(wrong.argmax())
            found, expected = _KIND_NAMES[int(kinds[number])], NAMES[feature.dtype]
            raise ValueError(
                f"The feature {key!r} of {self._title(number)} holds values of {found}, but "
                f"{expected} was expected: {feature}. Give it the dtype {found} and convert after "
                "parsing."
            )

    def shape(self, key: str, feature: Feature, there: np.ndarray | None, values: Values) -> Any:
        """The array for a feature. `there` says which records have it; None: all."""
        if isinstance(feature, FixedLenFeature):
            return self._fixed(key, feature, there, values)
        counts = values.counts
        if there is not None:
            counts = np.zeros(len(there), np.int64)
            counts[there] = values.counts
        if isinstance(feature, VarLenFeature):
            return _sparse(values.flat, counts)
        return self._padded(key, feature, values.flat, counts)

    def _fixed(
        self, key: str, feature: FixedLenFeature, there: np.ndarray | None, values: Values
    ) -> np.ndarray:
        wrong = values.counts != feature.size
        if wrong.any():
            at = int(wrong.argmax())
            number = at if there is None else int(np.flatnonzero(there)[at])
            raise ValueError(
                f"The feature {key!r} of {self._title(number)} has {int(values.counts[at])} "
                f"values, but shape {list(feature.shape)} has {feature.size}: {feature}. If the "
                "number varies, use rx.io.VarLenFeature or rx.io.FixedLenSequenceFeature."
            )
        rows = values.flat.reshape(len(values.counts), *feature.shape)
        if there is None:
            return rows
        if feature.default_row is None:
            number = int(there.argmin())
            names = names_in(self._records.select([number]).to_list()[0])
            raise ValueError(
                f"The feature {key!r} is missing in {self._title(number)}, which has "
                f"{', '.join(map(repr, names)) or 'no features'}. Correct the name, or give "
                f"{feature} a `default_value` to stand in for it."
            )
        result = np.empty((len(there), *feature.shape), feature.dtype)
        result[there] = rows
        result[~there] = feature.default_row
        return result

    def _padded(
        self, key: str, feature: FixedLenSequenceFeature, flat: np.ndarray, counts: np.ndarray
    ) -> np.ndarray:
        wrong = counts % feature.size != 0
        if wrong.any():
            number = int(wrong.argmax())
            raise ValueError(
                f"The feature {key!r} of {self._title(number)} has {int(counts[number])} values, "
                f"which is no whole number of rows of shape {list(feature.shape)} with "
                f"{feature.size}: {feature}."
            )
        longest = int(counts.max(initial=0))
        shape = (len(counts), longest // feature.size, *feature.shape)
        if flat.size == len(counts) * longest:
            return flat.reshape(shape)
        result = np.full((len(counts), longest), feature.padding, feature.dtype)
        result[np.arange(longest) < counts[:, None]] = flat
        return result.reshape(shape)


def _sparse(flat: np.ndarray, counts: np.ndarray) -> SparseTensor:
    """A sparse array with a row for each record."""
    before = np.cumsum(counts) - counts
    indices = np.empty((len(flat), 2), np.int64)
    indices[:, 0] = np.repeat(np.arange(len(counts)), counts)
    indices[:, 1] = np.arange(len(flat)) - np.repeat(before, counts)
    dense_shape = np.array([len(counts), counts.max(initial=0)], np.int64)
    return SparseTensor(indices, flat, dense_shape)
