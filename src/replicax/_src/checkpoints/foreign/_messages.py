"""The messages in TensorFlow's checkpoints, described field by field; `_protobuf.py` makes them.

Fields that nobody asks for are left out.
"""

from __future__ import annotations

from typing import Any

from replicax._src._protobuf import Messages, decode_error

_TABLE: dict[str, list[tuple[str, int, str]]] = {
    # The index: what all of it is like, and each tensor.
    "BundleHeader": [("num_shards", 1, "one int32"), ("endianness", 2, "one int32")],
    "Dim": [("size", 1, "one int64")],
    "Shape": [("dim", 2, "repeated Dim"), ("unknown_rank", 3, "one bool")],
    "Extent": [("start", 1, "one int64"), ("length", 2, "kind int64")],
    "Slice": [("extent", 1, "repeated Extent")],
    "BundleEntry": [
        ("dtype", 1, "one int32"),
        ("shape", 2, "one bytes"),  # a `Shape`
        ("shard_id", 3, "one int32"),
        ("offset", 4, "one int64"),
        ("size", 5, "one int64"),
        ("crc32c", 6, "one fixed32"),
        ("slices", 7, "repeated Slice"),
    ],
    # The objects that were saved, and which tensors are theirs.
    "Child": [("node_id", 1, "one int32"), ("local_name", 2, "one string")],
    "Attribute": [
        ("name", 1, "one string"),
        ("full_name", 2, "one string"),
        ("checkpoint_key", 3, "one string"),
    ],
    "SlotVariable": [
        ("original_variable_node_id", 1, "one int32"),
        ("slot_name", 2, "one string"),
        ("slot_variable_node_id", 3, "one int32"),
    ],
    "Object": [
        ("children", 1, "repeated Child"),
        ("attributes", 2, "repeated Attribute"),
        ("slot_variables", 3, "repeated SlotVariable"),
    ],
    "ObjectGraph": [("nodes", 1, "repeated Object")],
}
_MESSAGES = Messages("replicax.tensorflow", _TABLE)


def parsed(kind: str, content: bytes) -> Any:
    """Returns a message; `ValueError` if the bytes are none."""
    try:
        return _MESSAGES.classes[kind].FromString(content)
    except decode_error() as error:
        raise ValueError(f"it holds no {kind}: {error}") from None
