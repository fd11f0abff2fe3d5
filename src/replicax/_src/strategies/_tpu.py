"""`TPUStrategy`: replicas by a device assignment, and `run` that compiles; on any hardware."""

from __future__ import annotations

from typing import Any, final

from replicax._src import _old_names
from replicax._src._typing import Device
from replicax._src.cluster import ClusterResolver, checked_cluster
from replicax._src.cluster.resolvers import TPUClusterResolver
from replicax._src.devices import DeviceAssignment, Groups, ReplicaDevices, best_local_devices
from replicax._src.functions import FunctionCache
from replicax._src.strategies._mirrored import MirroredExtended
from replicax._src.strategies._multi_worker_mirrored import MultiWorkerMirroredExtended
from replicax._src.strategies._state_layout import StateLayout
from replicax._src.strategies._strategy import Strategy


class _CompilesRuns:
    """Replica functions are always compiled."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._functions = FunctionCache()

    @property
    def _compiled_runs(self) -> FunctionCache:
        return self._functions


@final
class TPUExtended(_CompilesRuns, MirroredExtended):
    """The cores of one host."""


@final
class TPUPodExtended(_CompilesRuns, MultiWorkerMirroredExtended):
    """The cores of several hosts, each of which runs the program."""


class TPUStrategy(Strategy):
    """Synchronous training on the cores of a TPU, or on whatever devices stand in for them.

    Each replica has one core, or several logical ones by a device assignment; `run` compiles the
    function that it is given, as in TensorFlow, where it must be a `tf.function`. Everything else
    is as with `MirroredStrategy`, which has a shorter way to several logical devices.

    >>> import replicax as rx
    >>> resolver = rx.distribute.cluster_resolver.TPUClusterResolver(tpu="")
    >>> rx.config.experimental_connect_to_cluster(resolver)
    >>> topology = rx.tpu.experimental.initialize_tpu_system(resolver)
    >>> device_assignment = rx.tpu.experimental.DeviceAssignment.build(
    ...     topology, computation_shape=[1, 1, 1, 2], num_replicas=2)
    >>> strategy = rx.distribute.TPUStrategy(
    ...     resolver, experimental_device_assignment=device_assignment)
    >>> strategy.num_replicas_in_sync
    2

    Args:
      tpu_cluster_resolver: a `TPUClusterResolver`; None for the devices of this host.
      experimental_device_assignment: a `rx.tpu.experimental.DeviceAssignment`. None: a replica on
        every core.
      experimental_spmd_xla_partitioning: kept for ported code; there is no other way here.
      state_layout: an `rx.distribute.StateLayout`, for state that is kept in parts.
    """

    def __init__(
        self,
        tpu_cluster_resolver: ClusterResolver | None = None,
        experimental_device_assignment: DeviceAssignment | None = None,
        experimental_spmd_xla_partitioning: bool = False,
        *,
        state_layout: StateLayout | None = None,
    ):
        del experimental_spmd_xla_partitioning
        resolver = _as_resolver(tpu_cluster_resolver)
        view = checked_cluster(resolver)
        if view is None or len(view.workers) == 1:
            devices = _replicas(experimental_device_assignment)
            extended: Any = TPUExtended(self, devices, state_layout=state_layout)
            extended._cluster_resolver = resolver
        else:
            assigned = _groups_by_host(experimental_device_assignment)
            extended = TPUPodExtended(self, resolver, state_layout=state_layout, assigned=assigned)
        super().__init__(extended)


class ExperimentalTPUStrategy(TPUStrategy):
    """`TPUStrategy` with the arguments of its older spelling.

    Args:
      tpu_cluster_resolver: as there.
      device_assignment: as its `experimental_device_assignment`.
    """

    def __init__(
        self,
        tpu_cluster_resolver: ClusterResolver | None = None,
        device_assignment: DeviceAssignment | None = None,
    ):
        _old_names.warn_of("rx.distribute.experimental.TPUStrategy")
        super().__init__(tpu_cluster_resolver, device_assignment)


ExperimentalTPUStrategy.__name__ = TPUStrategy.__name__


def _as_resolver(resolver: object) -> ClusterResolver:
    if resolver is None:
        return TPUClusterResolver("local")
    if not isinstance(resolver, ClusterResolver):
        raise TypeError(
            "TPUStrategy takes a rx.distribute.cluster_resolver.TPUClusterResolver, for example "
            f"TPUClusterResolver(tpu=''); got {resolver!r}."
        )
    return resolver


def _replicas(assignment: DeviceAssignment | None) -> tuple[Device, ...]:
    groups = _groups(assignment)
    if groups is None:
        return best_local_devices()
    return ReplicaDevices(groups) if len(groups[0]) > 1 else tuple(group[0] for group in groups)


def _groups(assignment: DeviceAssignment | None) -> Groups | None:
    if assignment is None:
        return None
    if not isinstance(assignment, DeviceAssignment):
        raise TypeError(
            "`experimental_device_assignment` must be a rx.tpu.experimental.DeviceAssignment, for "
            "example DeviceAssignment.build(topology, computation_shape=[1, 1, 1, 2], "
            f"num_replicas=4); got {assignment!r}."
        )
    return assignment._devices()


def _groups_by_host(assignment: DeviceAssignment | None) -> Groups | None:
    groups = _groups(assignment)
    if groups is None:
        return None
    for index, group in enumerate(groups):
        if len({device.process_index for device in group}) > 1:
            raise ValueError(
                f"The device assignment gives replica {index} devices of several hosts: "
                f"{[str(device) for device in group]}. A replica must have its logical devices on "
                "one host; use a smaller computation_shape."
            )
    return tuple(sorted(groups, key=lambda group: group[0].process_index))
