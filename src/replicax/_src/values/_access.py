"""What other rooms may do with the inside of values, which users are not to see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from replicax._src.values._array_like import ArrayLike
from replicax._src.values._buffers import ReplicaBuffers
from replicax._src.values._distributed import DistributedValues
from replicax._src.values._per_replica import PerReplica
from replicax._src.values._storage import Storage

V = TypeVar("V", bound=DistributedValues)


def local_count(value: DistributedValues) -> int:
    """Returns how many components a value has in this process."""
    return value._count


def component(value: DistributedValues, replica_id: Any) -> Any:
    """Returns what one replica of this process has, or each one: `EACH`."""
    return value._component(replica_id)


def array_here(value: ArrayLike) -> Any:
    """Returns the array that a value or variable stands for in this context."""
    return value._array()


def first_component(value: DistributedValues) -> Any:
    """Returns the first replica's component, for all; with several workers, only in a program."""
    return value._buffers.first if value._is_traced else value._component(0)


def buffers_of(value: DistributedValues) -> ReplicaBuffers | None:
    """Returns what holds the components on the devices; None if they are plain values."""
    return value._buffers


def stored(value: DistributedValues) -> Storage:
    """Returns the storage of a value or variable that has one."""
    return value._buffers


def value_of_buffers(kind: type[V], buffers: Storage) -> V:
    """Returns a value of this class whose components are in `buffers`."""
    return kind._from_buffers(buffers)


def set_uneven(value: PerReplica, shapes: Sequence[tuple[int, ...]] = ()) -> None:
    """Notes that the components differ in shape, here or on other workers.

    Args:
      value: whose components they are.
      shapes: those on the replicas of all workers, if they are known.
    """
    value._is_uneven = True
    value._shapes_everywhere = shapes


def shapes_everywhere(value: DistributedValues) -> Sequence[tuple[int, ...]]:
    """Returns the shapes that `set_uneven` was told."""
    return value._shapes_everywhere if isinstance(value, PerReplica) else ()


def component_looks(value: DistributedValues) -> Sequence[Any]:
    """Returns something with the shape and dtype of each component here; takes nothing apart."""
    return [value._buffers.look] * value._count if value._values is None else value._values


def is_being_computed(value: DistributedValues) -> bool:
    """Returns whether a program that computes the value is being traced."""
    return value._is_traced
