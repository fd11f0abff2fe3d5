"""`parse_example`: many serialized examples to NumPy arrays, all at once.

The compiled helper reads them (`_native.py`), or protobuf where that is not there or does not
take them (`_by_protobuf.py`). Here the values get the shape that the features ask for, and whatever
does not fit becomes an error that names record and feature.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np

from replicax._src.records import _by_protobuf, _native
from replicax._src.records._by_protobuf import Title
from replicax._src.records._features import (
    INT64,
    Column,
    FeatureConfig,
    FixedLenFeature,
    FixedLenSequenceFeature,
    PaddedRows,
    RaggedFeature,
    SparseTensor,
    VarLenFeature,
    check_features,
    empty_value,
    filled_rows,
)
from replicax._src.records._nested_rows import in_rows
from replicax._src.records._partitions import UniformRowLength
from replicax._src.records._records import RecordArray, Records

Parsed = np.ndarray | SparseTensor | PaddedRows
"""What a feature of a batch of records becomes."""


def parse_example(
    serialized: Records | Sequence[bytes] | np.ndarray | bytes,
    features: Mapping[str, FeatureConfig],
    example_names: Sequence[object] | None = None,
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
        padded array of shape `(records, longest, *shape)`, a `RaggedFeature` `PaddedRows`.
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
    if any(map(_is_renamed, features.values())):
        return _renamed(
            lambda some: parse_example(serialized, some, example_names, native=native), features
        )
    records = as_records(serialized)
    title = titles(example_names, len(records))
    library = _native.library(native)
    columns = None
    if library is not None:
        if (rows := library.read_rows(records, features)) is not None:
            return rows
        columns = library.read_columns(records, features)
    if columns is None:
        columns = _by_protobuf.read_columns(records.to_list(), features, title)
    shaper = _Shaper(records, title)
    return {
        name: shaper.shaped(name, feature, column)
        for (name, feature), column in zip(features.items(), columns)
    }


def parse_single_example(
    serialized: bytes,
    features: Mapping[str, FeatureConfig],
    example_names: object = None,
    name: str | None = None,
    *,
    native: bool | None = None,
) -> dict[str, Any]:
    """Returns one serialized `tf.train.Example` as a dict of arrays of the features' shapes.

    A `VarLenFeature` gives a `SparseTensor` of one dimension, a `FixedLenSequenceFeature` an array
    of shape `(rows, *shape)`, and a single value of bytes is just that. One record at a time is
    slow: where you can, collect a batch and call `parse_example`.

    Args:
      serialized: The bytes of the record.
      features: What each feature is, as in `parse_example`.
      example_names: What to call the record in errors.
      name: Has no effect here; taken so that calls can stay as they are.
      native: Has no effect here: protobuf reads a single record as fast.

    Raises:
      ValueError: As in `parse_example`.
    """
    if type(serialized) is Unparsed and not serialized.is_batch:
        return serialized.parsed(features)
    serialized = one_record(serialized, "example")
    features = check_features(features)
    if any(map(_is_renamed, features.values())):
        return _renamed(
            lambda some: parse_single_example(serialized, some, example_names), features
        )
    names = None if example_names is None else [example_names]
    title = titles(names, 1)
    values = _by_protobuf.read_one(serialized, features, title)
    result: dict[str, Any] = {}
    for (key, feature), flat in zip(features.items(), values):
        if isinstance(feature, FixedLenFeature):
            if flat is not None and len(flat) == feature.size:
                result[key] = flat.reshape(feature.shape) if feature.shape else flat[0]
                continue
            if flat is None and feature.default_row is not None:
                result[key] = (
                    feature.default_row.copy() if feature.shape else feature.default_row[()]
                )
                continue
        shaper = _Shaper(Records.from_list([serialized]), title)
        result[key] = _only(shaper.shaped(key, feature, _column_of_one(flat, feature)))
    return result


def _is_renamed(feature: FeatureConfig) -> bool:
    """Returns whether a feature is made of features of other names."""
    return isinstance(feature, RaggedFeature) and (
        feature.value_key is not None or len(feature.partitions) > 0
    )


def _renamed(
    parse: Callable[[Mapping[str, FeatureConfig]], dict[str, Any]],
    features: Mapping[str, FeatureConfig],
) -> dict[str, Any]:
    """Parses features of which some have another name in the records; those one by one."""
    plain = {key: each for key, each in features.items() if not _is_renamed(each)}
    parsed = parse(plain) if plain else {}
    for key, feature in features.items():
        if isinstance(feature, RaggedFeature) and _is_renamed(feature):
            name = feature.value_key or key
            values = RaggedFeature(feature.dtype, row_splits_dtype=feature.row_splits_dtype)
            found = parse({name: values})[name]
            if feature.partitions:
                others = {
                    part.key: parse({part.key: RaggedFeature(INT64)})[part.key]
                    for part in feature.partitions
                    if not isinstance(part, UniformRowLength)
                }
                found = in_rows(key, feature, found, others)
            parsed[key] = found
    return {key: parsed[key] for key in features}


def _column_of_one(flat: np.ndarray | None, feature: FeatureConfig) -> Column:
    """Returns the column of a batch of one record; `flat` is None if that lacks the feature."""
    if flat is None:
        return Column(np.empty(0, feature.dtype), np.empty(0, np.int64), np.zeros(1, np.bool_))
    return Column(flat, np.array([len(flat)], np.int64), None)


def _only(value: Parsed) -> Any:
    """Returns the value of the only record in a batch."""
    if isinstance(value, PaddedRows):
        return value.rows[0]
    if isinstance(value, SparseTensor):
        return SparseTensor(value.indices[:, 1:], value.values, value.dense_shape[1:])
    return value[0]


def one_record(serialized: object, kind: str) -> bytes:
    """Returns a record that a user gave to `parse_single_{kind}`."""
    if isinstance(serialized, np.ndarray) and serialized.ndim == 0:
        serialized = serialized.item()
    if not isinstance(serialized, bytes):
        raise TypeError(
            f"`parse_single_{kind}` takes the `bytes` of one record. Received "
            f"{type(serialized).__name__}: {serialized!r:.80}. For several records use "
            f"`parse_{kind}`."
        )
    return serialized


def as_records(serialized: object) -> Records:
    """Returns records that a user gave in one of several forms."""
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


def titles(example_names: Sequence[object] | None, count: int) -> Title:
    """Returns what to call a record in an error."""
    if example_names is None:
        return lambda number: f"record {number} of the batch"
    if len(example_names) != count:
        raise ValueError(
            f"`example_names` has {len(example_names)} names for {count} records. Give each one."
        )
    return lambda number: f"record {number} of the batch ({example_names[number]!r})"


@final
class _Shaper:
    """Gives values their shapes, and knows the records to speak of in errors."""

    def __init__(self, records: Records, title: Title) -> None:
        self._records = records
        self._title = title

    def shaped(self, key: str, feature: FeatureConfig, column: Column) -> Parsed:
        """Returns the array of a feature.

        Raises:
          ValueError: If values or records do not fit the feature.
        """
        if isinstance(feature, FixedLenFeature):
            return self._fixed(key, feature, column)
        flat, counts, present = column
        if present is not None:
            counts = np.zeros(len(present), np.int64)
            counts[present] = column.counts
        if isinstance(feature, VarLenFeature):
            return _sparse(flat, counts)
        if isinstance(feature, RaggedFeature):
            rows = filled_rows(flat, counts, empty_value(flat.dtype))
            return PaddedRows(rows, counts.astype(feature.row_splits_dtype))
        return self._padded(key, feature, flat, counts)

    def _fixed(self, key: str, feature: FixedLenFeature, column: Column) -> np.ndarray:
        flat, counts, present = column
        wrong = counts != feature.size
        if wrong.any():
            at = int(wrong.argmax())
            number = at if present is None else int(np.flatnonzero(present)[at])
            raise ValueError(
                f"The feature {key!r} of {self._title(number)} has {int(counts[at])} "
                f"values, but shape {list(feature.shape)} has {feature.size}: {feature}. If the "
                "number varies, use rx.io.VarLenFeature or rx.io.FixedLenSequenceFeature."
            )
        rows = flat.reshape(len(counts), *feature.shape)
        if present is None:
            return rows
        if feature.default_row is None:
            number = int(present.argmin())
            names = _by_protobuf.names_in(self._records.select([number]).to_list()[0])
            raise ValueError(
                f"The feature {key!r} is missing in {self._title(number)}, which has "
                f"{', '.join(map(repr, names)) or 'no features'}. Correct the name, or give "
                f"{feature} a `default_value` to stand in for it."
            )
        result = np.empty((len(present), *feature.shape), feature.dtype)
        result[present] = rows
        result[~present] = feature.default_row
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
        rows = filled_rows(flat, counts, feature.padding)
        return rows.reshape(len(counts), rows.shape[1] // feature.size, *feature.shape)


def _sparse(flat: np.ndarray, counts: np.ndarray) -> SparseTensor:
    """Returns a sparse array with a row for each record."""
    before = np.cumsum(counts) - counts
    indices = np.empty((len(flat), 2), np.int64)
    indices[:, 0] = np.repeat(np.arange(len(counts)), counts)
    indices[:, 1] = np.arange(len(flat)) - np.repeat(before, counts)
    dense_shape = np.array([len(counts), counts.max(initial=0)], np.int64)
    return SparseTensor(indices, flat, dense_shape)


@final
class Unparsed:
    """Stands for a record, or a batch of them.

    It can be parsed once, and its features can be handed on, no more.
    """

    @property
    def __class__(self) -> type:  # type: ignore[override]
        """`isinstance(record, bytes)` in the function: what it would do then cannot be known."""
        raise TypeError("this only stands for a record")

    def __init__(self, is_batch: bool) -> None:
        self.is_batch = is_batch
        self.features: Mapping[str, Any] | None = None

    def parsed(self, features: object) -> dict[str, UnparsedFeature]:
        """Returns what `parse_single_example` returns for it.

        Raises:
          TypeError: what the features give cannot stand in the rows of arrays.
        """
        checked = check_features(features)
        fixed = all(isinstance(feature, FixedLenFeature) for feature in checked.values())
        if self.features is not None or not fixed:
            raise TypeError("parse this record for itself")
        self.features = checked
        return {name: UnparsedFeature(self, name) for name in checked}

    def owns(self, value: object) -> bool:
        """Returns whether `value` is one of its features, as it is."""
        return type(value) is UnparsedFeature and value.record is self


@final
class UnparsedFeature:
    """Stands for a feature of a record; no array, and of no use where one is needed."""

    __slots__ = ("name", "record")

    def __init__(self, record: Unparsed, name: str):
        self.record = record
        self.name = name

    def __bool__(self) -> bool:
        raise TypeError("a feature that is not parsed yet is neither true nor false")

    __eq__ = None  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]
