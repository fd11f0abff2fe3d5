"""`ClusterResolver`: the interface between a strategy and whatever knows the cluster.

The other files of this folder are one resolver each. They describe; nothing here connects to
another worker, and JAX's devices are started only to count accelerators.
"""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from replicax._src._typing import Device
from replicax._src.cluster._spec import ClusterSpec, worker_tasks

_KINDS = {"cuda": "GPU", "rocm": "GPU"}


def format_master_url(master: str, rpc_layer: str | None = None) -> str:
    """Returns an address as TensorFlow's `master` shows it: with the protocol, if there is one."""
    return f"{rpc_layer}://{master}" if rpc_layer else master


class Place(NamedTuple):
    """What a source says of this process, where it was not set; None: it does not say."""

    task_type: str | None = None
    task_id: int | None = None
    rpc_layer: str | None = None


class ClusterResolver(abc.ABC):
    """Says which workers there are and which of them this process is; subclass it for a new source.

    A subclass has `cluster_spec` and `master`, and sets `self._task_type`, `self._task_id` and
    `self._rpc_layer` (or has properties of its own). A strategy of many workers needs the task type
    and the task id:

    >>> import replicax as rx
    >>> class TwoHosts(rx.distribute.cluster_resolver.ClusterResolver):
    ...     def __init__(self, index):
    ...         self._task_type, self._task_id = "worker", index
    ...     def cluster_spec(self):
    ...         return rx.train.ClusterSpec({"worker": ["a.example:2222", "b.example:2222"]})
    ...     def master(self, task_type=None, task_id=None, rpc_layer=None):
    ...         return self.cluster_spec().task_address("worker", 0)
    >>> TwoHosts(1).task_id
    1
    """

    @abc.abstractmethod
    def cluster_spec(self) -> ClusterSpec:
        """Returns the cluster as it is now, asked again each time."""

    @abc.abstractmethod
    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Returns the address of a task; of use to TensorFlow 1 only.

        Args:
          task_type: Its job; this process's if None.
          task_id: Its index; this process's if None.
          rpc_layer: A protocol to put before the address.
        """

    def num_accelerators(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        config_proto: object = None,
    ) -> dict[str, int]:
        """Returns how many accelerators of each kind a worker has, for example {"GPU": 8}.

        CPUs do not count. What the source does not know itself is counted, and that starts JAX:
        make the strategy first. Of workers other than this one, only those of the running job can
        be counted.

        Args:
          task_type: The worker's job; this process if it or `task_id` is None.
          task_id: The worker's index.
          config_proto: Not used.
        """
        del config_proto
        known = self._known_accelerators()
        if known is not None:
            return known
        own = (self.task_type, self.task_id)
        if task_type is None or task_id is None or (task_type, task_id) == own:
            return local_accelerators()
        tasks = worker_tasks(self.cluster_spec())
        task = (task_type, task_id)
        return count_accelerators(tasks.index(task)) if task in tasks else {}

    @property
    def environment(self) -> str | None:
        """An empty string; TensorFlow has another value inside Google."""
        return ""

    @property
    def task_type(self) -> str | None:
        """The job of this process ("chief", "worker", "ps" or "evaluator"); None if not known."""
        own = getattr(self, "_task_type", None)
        return self._place().task_type if own is None else own

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._task_type = task_type

    @property
    def task_id(self) -> int | None:
        """The index of this process in its job; None if not known."""
        own = getattr(self, "_task_id", None)
        return self._place().task_id if own is None else own

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = task_id

    @property
    def rpc_layer(self) -> str | None:
        """The protocol that TensorFlow would use, for `master`; None if not known."""
        own = getattr(self, "_rpc_layer", None)
        return self._place().rpc_layer if own is None else own

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = rpc_layer

    @property
    def _source(self) -> str:
        """What to call this source in messages."""
        return type(self).__name__

    def _place(self) -> Place:
        """Returns what the source says of this process; asked for what was not set."""
        return Place()

    def _known_accelerators(self) -> dict[str, int] | None:
        """Returns what the source says of the accelerators of a worker; None: they are counted."""
        return None

    def _check(self) -> None:  # noqa: B027  # most sources have no form of their own to check
        """Raises a `ClusterConfigError` if the source itself is malformed."""


class LookedUpCluster(ClusterResolver):
    """What resolvers have in common whose cluster is looked up somewhere: their `master`."""

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Returns the address of a task; of use to TensorFlow 1 only.

        Args:
          task_type: The task's job; this process's if None.
          task_id: The task's index; this process's if None.
          rpc_layer: A protocol to put before the address.
        """
        task_type = self.task_type if task_type is None else task_type
        task_id = self.task_id if task_id is None else task_id
        if task_type is None or task_id is None:
            return ""
        address = self.cluster_spec().task_address(task_type, task_id)
        return format_master_url(address, rpc_layer or self.rpc_layer)


def local_accelerators() -> dict[str, int]:
    """Returns the number of this process's accelerators by kind, such as {"GPU": 8}."""
    import jax

    return _count(jax.local_devices())


def count_accelerators(rank: int) -> dict[str, int]:
    """Returns the same for one worker of the running job; {} if there is no such worker."""
    import jax

    return _count(device for device in jax.devices() if device.process_index == rank)


def _count(devices: Iterable[Device]) -> dict[str, int]:
    platforms = [str(device.platform) for device in devices]
    return dict(Counter(_KINDS.get(each, each.upper()) for each in platforms if each != "cpu"))
