"""The replicas that are in sync: all of this process, or also those of other workers.

A strategy has one `SyncGroup`, chosen when it is made. What one worker's values need of those of
the others is a method of it, so that strategies do not ask whether there are any.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any, final

import jax

from replicax._src._typing import Device, PyTree, override
from replicax._src.cluster import Membership
from replicax._src.collectives import (
    CommunicationOptions,
    CrossDeviceOps,
    array_of,
    as_components,
    destination_devices,
    gather_across,
    numbers_everywhere,
    of_first_replica,
)
from replicax._src.context import StrategyLike, StrategyScope, world
from replicax._src.data.distributed import Exchange, InputLayout, differ, mark_uneven, shapes_of
from replicax._src.devices import Beginning, Coworkers, ReplicaDevices, ReplicaMesh, replica_mesh
from replicax._src.strategies._beginnings import ScopeOfWorkers, beginnings_of, mismatch
from replicax._src.values import (
    DistributedValues,
    PerReplica,
    first_component,
    local_count,
    per_replica_type,
)


class SyncGroup:
    """How the replicas of a strategy belong together: all of them are of this process.

    Attributes:
      first_replica: the number of the first replica here, among all.
    """

    first_replica = 0

    def scope(self, strategy: StrategyLike) -> StrategyScope:
        """Returns a new scope of the strategy."""
        return StrategyScope(strategy)

    def size(self, here: int) -> int:
        """Returns how many replicas there are, of which `here` are in this process."""
        return here

    def input_layout(self, devices: tuple[Device, ...]) -> InputLayout:
        """Returns who reads data sets."""
        return InputLayout(devices)

    def as_value(self, value: Any) -> Any:
        """Returns the argument of a reduction: an array of the only replica here is per replica."""
        return value

    def over_all(self, value: Any) -> Any:
        """Returns a value of the replicas here as a part of one over all workers."""
        return value

    def devices_of(self, value: object) -> tuple[Device, ...] | None:
        """Returns the devices of a value with a component for each replica, if others have some."""
        return None

    def gather(
        self,
        ops: CrossDeviceOps,
        value: DistributedValues,
        destinations: object,
        axis: int,
        options: CommunicationOptions | None,
    ) -> Any:
        """Returns the components of all replicas joined along `axis`, on the destinations."""
        return ops.gather(value, destinations, axis, options)

    def starts_in_gathered(self, value: DistributedValues, axis: int) -> list[int]:
        """Returns where the components of the replicas here start in what `gather` gives."""
        return _starts([part.shape[axis] for part in value.values])

    def total(self, number: int) -> int:
        """Returns the sum of the numbers that the workers have."""
        return number

    def note_unevenness(self, value: PyTree) -> None:
        """Notes where a value that every worker has just made has other shapes on the others."""

    def first_component(self, value: DistributedValues) -> Any:
        """Returns the component of the first replica of all, on every worker."""
        return first_component(value)


@final
class ReplicasOfWorkers(SyncGroup):
    """Every worker has some of the replicas, and as many as the others."""

    def __init__(self, devices: ReplicaDevices, membership: Membership, patience: float):
        """
        Args:
          devices: of the replicas.
          membership: this process as one of the workers.
          patience: for how many seconds it waits for others, which load data or compile.
        """
        self._devices = devices
        self._mesh = replica_mesh(devices)
        self._membership = membership
        self._patience = patience
        self._beginnings = beginnings_of(membership)
        self._datasets = itertools.count()
        self.first_replica = self._mesh.first

    @override
    def scope(self, strategy: StrategyLike) -> StrategyScope:
        return ScopeOfWorkers(strategy, self._beginnings)

    @override
    def size(self, here: int) -> int:
        return self._mesh.size

    @override
    def input_layout(self, devices: tuple[Device, ...]) -> InputLayout:
        membership = self._membership
        return InputLayout(devices, membership.workers, membership.worker, self._exchange)

    def _exchange(self) -> Exchange:
        """For a walk over a data set; every worker begins its walks in the same order."""
        return self._membership.series(f"data set {next(self._datasets)}", self._patience)

    @override
    def as_value(self, value: Any) -> Any:
        kind = per_replica_type(self._devices)
        if kind is PerReplica or isinstance(value, DistributedValues):
            return value
        return kind([array_of(value, "A reduction")])

    @override
    def over_all(self, value: Any) -> Any:
        if not isinstance(value, PerReplica):
            return value
        return world().replicas.over_mesh(value, self._mesh, "A reduction")

    @override
    def devices_of(self, value: object) -> tuple[Device, ...] | None:
        return self._devices if self._is_of_replicas(value) else None

    def _is_of_replicas(self, value: object) -> bool:
        return isinstance(value, PerReplica) and local_count(value) == len(self._devices)

    @override
    def gather(
        self,
        ops: CrossDeviceOps,
        value: DistributedValues,
        destinations: object,
        axis: int,
        options: CommunicationOptions | None,
    ) -> Any:
        def gather_across_workers() -> Any:
            devices = self.devices_of(destinations) or destination_devices(destinations)
            joined = gather_across(self._mesh, value.values, axis, devices[0], "gather")
            return ops.broadcast(joined, devices)

        gather = functools.partial(super().gather, ops, value, destinations, axis, options)
        # A program has the values of all replicas, wherever these are.
        eagerly = gather_across_workers if self._is_of_replicas(value) else gather
        return world().pick(eagerly, gather)()

    @override
    def starts_in_gathered(self, value: DistributedValues, axis: int) -> list[int]:
        sizes = numbers_everywhere(self._mesh, [part.shape[axis] for part in value.values])
        return _starts(sizes)[self.first_replica :][: local_count(value)]

    @override
    def total(self, number: int) -> int:
        others = [0] * (len(self._devices) - 1)
        return sum(numbers_everywhere(self._mesh, [number, *others]))

    @override
    def note_unevenness(self, value: PyTree) -> None:
        said = self._membership.exchange("values", shapes_of(value), self._patience)
        if differ(said):
            mark_uneven(value, said)

    @override
    def first_component(self, value: DistributedValues) -> Any:
        def from_first_worker() -> jax.Array:
            return of_first_replica(self._mesh, as_components(value, "An update").values)

        return world().pick(from_first_worker, lambda: first_component(value))()


@final
class ClusterWorkers(Coworkers):
    """The other workers of a cluster, for the mesh."""

    def __init__(self, membership: Membership, patience: float):
        self._membership = membership
        self._patience = patience
        self._beginnings = beginnings_of(membership)

    @override
    def before_call(self, what: str) -> None:
        self._membership.before_call(what)

    @override
    def begin_together(self, mesh: ReplicaMesh, beginning: Beginning, what: str) -> None:
        self._beginnings.add(mesh, beginning, what, self._patience)

    @override
    def await_beginning(self, beginning: Beginning) -> None:
        self._beginnings.begin(beginning)

    @override
    def settle_beginnings(self) -> None:
        self._beginnings.settle()

    @override
    def name_of(self, worker: int) -> str:
        return self._membership.names[worker]

    @override
    def require_same(self, topic: str, what: str, content: str = "") -> bool:
        answers = self._membership.exchange(topic, [what, content], timeout=self._patience)
        said = [each for each, _ in answers]
        if all(each == what for each in said):
            return all(each == content for _, each in answers)
        raise mismatch(self._membership.names, said)


def _starts(sizes: Sequence[int]) -> list[int]:
    return [0, *itertools.accumulate(sizes)][:-1]
