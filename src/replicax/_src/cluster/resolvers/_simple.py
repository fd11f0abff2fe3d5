"""Resolvers made of what they are given: one that is told everything, and one that joins others."""

from __future__ import annotations

from typing import Any

from replicax._src._typing import override
from replicax._src.cluster._spec import ClusterSpec
from replicax._src.cluster.resolvers._resolver import ClusterResolver, Place, format_master_url


class SimpleClusterResolver(ClusterResolver):
    """A resolver that is told everything.

    >>> import replicax as rx
    >>> cluster = rx.train.ClusterSpec({"worker": ["host0:2222", "host1:2222"]})
    >>> resolver = rx.distribute.cluster_resolver.SimpleClusterResolver(
    ...     cluster, task_type="worker", task_id=1, rpc_layer="grpc")
    >>> resolver.master("worker", 0)
    'grpc://host0:2222'

    Args:
      cluster_spec: The cluster.
      master: What `master()` returns.
      task_type: The job of this process.
      task_id: Its index in that job.
      environment: What `environment` is.
      num_accelerators: What `num_accelerators()` returns.
      rpc_layer: The protocol that `master()` shows.

    Raises:
      TypeError: If `cluster_spec` is not a `ClusterSpec`, or `master` not a string.
    """

    def __init__(
        self,
        cluster_spec: ClusterSpec,
        master: str = "",
        task_type: str | None = None,
        task_id: int | None = None,
        environment: str = "",
        num_accelerators: dict[str, int] | None = None,
        rpc_layer: str | None = None,
    ) -> None:
        if not isinstance(cluster_spec, ClusterSpec):
            raise TypeError(
                "cluster_spec must be a `rx.train.ClusterSpec`; got "
                f"{type(cluster_spec).__name__}. Write rx.train.ClusterSpec({{...}})."
            )
        if not isinstance(master, str):
            raise TypeError(f"master must be a string; got {master!r}.")
        self._cluster_spec = cluster_spec
        self._master = master
        self._task_type = task_type
        self._task_id = task_id
        self._environment = environment
        self._num_accelerators = num_accelerators
        self._rpc_layer = rpc_layer

    @override
    def cluster_spec(self) -> ClusterSpec:
        """Returns the cluster that it was given."""
        return self._cluster_spec

    @override
    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Returns the address of a task; of use to TensorFlow 1 only.

        Args:
          task_type: Its job; without it or `task_id`, the `master` that it was given is returned.
          task_id: Its index.
          rpc_layer: A protocol to put before the address.
        """
        master = self._master
        if task_type is not None and task_id is not None:
            master = self.cluster_spec().task_address(task_type, task_id)
        return format_master_url(master, rpc_layer or self._rpc_layer)

    @override
    def _known_accelerators(self) -> dict[str, int]:
        return self._num_accelerators or {}

    @property
    @override
    def environment(self) -> str:
        """What it was given."""
        return self._environment


class UnionResolver(ClusterResolver):
    """Joins the clusters of several resolvers; everything else comes from the first.

    >>> import replicax as rx
    >>> resolvers = rx.distribute.cluster_resolver
    >>> def one(job, *addresses):
    ...     return resolvers.SimpleClusterResolver(rx.train.ClusterSpec({job: addresses}))
    >>> union = resolvers.UnionResolver(
    ...     one("worker", "host0:2222"), one("worker", "host1:2222"), one("ps", "host2:2222"))
    >>> union.cluster_spec()
    ClusterSpec({'ps': ['host2:2222'], 'worker': ['host0:2222', 'host1:2222']})

    Args:
      *args: The resolvers.
      **kwargs: `task_type`, `task_id` and `rpc_layer` to use instead of the first resolver's.

    Raises:
      TypeError: If an argument is not a `ClusterResolver`.
      ValueError: If there is no resolver, or a keyword that is not known.
    """

    # The names of the keywords are TensorFlow's, and so is their being in **kwargs.
    def __init__(self, *args: ClusterResolver, **kwargs: Any) -> None:
        self._rpc_layer = kwargs.pop("rpc_layer", None) or None
        self._task_type = kwargs.pop("task_type", None)
        self._task_id = kwargs.pop("task_id", None)
        if kwargs:
            raise ValueError(
                f"Unexpected kwargs provided {kwargs!r}; there are task_type, task_id, rpc_layer."
            )
        if not args:
            raise ValueError("At least one ClusterResolver is required.")
        for resolver in args:
            if not isinstance(resolver, ClusterResolver):
                raise TypeError(
                    "All arguments must be a `ClusterResolver`; got "
                    f"{type(resolver).__name__}: {resolver!r}."
                )
        self._cluster_resolvers = args

    @override
    def cluster_spec(self) -> ClusterSpec:
        """Returns all jobs of all resolvers in one cluster.

        The lists of a job that several resolvers have are put one after the other. If one of them
        is a dict from index to address, all are taken as dicts.

        Raises:
          KeyError: If two such dicts have the same index.
        """
        described = [resolver.cluster_spec().as_dict() for resolver in self._cluster_resolvers]
        sparse = {
            name for jobs in described for name, tasks in jobs.items() if isinstance(tasks, dict)
        }
        merged: dict[str, dict[int, str]] = {}
        for jobs in described:
            for name, tasks in jobs.items():
                job = merged.setdefault(name, {})
                first = 0 if name in sparse else len(job)
                new = tasks if isinstance(tasks, dict) else dict(enumerate(tasks, start=first))
                if twice := sorted(job.keys() & new.keys()):
                    raise KeyError(
                        "Duplicate keys detected when merging two ClusterSpecs: the job "
                        f"{name!r} has {twice} more than once."
                    )
                job.update(new)
        return ClusterSpec(merged)

    @override
    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Returns the first resolver's master, or the address of the task that is asked for.

        Args:
          task_type: The task's job.
          task_id: The task's index.
          rpc_layer: A protocol to put before the address.
        """
        if task_type is not None and task_id is not None:
            address = self.cluster_spec().task_address(task_type, task_id)
            return format_master_url(address, rpc_layer or self._rpc_layer)
        return self._cluster_resolvers[0].master(rpc_layer=rpc_layer)

    @override
    def num_accelerators(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        config_proto: object = None,
    ) -> dict[str, int]:
        """Returns what the first resolver says.

        Args:
          task_type: The worker's job.
          task_id: The worker's index.
          config_proto: Not used.
        """
        return self._cluster_resolvers[0].num_accelerators(task_type, task_id, config_proto)

    @property
    @override
    def environment(self) -> str | None:
        """The first resolver's."""
        return self._cluster_resolvers[0].environment

    @override
    def _place(self) -> Place:
        # TensorFlow asks `self._task_id or ...`, and so never lets a task id of 0 override another.
        first = self._cluster_resolvers[0]
        return Place(first.task_type, first.task_id, first.rpc_layer)

    @override
    def _check(self) -> None:
        for resolver in self._cluster_resolvers:
            resolver._check()
