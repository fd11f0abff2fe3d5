"""The messages that TFRecord files usually hold: `Example` and its parts, as `tf.train.Example`.

They are described here field by field; `_protobuf.py` says how, and makes them.
"""

from __future__ import annotations

from replicax._src._protobuf import Message, Messages

_TABLE: dict[str, list[tuple[str, int, str]]] = {
    "BytesList": [("value", 1, "repeated bytes")],
    "FloatList": [("value", 1, "packed float")],
    "Int64List": [("value", 1, "packed int64")],
    "Feature": [
        ("bytes_list", 1, "kind BytesList"),
        ("float_list", 2, "kind FloatList"),
        ("int64_list", 3, "kind Int64List"),
    ],
    "Features": [("feature", 1, "map string Feature")],
    "Example": [("features", 1, "one Features")],
    "FeatureList": [("feature", 1, "repeated Feature")],
    "FeatureLists": [("feature_list", 1, "map string FeatureList")],
    "SequenceExample": [("context", 1, "one Features"), ("feature_lists", 2, "one FeatureLists")],
    # What a reader makes of the same bytes: the entries of the map in their order, with keys that
    # need not be text,
    "Entry": [("key", 1, "one bytes"), ("value", 2, "one Feature")],
    "Entries": [("feature", 1, "repeated Entry")],
    "ExampleOfEntries": [("features", 1, "one Entries")],
    "ListEntry": [("key", 1, "one bytes"), ("value", 2, "one FeatureList")],
    "ListEntries": [("feature_list", 1, "repeated ListEntry")],
    "SequenceOfEntries": [("feature_lists", 2, "one ListEntries")],
    # and the same with values that are read only if they are needed.
    "RawEntry": [("key", 1, "one bytes"), ("value", 2, "repeated bytes")],
    "RawFeatures": [("feature", 1, "repeated RawEntry")],
    "RawExample": [("features", 1, "one RawFeatures")],
    "RawLists": [("feature_list", 1, "repeated RawEntry")],
    "RawSequence": [("feature_lists", 2, "one RawLists")],
}
MESSAGES = Messages("replicax", _TABLE)


class _Record(Message):
    _messages = MESSAGES


class BytesList(_Record):
    """Byte strings: `BytesList(value=[b"a"])`."""


class FloatList(_Record):
    """32-bit floats: `FloatList(value=[1.0])`."""


class Int64List(_Record):
    """64-bit integers: `Int64List(value=[1])`."""


class Feature(_Record):
    """One of the lists: `Feature(float_list=...)`, `int64_list` or `bytes_list`."""


class Features(_Record):
    """Features by name: `Features(feature={"x": Feature(...)})`."""


class Example(_Record):
    """A record of named features, as TFRecord files usually hold them.

    A protobuf message: `SerializeToString()` gives the bytes of a record, `Example.FromString`
    reads them back. To read many, `parse_example` is much faster.

    >>> label = Feature(int64_list=Int64List(value=[7]))
    >>> record = Example(features=Features(feature={"label": label})).SerializeToString()
    >>> Example.FromString(record).features.feature["label"].int64_list.value
    [7]
    """


class FeatureList(_Record):
    """The features of the steps of a sequence: `FeatureList(feature=[Feature(...), ...])`."""


class FeatureLists(_Record):
    """Sequences by name: `FeatureLists(feature_list={"tokens": FeatureList(...)})`."""


class SequenceExample(_Record):
    """A record of named features and of named sequences of features.

    >>> steps = [Feature(int64_list=Int64List(value=[number])) for number in (5, 6)]
    >>> lists = FeatureLists(feature_list={"tokens": FeatureList(feature=steps)})
    >>> record = SequenceExample(feature_lists=lists).SerializeToString()
    >>> len(SequenceExample.FromString(record).feature_lists.feature_list["tokens"].feature)
    2
    """
