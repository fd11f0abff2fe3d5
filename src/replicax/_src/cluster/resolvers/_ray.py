"""Workers and parameter servers that Ray starts: how many, and what each of them needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from replicax._src._typing import override
from replicax._src.cluster._spec import ClusterSpec
from replicax._src.cluster.resolvers._resolver import ClusterResolver


class RayClusterResolver(ClusterResolver):
    """Says how many workers and parameter servers Ray is to start, for a `ParameterServerStrategy`.

    >>> import replicax as rx
    >>> resolver = rx.distribute.cluster_resolver.RayClusterResolver(workers=4, ps=2)
    >>> resolver.cluster_spec().num_tasks("worker")
    4

    Args:
      workers: how many workers.
      ps: how many parameter servers.
      resources: what each of them needs: a dictionary with the keys "worker" and "ps", each with
        options of Ray's actors, such as `{"worker": {"num_cpus": 4, "num_gpus": 1}}`. By default
        one CPU; on a single machine they share what there is.
      address: of the Ray cluster: "host:port", or "auto". By default `RAY_ADDRESS`, or else one
        that is started on this machine, and ends with this process.
    """

    def __init__(
        self,
        workers: int = 2,
        ps: int = 1,
        resources: Mapping[str, Mapping[str, Any]] | None = None,
        address: str | None = None,
    ):
        for name, count in (("workers", workers), ("ps", ps)):
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:  # pyright: ignore
                raise ValueError(f"`{name}` is a number of processes, 1 or more; got {count!r}.")
        unknown = set(resources or {}) - {"worker", "ps"}
        if unknown:
            raise ValueError(
                f"`resources` has the keys 'worker' and 'ps'; got {sorted(unknown)}. Write "
                "resources={'worker': {'num_cpus': 2}}."
            )
        self._task_type = "chief"
        self._task_id = 0
        self._rpc_layer = None
        self._workers = workers
        self._ps = ps
        self.resources = {job: dict(needs) for job, needs in (resources or {}).items()}
        self.address = address

    @override
    def cluster_spec(self) -> ClusterSpec:
        """Returns the jobs. Ray knows the addresses; what is there instead are names."""
        return ClusterSpec(
            {
                "worker": [f"ray-worker-{index}:0" for index in range(self._workers)],
                "ps": [f"ray-ps-{index}:0" for index in range(self._ps)],
            }
        )

    @override
    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Returns the address of the Ray cluster; empty for one on this machine.

        Args:
          task_type: Not used.
          task_id: Not used.
          rpc_layer: Not used.
        """
        return self.address or ""
