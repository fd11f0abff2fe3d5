"""The devices of replicas: where one has several logical devices, or other processes have more.

To code that works on components, `ReplicaDevices` is what it would be with one device for each
replica of one process: the tuple of the devices here, of each replica the first. What stands behind
them is on it: all logical devices of all replicas, and how this worker meets the others. So a
`ReplicaMesh` over it spans all of them, and hardly anything else has to ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, Self

from replicax._src._typing import Device

if TYPE_CHECKING:
    import jax

    from replicax._src.devices._mesh import ReplicaMesh

Groups = tuple[tuple[Device, ...], ...]


class Beginning(Protocol):
    """Something that starts from the first worker's value on all workers.

    Attributes:
      value: what it would start from if this worker were alone.
    """

    value: jax.Array

    def begin(self, value: jax.Array) -> None:
        """Called when the first worker's value is known; called again, it does nothing."""
        ...

    def fail(self, error: Exception) -> None:
        """Called when the workers do not agree on what it is."""
        ...


class Coworkers(Protocol):
    """How a worker meets the others outside of the devices."""

    def before_call(self, what: str) -> None:
        """Called before a program with collectives is launched: all workers must say the same."""
        ...

    def require_same(self, topic: str, what: str, content: str = "") -> bool:
        """Waits for all workers to come to this point; raises where they say different things.

        Returns:
          Whether the `content` of it, which may differ, is the same on all.
        """
        ...

    def begin_together(self, mesh: ReplicaMesh, beginning: Beginning, what: str) -> None:
        """Lets it begin with the first worker's value; `what` it is has to be the same on all."""
        ...

    def await_beginning(self, beginning: Beginning) -> None:
        """Waits until it has begun, or failed."""
        ...

    def settle_beginnings(self) -> None:
        """Lets all that were handed over begin, before this worker waits for others."""
        ...

    def name_of(self, worker: int) -> str:
        """Returns how a worker is called in messages."""
        ...


class ReplicaDevices(tuple[Device, ...]):
    """Of each replica of this process, its first logical device."""

    groups: Groups  # the logical devices of each replica, of all workers, in their order
    coworkers: Coworkers | None

    def __new__(
        cls,
        here: Sequence[Sequence[Device]],
        everywhere: Sequence[Sequence[Device]] | None = None,
        coworkers: Coworkers | None = None,
    ) -> Self:
        """
        Args:
          here: the logical devices of each replica of this process.
          everywhere: those of all workers, if there are others.
          coworkers: how to meet these.
        """
        new = super().__new__(cls, (group[0] for group in here))
        new.groups = tuple(tuple(group) for group in (everywhere or here))
        new.coworkers = coworkers
        return new

    # The same devices for themselves, without what stands behind, are something else.

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ReplicaDevices)
            and self.groups == other.groups
            and (self.coworkers is None) == (other.coworkers is None)
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.groups)


def in_groups(devices: Sequence[Device], size: int) -> tuple[Device, ...]:
    """Returns the devices of replicas that have `size` neighbouring ones of `devices` each."""
    if size == 1:
        return tuple(devices)
    return ReplicaDevices([devices[i : i + size] for i in range(0, len(devices), size)])


def groups_of(devices: tuple[Device, ...]) -> Groups:
    """Returns the logical devices of each replica, of all workers."""
    if isinstance(devices, ReplicaDevices):
        return devices.groups
    return tuple((device,) for device in devices)


def replicas_on(devices: tuple[Device, ...]) -> int:
    """Returns how many replicas there are, on all workers."""
    return len(devices.groups) if isinstance(devices, ReplicaDevices) else len(devices)


def have_others(devices: tuple[Device, ...]) -> bool:
    """Returns whether other workers have replicas, too."""
    return isinstance(devices, ReplicaDevices) and devices.coworkers is not None


def need_mesh(devices: tuple[Device, ...]) -> bool:
    """Returns whether a program for these replicas runs on more than one device."""
    return replicas_on(devices) > 1 or any(len(group) > 1 for group in groups_of(devices))
