"""A topology as bytes: TensorFlow's `TopologyProto`, as far as it is needed here."""

from __future__ import annotations

from typing import Any

from replicax._src._protobuf import Messages, decode_error

_MESSAGES = Messages(
    "replicax.tpu",
    {
        "Topology": [
            ("mesh_shape", 1, "packed int32"),
            ("num_tasks", 2, "one int32"),
            ("num_devices_per_task", 3, "one int32"),
            ("device_coordinates", 4, "packed int32"),
        ]
    },
)


def write_topology(
    mesh_shape: list[int], tasks: int, devices_per_task: int, coordinates: list[int]
) -> bytes:
    """Returns the bytes that TensorFlow writes for the same topology."""
    return _MESSAGES.classes["Topology"](
        mesh_shape=mesh_shape,
        num_tasks=tasks,
        num_devices_per_task=devices_per_task,
        device_coordinates=coordinates,
    ).SerializeToString()


def read_topology(serialized: bytes) -> tuple[list[int], int, int, list[int]]:
    """Returns what `write_topology` was given; nothing but the form is checked.

    Raises:
      ValueError: The bytes are no such message.
    """
    try:
        found: Any = _MESSAGES.classes["Topology"].FromString(serialized)
    except decode_error():
        raise ValueError(
            f"`serialized` is not a serialized topology: {len(serialized)} bytes that are no such "
            "message. Pass what `topology.serialized()` returned."
        ) from None
    return (
        list(found.mesh_shape),
        found.num_tasks,
        found.num_devices_per_task,
        list(found.device_coordinates),
    )
