"""Initialising a TPU, in TensorFlow's words; JAX has done it when it first lists its devices.

What is left is to join the other hosts of a pod, which has to come before that, and to say which
devices there are and where: the `Topology`.
"""

from __future__ import annotations

from replicax._src.cluster import ClusterResolver, checked_cluster, join
from replicax._src.cluster.resolvers import TPUClusterResolver
from replicax._src.devices import (
    Topology,
    best_local_devices,
    devices_of_all_processes,
    topology_of,
)


def initialize_tpu_system(cluster_resolver: ClusterResolver | str | None = None) -> Topology:
    """Returns the topology of the TPU, or of the devices that stand in for one.

    These are all TPUs of this host; without any, all GPUs, else all (virtual) CPU devices. If the
    resolver describes several hosts, this joins them, and the topology has the devices of all. It
    may be called again; nothing is lost.

    >>> import replicax as rx
    >>> resolver = rx.distribute.cluster_resolver.TPUClusterResolver(tpu="")
    >>> rx.tpu.experimental.initialize_tpu_system(resolver).mesh_shape
    array([1, 2, 2, 2], dtype=int32)

    Args:
      cluster_resolver: A `rx.distribute.cluster_resolver.TPUClusterResolver` or another resolver,
        or the name of a TPU. None is the TPU of this host.

    Raises:
      TypeError: It is something else.
      ClusterConfigError: It describes no cluster that this process could be a part of.
      RuntimeError: It describes several hosts, and JAX has been used already.
    """
    resolver = _resolver(cluster_resolver, "initialize_tpu_system")
    view = checked_cluster(resolver)
    if view is None or len(view.workers) == 1 or join(resolver) is None:
        return topology_of(best_local_devices())
    return topology_of(devices_of_all_processes(best_local_devices()))


def shutdown_tpu_system(cluster_resolver: ClusterResolver | str | None = None) -> None:
    """Checks its argument; JAX lets go of its devices when the program ends.

    Args:
      cluster_resolver: As in `initialize_tpu_system`.

    Raises:
      TypeError: It is something else.
    """
    _resolver(cluster_resolver, "shutdown_tpu_system")


def _resolver(given: object, caller: str) -> ClusterResolver:
    if given is None or isinstance(given, str):
        return TPUClusterResolver(given or "")
    if not isinstance(given, ClusterResolver):
        raise TypeError(
            f"{caller}: `cluster_resolver` must be a resolver such as "
            "rx.distribute.cluster_resolver.TPUClusterResolver(tpu=''), or None; got "
            f"{given!r} of type {type(given).__name__}."
        )
    return given
