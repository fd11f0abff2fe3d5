"""The devices of replicas where other processes have more of them.

To code that works on components, `WorkerDevices` is what it would be in one process: the tuple of
the devices here. What makes it one part of a whole is on it: the devices of all workers, and how
this worker meets the others. So a `ReplicaMesh` over it spans all processes, and nothing else has
to ask whether there are several.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

from replicax._typing import Device


class Meeting(Protocol):
    """How a worker meets the others outside of the devices; `replicax.cluster` has it."""

    def before_call(self, what: str) -> None:
        """A program with collectives is about to be launched; all workers have to say the same."""
        ...

    def require_same(self, topic: str, what: str) -> None:
        """Waits for all workers to come to this point; raises where they say different things."""
        ...


class WorkerDevices(tuple[Device, ...]):
    """This worker's devices, one for each of its replicas."""

    everywhere: tuple[Device, ...]  # of all workers, in the order of the replicas
    meeting: Meeting

    def __new__(
        cls, devices: Sequence[Device], everywhere: Sequence[Device], meeting: Meeting
    ) -> Self:
        new = super().__new__(cls, devices)
        new.everywhere = tuple(everywhere)
        new.meeting = meeting
        return new

    @property
    def first(self) -> int:
        """The number of the first replica here."""
        return self.everywhere.index(self[0])

    # The same devices for themselves, without the other workers', are something else.

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorkerDevices) and self.everywhere == other.everywhere

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.everywhere)


def replicas_on(devices: tuple[Device, ...]) -> int:
    """How many replicas there are, one on each device, on all workers."""
    return len(devices.everywhere) if isinstance(devices, WorkerDevices) else len(devices)


def first_replica_on(devices: tuple[Device, ...]) -> int:
    """The number that the first replica of this process has among all of them."""
    return devices.first if isinstance(devices, WorkerDevices) else 0
