"""What other rooms may do with the inside of values, which users are not to see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from replicax._src.values._buffers import ReplicaBuffers
from replicax._src.values._distributed import DistributedValues
from replicax._src.values._per_replica import PerReplica

V = TypeVar("V", bound=DistributedValues)


def buffers_of(value: DistributedValues) -> ReplicaBuffers | None:
    """Returns what holds the components on the devices; None if they are plain values."""
    return value._buffers


def value_of_buffers(kind: type[V], buffers: ReplicaBuffers) -> V:
    """Returns a value of this class whose components are in `buffers`."""
    return kind._from_buffers(buffers)


def set_uneven(value: PerReplica) -> None:
    """Notes that the components differ in shape, here or on other workers."""
    value._is_uneven = True


def first_component(value: DistributedValues) -> Any:
    """Returns what the first replica of this process has."""
    return value._component(0)


def component_looks(value: DistributedValues) -> Sequence[Any]:
    """Returns something with the shape and dtype of each component here; takes nothing apart."""
    return [value._buffers.look] * value._count if value._values is None else value._values


def is_being_computed(value: DistributedValues) -> bool:
    """Returns whether a program that computes the value is being traced."""
    return value._is_traced
