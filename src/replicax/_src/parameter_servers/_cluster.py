"""The actors of a strategy: its workers and servers, started and waited for."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping
from types import ModuleType
from typing import Any, final

from replicax._src._errors import WorkersMissingError
from replicax._src.cluster import connect_to_ray
from replicax._src.parameter_servers._server import ParameterServer
from replicax._src.parameter_servers._servers import (
    ActorHandle,
    Servers,
    answer_timeout,
    server_name,
)
from replicax._src.parameter_servers._worker import Worker

_JOIN_TIMEOUT = 300.0  # seconds


@final
class Cluster:
    """Workers and servers. They end when nobody has this object any more."""

    def __init__(
        self,
        workers: int,
        ps: int,
        resources: Mapping[str, Mapping[str, Any]],
        address: str | None,
    ):
        self.strategy_id = uuid.uuid4().hex
        ray = connect_to_ray(address, cpus=workers + ps)
        # On one machine they share its CPUs, however many there are.
        needs = {"num_cpus": 0 if len(ray.nodes()) == 1 else 1}
        self._of_servers = {**needs, **resources.get("ps", {})}
        of_workers = {**needs, "max_restarts": -1, **resources.get("worker", {})}
        has_gpus = bool(resources.get("worker", {}).get("num_gpus"))
        self._server = ray.remote(ParameterServer)
        worker = ray.remote(Worker).options(**of_workers)
        actors = [self._start_server(index, 0) for index in range(ps)]
        timeout = answer_timeout()
        self.servers = Servers(actors, [0] * ps, timeout)
        self.workers = [
            worker.remote(index, self.strategy_id, has_gpus, timeout) for index in range(workers)
        ]
        self._await(ray, actors)

    def _start_server(self, index: int, life: int) -> ActorHandle:
        name = server_name(self.strategy_id, index, life)
        return self._server.options(name=name, **self._of_servers).remote(index)

    def restart_server(self, index: int) -> None:
        """Starts a server again that was lost. It holds nothing."""
        # Not Ray does it: calls would wait for the new one, where the loss is to be known at once.
        self.servers.replace(index, self._start_server(index, self.servers.lives[index] + 1))

    def _await(self, ray: ModuleType, servers: list[ActorHandle]) -> None:
        limit = float(os.environ.get("REPLICAX_JOIN_TIMEOUT", _JOIN_TIMEOUT))
        deadline = time.monotonic() + limit
        names = {
            each.ready.remote(): f"{job} {index}"
            for job, actors in (("ps", servers), ("worker", self.workers))
            for index, each in enumerate(actors)
        }
        waiting = list(names)
        while waiting and time.monotonic() < deadline:
            done, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=0.5)
            ray.get(done)
        if waiting:
            free = {key: value for key, value in ray.available_resources().items() if value >= 1}
            raise WorkersMissingError(
                f"{', '.join(names[each] for each in waiting)} did not start within {limit:.0f} s. "
                f"Ray has free: {free}. Ask for fewer, or for less in "
                "RayClusterResolver(resources=...), or add nodes."
            )
