"""Records in forms that are allowed but not usual, made regular by protobuf.

Protobuf reads them, whatever their form: numbers one by one or in several pieces, a feature or list
given twice, fields that it does not know. What it understood is written again in the usual form,
for `_layout.py`. What it does not understand is malformed. So there is one meaning of a record, the
one that protobuf gives it, and the code that is fast need not know all of its rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from replicax._src.records._messages import MESSAGES
from replicax._src.records._records import Records, view_of


def make_regular(
    records: Records, odd: np.ndarray, names: Sequence[str], title: Callable[[int], str]
) -> Records:
    """The records with those marked in `odd` rewritten; only the named features are kept in them.

    Args:
      records: The records.
      odd: Which to rewrite; one bool for each.
      names: The features that are wanted.
      title: What to call a record in an error, given its number.

    Raises:
      ValueError: If a record is not an `Example` at all.
    """
    numbers = np.flatnonzero(odd)
    rewritten = [
        _rewrite(content, names, title(number))
        for number, content in zip(numbers.tolist(), records.select(numbers).to_list())
    ]
    added = Records.from_list(rewritten)
    starts, lengths = records.starts.copy(), records.lengths.copy()
    starts[numbers] = added.starts + len(records.buffer)
    lengths[numbers] = added.lengths
    buffer = b"".join((view_of(records.buffer), view_of(added.buffer)))
    return Records(buffer, starts, lengths)


def names_in(record: bytes) -> list[str]:
    """The names of the features that a record has, as far as they can be read."""
    try:
        return sorted(key.decode(errors="replace") for key in _entries(record))
    except Exception:
        return []


def _entries(record: bytes) -> dict[bytes, bytes]:
    """The features of a record that have not been read yet, by name; the last one counts."""
    raw = MESSAGES.classes["RawExample"].FromString(record)
    # Pieces of one message, one after the other, are that message.
    return {entry.key: b"".join(entry.value) for entry in raw.features.feature}


def _rewrite(record: bytes, names: Sequence[str], title: str) -> bytes:
    from google.protobuf.message import DecodeError

    try:
        entries = _entries(record)
    except DecodeError:
        raise ValueError(
            f"{title} is not a serialized tf.train.Example: {_excerpt(record)}. "
            "`parse_example` takes the bytes that `Example.SerializeToString()` gives."
        ) from None
    features = MESSAGES.classes["Features"]()
    for name in names:
        if (value := entries.get(name.encode())) is not None:
            feature = _feature(value, name, title)
            features.feature[name].CopyFrom(feature)
    return MESSAGES.classes["Example"](features=features).SerializeToString()


def _feature(value: bytes, name: str, title: str) -> Any:
    from google.protobuf.message import DecodeError

    try:
        feature = MESSAGES.classes["Feature"].FromString(value)
    except DecodeError:
        raise ValueError(
            f"The feature {name!r} of {title} cannot be read: it is no serialized "
            f"tf.train.Feature but {_excerpt(value)}."
        ) from None
    feature.DiscardUnknownFields()
    return feature


def _excerpt(value: bytes) -> str:
    return repr(value) if len(value) <= 40 else f"{value[:40]!r}... ({len(value)} bytes)"
