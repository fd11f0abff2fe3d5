"""`MultiWorkerMirroredStrategy`: replicas on the devices of many processes, in step.

Every worker runs the same program and owns its local replicas. What makes it work is below: a
`ReplicaDevices` tuple, whose mesh spans all workers (`devices/_mesh.py`). The places where one
worker's values have to meet those of the others are in `_sync_group.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from replicax._src import _old_names
from replicax._src._errors import ClusterConfigError
from replicax._src._typing import Device, PyTree, override
from replicax._src.cluster import ClusterResolver, Membership, join, resolver_from_environment
from replicax._src.cluster.resolvers import TFConfigClusterResolver
from replicax._src.collectives import (
    CommunicationImplementation,
    CommunicationOptions,
    ReduceOp,
    as_options,
)
from replicax._src.devices import (
    Groups,
    ReplicaDevices,
    groups_of,
    in_groups,
    list_physical_devices,
    name_this_process,
    planned_cpu_devices,
    replica_mesh,
    resolve_all,
)
from replicax._src.strategies._logical_devices import grouped
from replicax._src.strategies._mirrored import MirroredExtended
from replicax._src.strategies._state_layout import StateLayout, as_state_layout
from replicax._src.strategies._strategy import Strategy
from replicax._src.strategies._sync_group import ClusterWorkers, ReplicasOfWorkers, SyncGroup

_PATIENCE_SECONDS = 1800.0  # for workers that are alive and late: they load data, or compile


class MultiWorkerMirroredExtended(MirroredExtended):
    """As the mirrored one, over the devices of all workers."""

    def __init__(
        self,
        container_strategy: Strategy | None,
        cluster_resolver: ClusterResolver | None,
        options: CommunicationOptions | None = None,
        logical_devices_per_replica: int = 1,
        state_layout: StateLayout | None = None,
        assigned: Groups | None = None,
    ):
        """
        Args:
          container_strategy: the strategy.
          cluster_resolver: as in the strategy, like the next ones.
          options: the same.
          logical_devices_per_replica: the same.
          state_layout: the same.
          assigned: the logical devices of each replica, if they are not just neighbours.
        """
        self._options: CommunicationOptions = as_options(options)
        state_layout = as_state_layout(state_layout)
        if cluster_resolver is None:
            cluster_resolver = resolver_from_environment()
        membership = None
        if cluster_resolver is not None:
            membership = join(cluster_resolver, device_count=_planned_device_count())
        self._membership: Membership | None = membership
        self._worker = 0 if membership is None else membership.worker
        local = resolve_all(None)
        devices = grouped(local, logical_devices_per_replica)
        group = SyncGroup()
        resolver = cluster_resolver or TFConfigClusterResolver()
        if membership is not None and membership.workers > 1:
            patience = self._options.timeout_seconds or _PATIENCE_SECONDS
            devices = _devices_of_all(
                local, membership, patience, assigned, logical_devices_per_replica
            )
            group = ReplicasOfWorkers(devices, membership, patience)
            name_this_process(resolver.task_type or "worker", resolver.task_id or 0)
        super().__init__(container_strategy, devices, state_layout=state_layout)
        self._cluster_resolver = resolver
        self._sync_group = group

    @property
    @override
    def experimental_between_graph(self) -> bool:
        """Whether each worker builds its own program; it does."""
        return True

    @property
    @override
    def should_checkpoint(self) -> bool:
        return self._worker == 0

    @property
    @override
    def should_save_summary(self) -> bool:
        return self._worker == 0

    @override
    def _call_for_each_replica(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        with replica_mesh(self._replica_devices).one_thread():
            return super()._call_for_each_replica(fn, args, kwargs)

    @override
    def _reduce_to(
        self,
        reduce_op: ReduceOp,
        value: PyTree,
        destinations: object,
        options: CommunicationOptions,
    ) -> Any:
        return self._batch_reduce_to(reduce_op, [(value, destinations)], options)[0]

    @override
    def _batch_reduce_to(
        self,
        reduce_op: ReduceOp,
        value_destination_pairs: Sequence[tuple[Any, Any]],
        options: CommunicationOptions,
    ) -> list[Any]:
        pairs = [
            (self._sync_group.over_all(value), self._devices_of(destinations))
            for value, destinations in value_destination_pairs
        ]
        options = self._options if options == CommunicationOptions() else options
        return super()._batch_reduce_to(reduce_op, pairs, options)


def _devices_of_all(
    local: tuple[Device, ...],
    membership: Membership,
    patience: float,
    assigned: Groups | None,
    logical_devices_per_replica: int,
) -> ReplicaDevices:
    """Returns the devices of the replicas of all workers, as this one sees them."""
    everywhere = sorted(
        jax.devices(local[0].platform), key=lambda each: (each.process_index, each.id)
    )
    _check_devices(local, everywhere, membership)
    groups = assigned or groups_of(in_groups(everywhere, logical_devices_per_replica))
    here = [group for group in groups if group[0].process_index == membership.worker]
    return ReplicaDevices(here, groups, ClusterWorkers(membership, patience))


def _check_devices(
    local: Sequence[Device], everywhere: Sequence[Device], membership: Membership
) -> None:
    """Checks that JAX has the devices that were planned: replicas are numbered by them."""
    if len(everywhere) != membership.workers * len(local):
        raise ClusterConfigError(
            f"{membership.names[membership.worker]} has {len(local)} device(s), and all workers "
            f"together {len(everywhere)}: every worker must have as many. Give them the same "
            "number with JAX_NUM_CPU_DEVICES, CUDA_VISIBLE_DEVICES or --devices-per-worker."
        )
    if local[0].process_index != membership.worker:
        raise ClusterConfigError(
            f"This process is {membership.names[membership.worker]} of the cluster, and JAX takes "
            f"it for number {local[0].process_index}. List the workers in the order of their "
            "devices: on a TPU pod, that of TPU_WORKER_ID."
        )


def _planned_device_count() -> int:
    """Returns how many devices this process will have; asking JAX would start it too early."""
    accelerators = len(list_physical_devices("GPU")) or len(list_physical_devices("TPU"))
    return accelerators or planned_cpu_devices()


class MultiWorkerMirroredStrategy(Strategy):
    """Synchronous training on the devices of several processes, on one machine or many.

    Every worker runs the same program. Variables made in the scope have an equal copy on every
    device of every worker, starting from the first worker's value. `experimental_local_results`
    gives this worker's part of a value.

    Make it at the top of the program, before anything else uses JAX. Start the workers with
    `replicax launch --workers 2 train.py`, or by a scheduler. Without a cluster it is a
    `MirroredStrategy` over the local devices.

    Args:
      cluster_resolver: describes the cluster and this worker's place in it. None: from the
        environment (`TF_CONFIG`, else Slurm's or a TPU pod's variables).
      communication_options: `rx.distribute.experimental.CommunicationOptions`.
      logical_devices_per_replica: how many devices of a worker make up one replica.
      state_layout: an `rx.distribute.StateLayout`, for state that is kept in parts.
    """

    def __init__(
        self,
        cluster_resolver: ClusterResolver | None = None,
        communication_options: CommunicationOptions | None = None,
        *,
        logical_devices_per_replica: int = 1,
        state_layout: StateLayout | None = None,
    ):
        extended = MultiWorkerMirroredExtended(
            *(self, cluster_resolver, communication_options),
            *(logical_devices_per_replica, state_layout),
        )
        super().__init__(extended)

    def __repr__(self) -> str:
        membership = self._extended._membership  # type: ignore[attr-defined]
        which = "" if membership is None else f", {membership.names[membership.worker]} of "
        which += "" if membership is None else f"{membership.workers} workers"
        return super().__repr__().removesuffix(">") + which + ">"


class ExperimentalMultiWorkerMirroredStrategy(MultiWorkerMirroredStrategy):
    """`MultiWorkerMirroredStrategy` with the arguments of its older spelling.

    Args:
      communication: `rx.distribute.experimental.CollectiveCommunication`; XLA chooses by itself.
      cluster_resolver: as there.
    """

    def __init__(
        self,
        communication: CommunicationImplementation = CommunicationImplementation.AUTO,
        cluster_resolver: ClusterResolver | None = None,
    ):
        _old_names.warn_of("rx.distribute.experimental.MultiWorkerMirroredStrategy")
        super().__init__(cluster_resolver, CommunicationOptions(implementation=communication))


ExperimentalMultiWorkerMirroredStrategy.__name__ = MultiWorkerMirroredStrategy.__name__
