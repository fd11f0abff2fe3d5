"""Examples as arrays by protobuf, whatever their form: what protobuf understands is what they mean.

Numbers one by one or in several pieces, a feature or list given twice, fields that it does not
know: all of that is allowed. What protobuf does not understand is malformed, unless it was
not asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np

from replicax._src._protobuf import decode_error
from replicax._src.records._features import FIELDS, FLOAT32, NAMES, Column, FeatureConfig
from replicax._src.records._messages import MESSAGES

Title = Callable[[int], str]
"""What to call a record in an error, given its number."""


def read_columns(
    contents: Sequence[bytes], features: Mapping[str, FeatureConfig], title: Title
) -> list[Column]:
    """Reads the values of each feature.

    Raises:
      ValueError: If a record or a feature is malformed, or a feature holds values of another kind.
    """
    wanted = [(name, feature, _Values(feature)) for name, feature in features.items()]
    for number, content in enumerate(contents):
        found = _features_in(content, features, number, title)
        for name, feature, values in wanted:
            values.add(_list_of(found, name, feature, number, title))
    return [values.column() for _, _, values in wanted]


def read_one(
    content: bytes, features: Mapping[str, FeatureConfig], title: Title
) -> list[np.ndarray | None]:
    """Reads the values of each feature in one record; returns None where it is missing.

    Raises:
      ValueError: As `read_columns`.
    """
    found = _features_in(content, features, 0, title)
    columns: list[np.ndarray | None] = []
    for name, feature in features.items():
        message = _list_of(found, name, feature, 0, title)
        columns.append(None if message is None else _flat(_values_in(message, feature), feature))
    return columns


def names_in(record: bytes) -> list[str]:
    """Returns the names of the features that a record has, as far as they can be read."""
    try:
        return sorted(key.decode(errors="replace") for key in _raw_features(record))
    except Exception:
        return []


@final
class _Values:
    """The values of one feature, collected from record after record."""

    def __init__(self, feature: FeatureConfig):
        self._feature = feature
        self._values: Any = bytearray() if feature.field == "float_list" else []
        self._counts: list[int] = []
        self._present: list[bool] = []

    def add(self, message: Any) -> None:
        """Takes the values of the next record; None if that lacks the feature."""
        self._present.append(message is not None)
        if message is not None:
            self._values += _values_in(message, self._feature)
            self._counts.append(len(message.value))

    def column(self) -> Column:
        counts = np.array(self._counts, np.int64)
        present = None if len(counts) == len(self._present) else np.array(self._present)
        return Column(_flat(self._values, self._feature), counts, present)


def _values_in(message: Any, feature: FeatureConfig) -> Sequence[Any]:
    """Returns the values of a list; the bytes of floats, which take less time than the floats."""
    values = message.value
    if feature.field != "float_list":
        return values
    message.DiscardUnknownFields()
    return message.SerializeToString()[-4 * len(values) :] if values else b""


def _flat(values: Any, feature: FeatureConfig) -> np.ndarray:
    """Returns the values of one or more lists in an array."""
    if feature.field == "float_list":
        floats = np.frombuffer(bytearray(values), "<f4")
        return floats if sys.byteorder == "little" else floats.astype(FLOAT32)
    return np.fromiter(values, feature.dtype, len(values))


def _list_of(
    found: Mapping[bytes, Any], name: str, feature: FeatureConfig, number: int, title: Title
) -> Any:
    """Returns the message that lists the values of a feature; None if the record lacks it."""
    return list_in(found.get(name.encode()), name, feature, lambda: title(number))


def list_in(message: Any, name: str, feature: FeatureConfig, title: Callable[[], str]) -> Any:
    """Returns the message that lists the values of a `Feature`; None if it has none.

    Raises:
      ValueError: They are of another kind than `feature` says.
    """
    field = None if message is None else message.WhichOneof("kind")
    if field is None:
        return None
    if field != feature.field:
        held = next(NAMES[dtype] for dtype in FIELDS if FIELDS[dtype] == field)
        raise ValueError(
            f"The feature {name!r} of {title()} holds values of {held}, but "
            f"{NAMES[feature.dtype]} was expected: {feature}. Give it the dtype {held} and "
            "convert after parsing."
        )
    return getattr(message, field)


def _features_in(
    content: bytes, features: Mapping[str, FeatureConfig], number: int, title: Title
) -> dict[bytes, Any]:
    """Returns the features of a record by name; of several of one name, the last one counts."""
    try:
        example = MESSAGES.classes["ExampleOfEntries"].FromString(content)
    except decode_error():
        return _features_of_malformed(content, features, title(number))
    return {entry.key: entry.value for entry in example.features.feature}


def _features_of_malformed(
    content: bytes, names: Mapping[str, object], title: str
) -> dict[bytes, Any]:
    """Reads only what is asked for of a record in which something is malformed."""
    try:
        raw = _raw_features(content)
    except decode_error():
        raise ValueError(
            f"{title} is not a serialized tf.train.Example: {_excerpt(content)}. "
            "`parse_example` takes the bytes that `Example.SerializeToString()` gives."
        ) from None
    found: dict[bytes, Any] = {}
    for name in names:
        if (value := raw.get(name.encode())) is not None:
            try:
                found[name.encode()] = MESSAGES.classes["Feature"].FromString(value)
            except decode_error():
                raise ValueError(
                    f"The feature {name!r} of {title} cannot be read: it is no serialized "
                    f"tf.train.Feature but {_excerpt(value)}."
                ) from None
    return found


def _raw_features(content: bytes) -> dict[bytes, bytes]:
    """Returns the features of a record, not read yet, by name; the last one counts."""
    raw = MESSAGES.classes["RawExample"].FromString(content)
    # Pieces of one message, one after the other, are that message.
    return {entry.key: b"".join(entry.value) for entry in raw.features.feature}


def _excerpt(value: bytes) -> str:
    return repr(value) if len(value) <= 40 else f"{value[:40]!r}... ({len(value)} bytes)"
