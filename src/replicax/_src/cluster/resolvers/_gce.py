"""The resolver that asks Google Compute Engine for the machines of an instance group.

The package `google-api-python-client` is loaded when the resolver is made.
"""

from __future__ import annotations

import importlib
from typing import Any

from replicax._src._typing import override
from replicax._src.cluster._spec import ClusterSpec
from replicax._src.cluster.resolvers._resolver import LookedUpCluster


class GCEClusterResolver(LookedUpCluster):
    """A resolver that asks Google Compute Engine for the running machines of an instance group.

    Args:
      project: The name of the project.
      zone: The zone of the instance group.
      instance_group: The name of the instance group.
      port: The port of every worker.
      task_type: The job that the machines are.
      task_id: Which of them this one is. The addresses are sorted as text.
      rpc_layer: The protocol that `master()` shows.
      credentials: For the API; "default" takes what the machine has.
      service: The API object to use, instead of `discovery.build("compute", "v1")`.

    Raises:
      ImportError: If the package `google-api-python-client` is needed and not installed.
    """

    def __init__(
        self,
        project: str,
        zone: str,
        instance_group: str,
        port: int,
        task_type: str = "worker",
        task_id: int = 0,
        rpc_layer: str | None = "grpc",
        credentials: object = "default",
        service: Any = None,
    ) -> None:
        self._project = project
        self._zone = zone
        self._instance_group = instance_group
        self._port = port
        self._task_type = task_type
        self._task_id = task_id
        self._rpc_layer = rpc_layer
        self._service = _service(credentials) if service is None else service

    @override
    def cluster_spec(self) -> ClusterSpec:
        """Returns the cluster as Compute Engine describes it now."""
        groups, instances = self._service.instanceGroups(), self._service.instances()
        request = groups.listInstances(
            project=self._project,
            zone=self._zone,
            instanceGroup=self._instance_group,
            body={"instanceState": "RUNNING"},
            orderBy="name",
        )
        addresses = []
        while request is not None:
            response = request.execute()
            for instance in response.get("items", []):
                details = instances.get(
                    project=self._project,
                    zone=self._zone,
                    instance=instance["instance"].rpartition("/")[2],
                ).execute()
                addresses.append(f"{details['networkInterfaces'][0]['networkIP']}:{self._port}")
            request = groups.listInstances_next(
                previous_request=request, previous_response=response
            )
        assert self._task_type is not None
        return ClusterSpec({self._task_type: sorted(addresses)})

    @property
    @override
    def task_type(self) -> str | None:
        """The job that the machines are. It cannot be changed."""
        return self._task_type

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        raise RuntimeError(
            "You cannot reset the task_type of the GCEClusterResolver after it has been created. "
            f"Make a new one with task_type={task_type!r}."
        )


def _service(credentials: object) -> Any:
    try:
        discovery = importlib.import_module("googleapiclient.discovery")
    except ImportError:
        raise ImportError(
            "GCEClusterResolver needs the package `google-api-python-client`, which is not "
            "installed. Run `pip install google-api-python-client`, or pass service."
        ) from None
    # Without credentials the package finds the machine's own.
    return discovery.build(
        "compute", "v1", credentials=None if credentials == "default" else credentials
    )
