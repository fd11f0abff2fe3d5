"""`parse_sequence_example`: records with features of their own, and with sequences of features.

What belongs to a whole record, its context, has the form of an `Example`, and is read as one.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, final

import numpy as np

from replicax._src._protobuf import decode_error
from replicax._src.records import _native
from replicax._src.records._by_protobuf import Title, list_in
from replicax._src.records._example import (
    as_records,
    one_record,
    parse_example,
    parse_single_example,
    titles,
)
from replicax._src.records._features import (
    FeatureConfig,
    FixedLenFeature,
    FixedLenSequenceFeature,
    PaddedRows,
    RaggedFeature,
    SparseTensor,
    VarLenFeature,
    empty_value,
    filled_rows,
)
from replicax._src.records._messages import MESSAGES
from replicax._src.records._records import Records

Features = Mapping[str, FeatureConfig]


def parse_sequence_example(
    serialized: Records | Sequence[bytes] | np.ndarray,
    context_features: Features | None = None,
    sequence_features: Features | None = None,
    example_names: Sequence[object] | None = None,
    name: str | None = None,
    *,
    native: bool | None = None,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Parses serialized `tf.train.SequenceExample`s: sequences are filled up to the longest.

    Args:
      serialized: The records: a list, or an object array.
      context_features: What the features of a whole record are, as in `parse_example`.
      sequence_features: What the steps of sequences are: a `FixedLenSequenceFeature` gives an
        array of shape `(records, longest, *shape)`, a `VarLenFeature` a `SparseTensor` and a
        `RaggedFeature` `PaddedRows` of shape `(records, longest, most values)`.
      example_names: What to call the records in errors.
      name: Has no effect here; taken so that calls can stay as they are.
      native: Whether to use the compiled helper; None: if it is there.

    Returns:
      The context, the sequences, and how many steps each record has in those that are arrays.

    Raises:
      ValueError: If a record is malformed, lacks a feature, or has one of another kind or size.
    """
    context_features, sequence_features = _checked(context_features, sequence_features)
    records = as_records(serialized)
    title = titles(example_names, len(records))
    records, columns = _read(records, sequence_features, title, native)
    context = (
        parse_example(records, context_features, example_names, native=native)
        if context_features
        else {}
    )
    sequences, lengths = {}, {}
    for key, feature in sequence_features.items():
        steps = columns[key]
        sequences[key] = _batched(feature, steps)
        if not isinstance(feature, VarLenFeature):
            lengths[key] = steps.steps
    return context, sequences, lengths


def parse_single_sequence_example(
    serialized: bytes,
    context_features: Features | None = None,
    sequence_features: Features | None = None,
    example_name: object = None,
    name: str | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns one serialized `tf.train.SequenceExample` as dicts of arrays and of sequences.

    >>> from replicax._src.records import Feature, FeatureList, FeatureLists, Int64List
    >>> from replicax._src.records import SequenceExample
    >>> steps = [Feature(int64_list=Int64List(value=[number])) for number in (5, 6, 7)]
    >>> lists = FeatureLists(feature_list={"tokens": FeatureList(feature=steps)})
    >>> record = SequenceExample(feature_lists=lists).SerializeToString()
    >>> tokens = FixedLenSequenceFeature([], "int64")
    >>> parse_single_sequence_example(record, sequence_features={"tokens": tokens})
    ({}, {'tokens': array([5, 6, 7])})

    Args:
      serialized: The bytes of the record.
      context_features: As in `parse_sequence_example`, as the others are.

    Raises:
      ValueError: As in `parse_sequence_example`.
    """
    serialized = one_record(serialized, "sequence_example")
    context_features, sequence_features = _checked(context_features, sequence_features)
    context = (
        parse_single_example(serialized, context_features, example_name) if context_features else {}
    )
    title = titles(None if example_name is None else [example_name], 1)
    # Of a single record protobuf is as fast.
    columns = _read_by_protobuf([serialized], sequence_features, title)
    return context, {key: _single(each, columns[key]) for key, each in sequence_features.items()}


def _checked(context: Features | None, sequences: Features | None) -> tuple[Features, Features]:
    if not context and not sequences:
        raise ValueError(
            "Name at least one feature to parse, in `context_features` or `sequence_features`."
        )
    for given, allowed in (
        (context, FixedLenFeature | VarLenFeature | RaggedFeature),
        (sequences, FixedLenSequenceFeature | VarLenFeature | RaggedFeature),
    ):
        for key, feature in (given or {}).items():
            if not isinstance(feature, allowed):
                kinds = ", ".join(kind.__name__ for kind in allowed.__args__)
                where = "context" if given is context else "sequence"
                raise ValueError(
                    f"The {where} feature {key!r} must be one of {kinds}. Received {feature!r}."
                )
            if given is sequences and isinstance(feature, RaggedFeature) and feature.partitions:
                raise ValueError(
                    f"The sequence feature {key!r} takes no partitions: its steps are its rows. "
                    "Parse the values and their lengths as two sequences, and divide them in map()."
                )
            if isinstance(feature, FixedLenSequenceFeature) and feature.default_value is not None:
                raise ValueError(
                    f"The sequence feature {key!r} takes no default_value: sequences are filled "
                    f'up with 0, or b"". Received {feature!r}.'
                )
    return context or {}, sequences or {}


class _Steps(NamedTuple):
    """The values of one feature in the steps of many records.

    Attributes:
      flat: All values.
      counts: How many there are in each step.
      steps: How many steps each record has; int64.
    """

    flat: np.ndarray
    counts: np.ndarray
    steps: np.ndarray


def _read(
    records: Records, features: Features, title: Title, native: bool | None
) -> tuple[Records, dict[str, _Steps]]:
    """Reads the sequences of records; also returns records that have the same context."""
    library = _native.library(native)
    found = None if library is None else _read_natively(library, records, features)
    return found or (records, _read_by_protobuf(records.to_list(), features, title))


def _name_of(key: str, feature: FeatureConfig) -> str:
    """Returns the name that a feature has in the records."""
    return getattr(feature, "value_key", None) or key


def _read_natively(
    library: _native.Library, records: Records, features: Features
) -> tuple[Records, dict[str, _Steps]] | None:
    """Does as `_read`; returns None if anything is out of the ordinary."""
    found = library.find_sequences(records, [_name_of(*each) for each in features.items()])
    if found is None:
        return None
    columns: dict[str, _Steps] = {}
    for number, (key, feature) in enumerate(features.items()):
        read = library.read_steps(records, found, number, feature.dtype)
        steps = found.steps[number]
        if read is None:
            return None
        if isinstance(feature, FixedLenSequenceFeature):
            is_missing = not feature.allow_missing and (steps < 0).any()
            if is_missing or (read[1] != feature.size).any():
                return None
        columns[key] = _Steps(*read, np.maximum(steps, 0))
    return found.context, columns


def _read_by_protobuf(
    contents: Sequence[bytes], features: Features, title: Title
) -> dict[str, _Steps]:
    readers = {key: _StepReader(key, feature) for key, feature in features.items()}
    if not readers:
        return {}
    for number, content in enumerate(contents):
        try:
            example = MESSAGES.classes["SequenceOfEntries"].FromString(content)
            lists = {entry.key: entry.value.feature for entry in example.feature_lists.feature_list}
        except decode_error():
            names = {_name_of(*each).encode() for each in features.items()}
            lists = _lists_of_malformed(content, names, title(number))
        for reader in readers.values():
            reader.add(lists, number, title)
    return {key: reader.result() for key, reader in readers.items()}


def _lists_of_malformed(content: bytes, names: set[bytes], title: str) -> dict[bytes, Any]:
    """Reads only what is asked for of a record in which something is malformed."""
    try:
        raw = MESSAGES.classes["RawSequence"].FromString(content)
        lists: dict[bytes, Any] = {entry.key: () for entry in raw.feature_lists.feature_list}
        for entry in raw.feature_lists.feature_list:
            if entry.key in names:
                steps = MESSAGES.classes["FeatureList"].FromString(b"".join(entry.value))
                lists[entry.key] = steps.feature
    except decode_error():
        raise ValueError(
            f"{title} is not a serialized tf.train.SequenceExample. `parse_sequence_example` takes "
            "the bytes that `SequenceExample.SerializeToString()` gives."
        ) from None
    return lists


def _place(step: int, number: int, title: Title) -> str:
    """Returns what to call a step of a record in an error."""
    return f"step {step} of {title(number)}"


@final
class _StepReader:
    """Collects the steps of one feature, record after record."""

    def __init__(self, key: str, feature: FeatureConfig):
        self._name = _name_of(key, feature)
        self._feature = feature
        self._flat: list[Any] = []
        self._counts: list[int] = []
        self._steps: list[int] = []
        # In every step as many values, if the feature says so.
        self._size = feature.size if isinstance(feature, FixedLenSequenceFeature) else None

    def add(self, lists: Mapping[bytes, Sequence[Any]], number: int, title: Title) -> None:
        """Takes the steps of the next record.

        Raises:
          ValueError: They do not fit the feature.
        """
        steps = lists.get(self._name.encode())
        if steps is None:
            self._refuse_missing(lists, number, title)
            self._steps.append(0)
            return
        self._steps.append(len(steps))
        field = self._feature.field
        kinds = {message.WhichOneof("kind") for message in steps}
        values = [getattr(message, field).value for message in steps]
        counts = [*map(len, values)]
        if kinds - {field, None} or (self._size is not None and {*counts} - {self._size}):
            self._refuse(steps, counts, number, title)
        self._counts += counts
        self._flat.extend(itertools.chain.from_iterable(values))

    def _refuse(
        self, steps: Sequence[Any], counts: Sequence[int], number: int, title: Title
    ) -> NoReturn:
        """Raises the error of the first step that does not fit."""
        for step, message in enumerate(steps):
            where = functools.partial(_place, step, number, title)
            list_in(message, self._name, self._feature, where)
            if self._size is not None and counts[step] != self._size:
                raise ValueError(
                    f"The feature {self._name!r} of {where()} has {counts[step]} values, and "
                    f"{self._feature} has {self._size}. If the number varies, use "
                    "rx.io.RaggedFeature or rx.io.VarLenFeature."
                )
        raise AssertionError("all steps fit")

    def _refuse_missing(self, lists: Mapping[bytes, object], number: int, title: Title) -> None:
        feature = self._feature
        if isinstance(feature, FixedLenSequenceFeature) and not feature.allow_missing:
            names = ", ".join(repr(key.decode(errors="replace")) for key in sorted(lists))
            raise ValueError(
                f"The sequence {self._name!r} is missing in {title(number)}, which has "
                f"{names or 'no sequences'}. Correct the name, or write allow_missing=True."
            )

    def result(self) -> _Steps:
        flat = np.fromiter(self._flat, self._feature.dtype, len(self._flat))
        return _Steps(flat, np.array(self._counts, np.int64), np.array(self._steps, np.int64))


def _single(feature: FeatureConfig, steps: _Steps) -> Any:
    """Returns a sequence of the only record."""
    flat, counts, _ = steps
    if isinstance(feature, FixedLenSequenceFeature):
        return flat.reshape(len(counts), *feature.shape)
    if isinstance(feature, RaggedFeature):
        rows = filled_rows(flat, counts, empty_value(flat.dtype))
        return PaddedRows(rows, counts.astype(feature.row_splits_dtype))
    sparse = _sparse(steps)
    return SparseTensor(sparse.indices[:, 1:], sparse.values, sparse.dense_shape[1:])


def _batched(feature: FeatureConfig, steps: _Steps) -> Any:
    """Returns the sequences of all records, in one array."""
    flat, counts, lengths = steps
    if isinstance(feature, VarLenFeature):
        return _sparse(steps)
    fill = empty_value(flat.dtype)
    if isinstance(feature, FixedLenSequenceFeature):
        rows = filled_rows(flat, lengths * feature.size, fill)
        return rows.reshape(len(lengths), rows.shape[1] // feature.size, *feature.shape)
    rows = filled_rows(flat, counts, fill)
    longest = int(lengths.max(initial=0))
    there = np.arange(longest) < lengths[:, None]
    padded = np.full((*there.shape, rows.shape[1]), fill, flat.dtype)
    padded[there] = rows
    sizes = np.zeros(there.shape, feature.row_splits_dtype)  # type: ignore[union-attr]
    sizes[there] = counts
    return PaddedRows(padded, sizes)


def _sparse(steps: _Steps) -> SparseTensor:
    """Returns the values by record, step and place."""
    flat, counts, lengths = steps
    record = np.repeat(np.arange(len(lengths)), lengths)
    step = np.arange(len(counts)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    place = np.arange(len(flat)) - np.repeat(np.cumsum(counts) - counts, counts)
    indices = np.stack([np.repeat(record, counts), np.repeat(step, counts), place], axis=1)
    shape = [len(lengths), lengths.max(initial=0), counts.max(initial=0)]
    return SparseTensor(indices.astype(np.int64), flat, np.array(shape, np.int64))
