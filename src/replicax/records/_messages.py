"""The messages that TFRecord files usually hold: `Example` and its parts, as `tf.train.Example`.

They are described here field by field, in a pool of their own: TensorFlow registers messages of the
same names in protobuf's common pool, and both can be imported in one program. Protobuf is loaded
when the first message is made.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

# The fields of each message: name, number, type, and what else there is to say about it.
_MESSAGES: dict[str, list[tuple[str, int, str]]] = {
    "BytesList": [("value", 1, "repeated bytes")],
    "FloatList": [("value", 1, "packed float")],
    "Int64List": [("value", 1, "packed int64")],
    "Feature": [
        ("bytes_list", 1, "kind BytesList"),
        ("float_list", 2, "kind FloatList"),
        ("int64_list", 3, "kind Int64List"),
    ],
    "Features": [("feature", 1, "map Feature")],
    "Example": [("features", 1, "one Features")],
    # What a reader makes of the same bytes: the entries of the map in their order, with keys that
    # need not be text, and with values that are read only if someone asks for them.
    "RawEntry": [("key", 1, "one bytes"), ("value", 2, "repeated bytes")],
    "RawFeatures": [("feature", 1, "repeated RawEntry")],
    "RawExample": [("features", 1, "one RawFeatures")],
}
_PACKAGE = "replicax"


@functools.cache
def message_classes() -> dict[str, Any]:
    """The protobuf class of each message, by name."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name="replicax/example.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, description in fields:
            _describe(message, field, number, *description.split())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    find = pool.FindMessageTypeByName
    return {name: message_factory.GetMessageClass(find(f"{_PACKAGE}.{name}")) for name in _MESSAGES}


def _describe(message: Any, name: str, number: int, how: str, what: str) -> None:
    """Adds a field to the description of a message."""
    field = message.field.add(name=name, number=number)
    repeated = how in ("repeated", "packed", "map")
    field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
    if how == "map":  # to protobuf, a map is a list of entries of a type that is made for it
        entry = message.nested_type.add(name="FeatureEntry")
        entry.options.map_entry = True
        _describe(entry, "key", 1, "one", "string")
        _describe(entry, "value", 2, "one", what)
        what = f"{message.name}.FeatureEntry"
    if what in ("bytes", "float", "int64", "string"):
        field.type = getattr(field, f"TYPE_{what.upper()}")
    else:
        field.type, field.type_name = field.TYPE_MESSAGE, f".{_PACKAGE}.{what}"
    if how == "packed":
        field.options.packed = True
    if how == "kind":
        if not message.oneof_decl:
            message.oneof_decl.add(name="kind")
        field.oneof_index = 0


class _Message(type):
    """Makes a class stand for a protobuf class that is built when it is first used."""

    def __call__(cls, *args: Any, **fields: Any) -> Any:
        return message_classes()[cls.__name__](*args, **fields)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(message_classes()[cls.__name__], name)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, message_classes()[cls.__name__])


class _Fields(metaclass=_Message):
    """The base of all: a type checker is not told which fields and methods messages have."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class BytesList(_Fields):
    """Byte strings: `BytesList(value=[b"a"])`."""


class FloatList(_Fields):
    """32-bit floats: `FloatList(value=[1.0])`."""


class Int64List(_Fields):
    """64-bit integers: `Int64List(value=[1])`."""


class Feature(_Fields):
    """One of the lists: `Feature(float_list=...)`, `int64_list` or `bytes_list`."""


class Features(_Fields):
    """Features by name: `Features(feature={"x": Feature(...)})`."""


class Example(_Fields):
    """A record of named features, as TFRecord files usually hold them.

    A protobuf message: `SerializeToString()` gives the bytes of a record, `Example.FromString`
    reads them back. To read many, `parse_example` is much faster.

    >>> label = Feature(int64_list=Int64List(value=[7]))
    >>> record = Example(features=Features(feature={"label": label})).SerializeToString()
    >>> Example.FromString(record).features.feature["label"].int64_list.value
    [7]
    """
