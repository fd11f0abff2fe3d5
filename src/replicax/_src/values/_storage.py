"""`Storage`: what holds the value of a variable, or the components of a per-replica value."""

from __future__ import annotations

import abc
import weakref
from typing import Any, ClassVar

from replicax._src._typing import Device, override
from replicax._src.devices import ReplicaMesh, put


class Storage(abc.ABC):
    """One array, or one for each replica. It never changes: an update makes a new one.

    Attributes:
      mesh: the `ReplicaMesh` of the components; None for one array on one device.
      exclusive: whether no other code can hold the arrays, so that a program may be given them to
        write its results into.
    """

    __slots__ = ("__weakref__", "_elsewhere")
    is_traced: ClassVar[bool] = False  # a program that computes the value is being traced
    is_settled: ClassVar[bool] = True  # the value is the owner's alone
    mesh: Any
    exclusive: bool
    _elsewhere: weakref.WeakValueDictionary[Device, Any]  # copies, by where they are

    @property
    def kind(self) -> type[Storage]:
        """The class of a settled storage of the same variable."""
        return type(self)

    @classmethod
    def holding(cls, mesh: ReplicaMesh | None, array: Any, exclusive: bool = False) -> Storage:
        """Returns a storage of this class with an array as `assembled` gives it."""
        raise TypeError(f"{cls.__name__} is made by the program that has its value.")

    @abc.abstractmethod
    def component(self, replica_id: Any) -> Any:
        """Returns what one replica has."""

    @property
    def components(self) -> tuple[Any, ...]:
        """What the replicas of this process have."""
        return tuple(self.component(index) for index in range(len(self.mesh.devices)))

    def on_device(self, device: Device) -> Any:
        """Returns `component(0)` on a device: the same array, as long as somebody holds it."""
        array = self.component(0)
        if array.sharding.device_set == {device}:
            return array
        if not hasattr(self, "_elsewhere"):
            self._elsewhere = weakref.WeakValueDictionary()
        found = self._elsewhere.get(device)
        if found is None or found.is_deleted():
            found = put(array, device)
            if found is not array:  # nothing is moved while JAX traces a function
                self._elsewhere[device] = found
        return found

    @property
    @abc.abstractmethod
    def assembled(self) -> Any:
        """All components as one array over the mesh."""

    @property
    def given(self) -> Any:
        """The same, also while the program that has computed it hands its results over."""
        return self.assembled

    @property
    @abc.abstractmethod
    def look(self) -> Any:
        """Anything with the shape and dtype of a component."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a component."""
        return self.look.shape

    @property
    def collected(self) -> Any:
        """A value that is the same for all replicas, as one of them has it or would have it."""
        return self.component(0)

    @property
    def copies(self) -> int:
        """How many copies there are in this process, each of which an update has to change."""
        return 1

    @property
    def has_parts_elsewhere(self) -> bool:
        """Whether no worker has all of it, so that all must take part to read it."""
        return False

    def for_host(self) -> Any:
        """Returns what to copy to the host, which is the value that all replicas have."""
        return self.assembled

    def settled(self) -> Storage:
        """Returns a storage of the owner's own with the same value."""
        return self

    def arrive(self) -> None:  # noqa: B027 (most have nothing to do)
        """Waits for other workers, if the value depends on them."""

    def leave(self) -> None:  # noqa: B027 (most have nothing to do)
        """Called when the owner has its value elsewhere."""


class UnsettledStorage(Storage):
    """The value of a variable is elsewhere, until somebody asks for it."""

    __slots__ = ()
    is_settled: ClassVar[bool] = False

    @property
    @override
    @abc.abstractmethod
    def kind(self) -> type[Storage]: ...

    @override
    @abc.abstractmethod
    def settled(self) -> Storage: ...

    @override
    def component(self, replica_id: Any) -> Any:
        return self.settled().component(replica_id)

    @property
    @override
    def copies(self) -> int:
        return self.kind.holding(self.mesh, None).copies

    @property
    @override
    def has_parts_elsewhere(self) -> bool:
        return self.kind.holding(self.mesh, None).has_parts_elsewhere

    @override
    def for_host(self) -> Any:
        return self.settled().for_host()
