"""Messages of protocol buffers that tables describe, with no generated files.

They are in a pool of their own: TensorFlow registers messages of the same names in protobuf's
common one, and both can be imported in one program. Protobuf is loaded when the first is made.
"""

from __future__ import annotations

import copyreg
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

_packages: dict[str, Messages] = {}


@final
class Messages:
    """The messages of a table, by name.

    The fields of each are triples of name, number and type. A type is one of protobuf's, such as
    "string", or the name of a message, after a word for how often it is there: "one string",
    "repeated string", "packed float", "map string JobDef" (keys and values), and "kind BytesList"
    for one of several.
    """

    def __init__(self, package: str, table: Mapping[str, Sequence[tuple[str, int, str]]]):
        self._package = package
        self._table = table
        _packages[package] = self

    @functools.cached_property
    def classes(self) -> dict[str, Any]:
        """The protobuf class of each message."""
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

        package = self._package
        file = descriptor_pb2.FileDescriptorProto(name=package, package=package, syntax="proto3")
        for name, fields in self._table.items():
            message = file.message_type.add(name=name)
            for field, number, description in fields:
                self._describe(message, field, number, *description.split())
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        classes: dict[str, Any] = {}
        for name in self._table:
            descriptor = pool.FindMessageTypeByName(f"{package}.{name}")
            classes[name] = message_factory.GetMessageClass(descriptor)
            copyreg.pickle(classes[name], functools.partial(_pickled, package, name))
        return classes

    def _describe(self, message: Any, name: str, number: int, how: str, *types: str) -> None:
        """Adds a field to the description of a message."""
        field = message.field.add(name=name, number=number)
        what = types[-1]
        if how == "map":  # to protobuf, a list of entries of a type that is made for it
            entry = message.nested_type.add(name=name.title().replace("_", "") + "Entry")
            entry.options.map_entry = True
            self._describe(entry, "key", 1, "one", types[0])
            self._describe(entry, "value", 2, "one", what)
            what = f"{message.name}.{entry.name}"
        repeated = how in ("repeated", "packed", "map")
        field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
        if hasattr(field, f"TYPE_{what.upper()}"):
            field.type = getattr(field, f"TYPE_{what.upper()}")
        else:
            field.type, field.type_name = field.TYPE_MESSAGE, f".{self._package}.{what}"
        if how == "packed":
            field.options.packed = True
        if how == "kind":
            if not message.oneof_decl:
                message.oneof_decl.add(name="kind")
            field.oneof_index = 0


@functools.cache
def decode_error() -> type[Exception]:
    """Returns what protobuf raises for malformed bytes."""
    from google.protobuf.message import DecodeError

    return DecodeError


def _pickled(package: str, name: str, message: Any) -> tuple[Any, ...]:
    return _unpickled, (package, name, message.SerializeToString())


def _unpickled(package: str, name: str, content: bytes) -> Any:
    return _packages[package].classes[name].FromString(content)


class _Lazy(type):
    """Makes a class stand for a protobuf class that is built when it is first used."""

    _messages: Messages

    def __call__(cls, *args: Any, **fields: Any) -> Any:
        return cls._messages.classes[cls.__name__](*args, **fields)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(cls._messages.classes[cls.__name__], name)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls._messages.classes[cls.__name__])


class Message(metaclass=_Lazy):
    """The base of classes that stand for the messages of `_messages`, by their names.

    A type checker is not told which fields and methods messages have.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
