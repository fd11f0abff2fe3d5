"""What other rooms may do with the inside of values, which users are not to see."""

# Of this room: tests/test_architecture.py draws the line between rooms.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeGuard, TypeVar

import jax

from replicax._src.devices import ReplicaMesh
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


def first_component(value: DistributedValues) -> Any:
    """Returns the first replica's component, for all; with several workers, only in a program."""
    return value._buffers.first if value._is_traced else value._component(0)


class HasStorage(Protocol):
    """A distributed value, or any variable."""

    @property
    def _buffers(self) -> Any: ...


def storage_of(value: HasStorage) -> Any:
    """Returns what holds a value or variable, as code here sees it.

    None for a distributed value whose components are plain values.
    """
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


def is_distributed_value(leaf: object) -> TypeGuard[DistributedValues]:
    """Returns whether a replica gets its component of this; a variable reaches it as it is."""
    return isinstance(leaf, DistributedValues) and not leaf._passed_whole


def kept_array(value: DistributedValues) -> tuple[ReplicaMesh, jax.Array, bool] | None:
    """Returns what `keep_array` was given: the mesh, the array, and whether its dtype is weak."""
    return value._laid_out_over


def keep_array(value: DistributedValues, mesh: ReplicaMesh, array: jax.Array, weak: bool) -> None:
    """Keeps the components as one array over `mesh` with the value, for the next program."""
    value._laid_out_over = (mesh, array, weak)


def component_looks(value: DistributedValues) -> Sequence[Any]:
    """Returns something with the shape and dtype of each component here; takes nothing apart."""
    return [value._buffers.look] * value._count if value._values is None else value._values


def is_being_computed(value: DistributedValues) -> bool:
    """Returns whether a program that computes the value is being traced."""
    return value._is_traced
