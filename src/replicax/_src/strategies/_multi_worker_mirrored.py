"""`MultiWorkerMirroredStrategy`: replicas on the devices of many processes, in step.

Every worker runs the same program and owns its local replicas. What makes it work is below: a
`ReplicaDevices` tuple, whose mesh spans all workers (`devices/_replicas.py`). Here are only the
places where one worker's values have to meet those of the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, final

import jax

from replicax._src import _old_names
from replicax._src._errors import ClusterConfigError, ReplicaMismatchError
from replicax._src._typing import Device, override
from replicax._src.cluster import Membership, join, resolver_from_environment
from replicax._src.cluster.resolvers import TFConfigClusterResolver
from replicax._src.collectives import (
    CommunicationImplementation,
    CommunicationOptions,
    ReduceOp,
    array_of,
    as_components,
    as_options,
    gather_across,
    numbers_everywhere,
    of_first_replica,
    of_first_worker,
)
from replicax._src.context import world
from replicax._src.data.distributed import Exchange, InputLayout, differ, mark_uneven, shapes_of
from replicax._src.devices import (
    Coworkers,
    Groups,
    ReplicaDevices,
    ReplicaMesh,
    canonical_names,
    groups_of,
    have_others,
    in_groups,
    list_physical_devices,
    name_this_process,
    planned_cpu_devices,
    replica_mesh,
    resolve_all,
)
from replicax._src.strategies._extended import StrategyExtended
from replicax._src.strategies._logical_devices import grouped
from replicax._src.strategies._state_layout import StateLayout, as_state_layout
from replicax._src.strategies._strategy import Strategy
from replicax._src.values import DistributedValues, OneOfMany, PerReplica, ReplicaBuffers

_PATIENCE_SECONDS = 1800.0  # for workers that are alive and late: they load data, or compile


class MultiWorkerMirroredExtended(StrategyExtended):
    """As the mirrored one, over the devices of all workers."""

    def __init__(
        self,
        container_strategy: Any,
        cluster_resolver: Any,
        options: Any = None,
        logical_devices_per_replica: int = 1,
        state_layout: Any = None,
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
        super().__init__(container_strategy)
        self._state_layout = as_state_layout(state_layout)
        self._options: CommunicationOptions = as_options(options)
        if cluster_resolver is None:
            cluster_resolver = resolver_from_environment()
        membership = None
        if cluster_resolver is not None:
            membership = join(cluster_resolver, device_count=_planned_device_count())
        self._cluster_resolver = cluster_resolver or TFConfigClusterResolver()
        self._membership: Membership | None = membership
        self._datasets = itertools.count()
        local = resolve_all(None)
        self._devices: tuple[Device, ...] = grouped(local, logical_devices_per_replica)
        if membership is not None and membership.workers > 1:
            everywhere = sorted(
                jax.devices(local[0].platform), key=lambda each: (each.process_index, each.id)
            )
            _check_devices(local, everywhere, membership)
            coworkers = _Coworkers(membership, self._options.timeout_seconds or _PATIENCE_SECONDS)
            groups = assigned or groups_of(in_groups(everywhere, logical_devices_per_replica))
            here = [group for group in groups if group[0].process_index == membership.worker]
            self._devices = ReplicaDevices(here, groups, coworkers)
            task = self._cluster_resolver
            name_this_process(task.task_type or "worker", task.task_id or 0)
        self._device_names = canonical_names(self._devices)

    # ------------------------------------------------------------------ what the strategy is

    @property
    def worker_devices(self) -> tuple[str, ...]:
        return self._device_names

    @property
    def _replica_devices(self) -> tuple[Device, ...]:
        return self._devices

    @property
    def _variable_devices(self) -> tuple[Device, ...]:
        return self._devices

    @property
    def _num_replicas_in_sync(self) -> int:
        return self._mesh.size

    @property
    def _first_replica(self) -> int:
        return self._mesh.first

    @property
    def _mesh(self) -> Any:
        return replica_mesh(self._devices)

    @property
    def _worker(self) -> int:
        return 0 if self._membership is None else self._membership.worker

    @property
    def experimental_between_graph(self) -> bool:
        """Whether each worker builds its own program; so it does."""
        return True

    @property
    def should_checkpoint(self) -> bool:
        return self._worker == 0

    @property
    def should_save_summary(self) -> bool:
        return self._worker == 0

    @property
    def _input_layout(self) -> InputLayout:
        membership = self._membership
        if membership is None:
            return InputLayout(self._devices)
        return InputLayout(self._devices, membership.workers, membership.worker, self._meet)

    def _meet(self) -> Exchange:
        """For a walk over a data set; every worker begins its walks in the same order."""
        membership = self._membership
        assert membership is not None
        topic = f"data set {next(self._datasets)}"
        return membership.series(topic, self._options.timeout_seconds or _PATIENCE_SECONDS)

    def _call_for_each_replica(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        with self._mesh.one_thread():
            return super()._call_for_each_replica(fn, args, kwargs)

    # ------------------------------------------------------------------ combining values

    def _devices_of(self, destinations: Any) -> tuple[Device, ...]:
        if isinstance(destinations, PerReplica) and destinations._count == len(self._devices):
            return self._devices
        return super()._devices_of(destinations)

    def _already_reduced(self, op: ReduceOp, value: Any, destinations: Any) -> tuple[Any] | None:
        if self._is_own_value(value):
            return None
        return super()._already_reduced(op, value, destinations)

    def _is_own_value(self, value: Any) -> bool:
        """Whether it is one array of a worker with one replica: that replica's."""
        is_one_of_many = have_others(self._devices) and len(self._devices) == 1
        return is_one_of_many and not isinstance(value, DistributedValues)

    def _reduce_to(self, reduce_op: ReduceOp, value: Any, destinations: Any, options: Any) -> Any:
        return self._batch_reduce_to(reduce_op, [(value, destinations)], options)[0]

    def _batch_reduce_to(
        self, reduce_op: ReduceOp, value_destination_pairs: Sequence[tuple[Any, Any]], options: Any
    ) -> list[Any]:
        pairs = [
            (self._over_all(value), self._devices_of(destinations))
            for value, destinations in value_destination_pairs
        ]
        options = self._options if options == CommunicationOptions() else options
        return super()._batch_reduce_to(reduce_op, pairs, options)

    def _over_all(self, value: Any) -> Any:
        """A value of this worker's replicas as a part of one over all workers."""
        if not have_others(self._devices):
            return value
        if self._is_own_value(value):
            value = OneOfMany([array_of(value, "A reduction")])
        if world().replicas.are_together or not isinstance(value, PerReplica):
            return value
        if value._buffers is not None and value._buffers.mesh is self._mesh:
            return value
        parts = as_components(value, "A reduction").values
        return PerReplica._from_buffers(ReplicaBuffers(self._mesh, components=list(parts)))

    def _gather_to(self, value: Any, destinations: Any, axis: int, options: Any = None) -> Any:
        own = isinstance(value, PerReplica) and value._count == len(self._devices)
        if world().replicas.are_together or not self._mesh.spans_workers or not own:
            return super()._gather_to(value, destinations, axis, options)
        devices = self._devices_of(destinations)
        joined = gather_across(self._mesh, value.values, axis, devices[0], "gather")
        return self._cross_device_ops.broadcast(joined, devices)

    def _starts_in_gathered(self, value: DistributedValues, axis: int) -> list[int]:
        if not self._mesh.spans_workers:
            return super()._starts_in_gathered(value, axis)
        sizes = numbers_everywhere(self._mesh, [part.shape[axis] for part in value.values])
        first = self._first_replica
        return [sum(sizes[: first + index]) for index in range(value._count)]

    def _sum_over_workers(self, number: int) -> int:
        if not self._mesh.spans_workers:
            return number
        others = [0] * (len(self._devices) - 1)
        return sum(numbers_everywhere(self._mesh, [number, *others]))

    def _compare_over_workers(self, value: Any) -> None:
        if self._membership is not None and self._mesh.spans_workers:
            patience = self._options.timeout_seconds or _PATIENCE_SECONDS
            if differ(self._membership.exchange("values", shapes_of(value), patience)):
                mark_uneven(value)

    def _of_first_replica(self, value: DistributedValues) -> Any:
        if value._is_traced or not self._mesh.spans_workers:
            return super()._of_first_replica(value)
        return of_first_replica(self._mesh, as_components(value, "An update").values)


@final
class _Coworkers(Coworkers):
    """The other workers of a cluster."""

    def __init__(self, membership: Membership, patience: float):
        self._membership = membership
        self._patience = patience

    @override
    def before_call(self, what: str) -> None:
        self._membership.before_call(what)

    @override
    def value_of_first(self, mesh: ReplicaMesh, value: jax.Array, what: str) -> jax.Array:
        return of_first_worker(mesh, value, what)

    @override
    def name_of(self, worker: int) -> str:
        return self._membership.names[worker]

    @override
    def require_same(self, topic: str, what: str) -> None:
        said = self._membership.exchange(topic, what, timeout=self._patience)
        if all(each == what for each in said):
            return
        names = self._membership.names
        listing = "\n".join(f"  {name}: {each}" for name, each in zip(names, said, strict=True))
        raise ReplicaMismatchError(
            f"The workers do not do the same thing:\n{listing}\nEvery worker must run the same "
            "program: make the same variables and call the same functions, with arrays of the same "
            "shapes, in the same order. Look for an `if` that depends on the worker, on its data "
            "or on the order of a set."
        )


def _check_devices(local: Any, everywhere: Any, membership: Membership) -> None:
    """What was planned when the workers met is what JAX has; replicas are numbered by it."""
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
    """How many devices this process will have; asking JAX would start it too early."""
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
        cluster_resolver: Any = None,
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
        communication: Any = CommunicationImplementation.AUTO,
        cluster_resolver: Any = None,
    ):
        _old_names.warn_of("rx.distribute.experimental.MultiWorkerMirroredStrategy")
        super().__init__(cluster_resolver, CommunicationOptions(implementation=communication))


ExperimentalMultiWorkerMirroredStrategy.__name__ = MultiWorkerMirroredStrategy.__name__
