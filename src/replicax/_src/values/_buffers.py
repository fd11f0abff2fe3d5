"""The storage of eager values: one array, one per replica, or one in parts.

Those of replicas are kept as single-device arrays, as one assembled array, or as both.
Eager code asks for components, compiled programs take the assembled form; each is made from the
other when it is needed, without copying data, and then kept. The value never changes, so that
threads can share it: an update makes a new one.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any, final

import jax

from replicax._src._jax_internals import uncommitted
from replicax._src._typing import override
from replicax._src.devices import Layout, ReplicaMesh
from replicax._src.values._storage import Storage


@final
class OneBuffer(Storage):
    """The single array of a variable without copies."""

    __slots__ = ("_assembled", "exclusive")
    mesh = None

    def __init__(self, array: jax.Array, exclusive: bool = False):
        self._assembled = array
        self.exclusive = exclusive

    @classmethod
    @override
    def holding(cls, mesh: ReplicaMesh | None, array: Any, exclusive: bool = False) -> OneBuffer:
        return cls(array, exclusive)

    @override
    def component(self, replica_id: Any) -> Any:
        self.exclusive = False
        return self._assembled

    @property
    @override
    def assembled(self) -> Any:
        return self._assembled

    @property
    @override
    def look(self) -> Any:
        return self._assembled


@final
class ReplicaBuffers(Storage):
    """The components of one value or variable, one on each device of a replica mesh.

    `exclusive` says that no other code can hold these buffers: a program made them for us, and no
    component was handed out. Only then may a program be given them to write its results into.
    """

    __slots__ = ("_assembled", "_components", "exclusive", "mesh")

    def __init__(
        self,
        mesh: ReplicaMesh,
        components: Sequence[jax.Array] | None = None,
        assembled: jax.Array | None = None,
        exclusive: bool = False,
    ):
        self.mesh = mesh
        self._components: Any = components
        self._assembled: Any = assembled
        self.exclusive = exclusive

    @classmethod
    @override
    def holding(
        cls, mesh: ReplicaMesh | None, array: Any, exclusive: bool = False
    ) -> ReplicaBuffers:
        assert mesh is not None
        return cls(mesh, None, array, exclusive)

    @override
    def component(self, replica_id: int) -> jax.Array:
        components: Any = self._components
        if components is None:
            components = self._components = [None] * len(self.mesh.devices)
        found = components[replica_id]
        if found is None:
            self.exclusive = False  # what is handed out now is a part of it
            found = uncommitted(self.mesh.component(self._assembled, replica_id))
            components[replica_id] = found
        return found

    @property
    @override
    def components(self) -> tuple[jax.Array, ...]:
        if self._components is None:
            self.exclusive = False  # as above
            self._components = self.mesh.components(self._assembled)
        return super().components

    @property
    @override
    def look(self) -> Any:
        return self._assembled if self._assembled is not None else self._components[0]

    @property
    @override
    def copies(self) -> int:
        return len(self.mesh.devices)

    @override
    def for_host(self) -> jax.Array:
        return self.mesh.component(self.assembled, 0)

    @property
    @override
    def assembled(self) -> jax.Array:
        """One array over the mesh; the components must have one shape and dtype."""
        if self._assembled is None:
            # A user's function may have left a component on another device; bring it home.
            self._assembled = self.mesh.assemble(
                [self.mesh.at_home(part, index) for index, part in enumerate(self.components)]
            )
        return self._assembled

    def with_component(self, replica_id: int, array: jax.Array) -> ReplicaBuffers:
        parts = list(self.components)
        parts[replica_id] = self.mesh.at_home(array, replica_id)
        return ReplicaBuffers(self.mesh, components=parts)

    def with_copy(self, replica_id: int, array: jax.Array, layout: Layout) -> ReplicaBuffers:
        """Returns the buffers of a variable with another value for the copy of one replica."""
        if layout.parts:
            array = self.mesh.split_inside(array, layout.parts, replica_id)
        return self.with_component(replica_id, array)


# Buffers in parts that eager replicas have gathered: once for all, and for the length of a run.
_gathered: weakref.WeakSet[PartBuffers] = weakref.WeakSet()
_gathered_lock = threading.Lock()


def drop_gathered() -> None:
    """At the end of a run: drops what was gathered of variables that are kept in parts."""
    with _gathered_lock:
        buffers = list(_gathered)
        _gathered.clear()
    for each in buffers:
        each.drop_gathered()


@final
class PartBuffers(Storage):
    """One array that is cut over the replicas: each has a part, and a read gives the whole."""

    __slots__ = ("_assembled", "_components", "_gathered", "exclusive", "mesh")

    def __init__(self, mesh: ReplicaMesh, assembled: jax.Array, exclusive: bool = False):
        self.mesh = mesh
        self._assembled = assembled
        self._components: dict[int, jax.Array] = {}
        self._gathered: jax.Array | None = None
        self.exclusive = exclusive

    @classmethod
    @override
    def holding(cls, mesh: ReplicaMesh | None, array: Any, exclusive: bool = False) -> PartBuffers:
        assert mesh is not None
        return cls(mesh, array, exclusive)

    @override
    def component(self, replica_id: int) -> jax.Array:
        components = self._components
        if replica_id not in components:
            components[replica_id] = uncommitted(self.mesh.component(self._whole, replica_id))
        return components[replica_id]

    @property
    def _whole(self) -> jax.Array:
        """The array with all of it on every replica."""
        gathered = self._gathered
        if gathered is None:  # another thread's run may end, and drop it, at any time
            gathered = self._gathered = self.mesh.gathered(self._assembled)
            with _gathered_lock:
                _gathered.add(self)
        return gathered

    def drop_gathered(self) -> None:
        self._components, self._gathered = {}, None

    @property
    @override
    def collected(self) -> jax.Array:
        return uncommitted(self.mesh.collected(self._assembled))

    @property
    @override
    def look(self) -> jax.Array:
        return self._assembled

    @property
    @override
    def has_parts_elsewhere(self) -> bool:
        return self.mesh.spans_workers

    @override
    def for_host(self) -> Any:
        return self.mesh.for_host(self._assembled)

    @property
    @override
    def assembled(self) -> jax.Array:
        return self._assembled

    def with_copy(self, replica_id: int, array: jax.Array, layout: Layout) -> PartBuffers:
        """Returns the buffers with another value: there is one copy, which all have in parts."""
        return PartBuffers(self.mesh, self.mesh.spread(array, layout))


def kind_for(layout: Layout) -> type[Storage]:
    """Returns the class of the storage of a variable that is laid out like this."""
    return ReplicaBuffers if layout.replica_dim is None else PartBuffers


def buffers_for(mesh: ReplicaMesh, layout: Layout, array: jax.Array) -> Storage:
    """Returns the storage of a new variable that is laid out like this."""
    return kind_for(layout).holding(mesh, array)
