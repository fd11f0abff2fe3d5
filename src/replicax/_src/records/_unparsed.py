"""Something that stands for a record, to find out whether a function does nothing but parse it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from replicax._src.records._features import FixedLenFeature, check_features


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
        """Whether `value` is one of its features, as it is."""
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
