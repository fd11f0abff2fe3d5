"""The resolver that asks a Kubernetes server for the pods with given labels.

The package `kubernetes` is loaded when the resolver is made. An Indexed Job does not need it: see
`_environment.py`.
"""

from __future__ import annotations

import enum
import importlib
from typing import Any

from replicax._src._typing import override
from replicax._src.cluster._spec import ClusterSpec
from replicax._src.cluster.resolvers._host_lists import natural_order
from replicax._src.cluster.resolvers._resolver import LookedUpCluster


class KubernetesExecutableLocation(enum.Enum):
    """Where the program runs, which decides how it finds the Kubernetes server."""

    WITHIN_CLUSTER = 0
    OFF_CLUSTER = 1


class KubernetesClusterResolver(LookedUpCluster):
    """A resolver that asks Kubernetes for the running pods with given labels.

    It does not know which of them this process is: set `task_type` and `task_id`. Pods are numbered
    by name, with worker-2 before worker-10.

    The address of a worker is the IP address of its pod. (TensorFlow takes that of the node, which
    is the same for all pods on a node, and leads to them only with `hostNetwork: true`.)

    Args:
      job_to_label_mapping: A dict from the name of each job to a list of label selectors, for
        example {"worker": ["job-name=train"]}, and by default {"worker": ["job-name=tensorflow"]}.
      tf_server_port: The port of every worker.
      rpc_layer: The protocol that `master()` shows.
      override_client: A client to use instead of `kubernetes.client.CoreV1Api()`; loading its
        configuration is then up to you.
      executable_location: Whether the program runs in a pod of the cluster.

    Raises:
      ImportError: If the package `kubernetes` is needed and not installed.
      ValueError: If `executable_location` is not a `KubernetesExecutableLocation`.
    """

    def __init__(
        self,
        job_to_label_mapping: dict[str, list[str]] | None = None,
        tf_server_port: int = 8470,
        rpc_layer: str | None = "grpc",
        override_client: Any = None,
        executable_location: KubernetesExecutableLocation = (
            KubernetesExecutableLocation.WITHIN_CLUSTER
        ),
    ) -> None:
        self._client = override_client or _client(executable_location)
        self._job_to_label_mapping = job_to_label_mapping or {"worker": ["job-name=tensorflow"]}
        self._tf_server_port = tf_server_port
        self._task_type = None
        self._task_id = None
        self._rpc_layer = rpc_layer

    @override
    def cluster_spec(self) -> ClusterSpec:
        """Returns the cluster as Kubernetes describes it now.

        Raises:
          RuntimeError: If one of the pods is not running.
        """
        return ClusterSpec(
            {
                job: [address for selector in selectors for address in self._addresses(selector)]
                for job, selectors in self._job_to_label_mapping.items()
            }
        )

    def _addresses(self, selector: str) -> list[str]:
        pods = self._client.list_pod_for_all_namespaces(label_selector=selector).items
        addresses = []
        for pod in sorted(pods, key=lambda pod: natural_order(pod.metadata.name)):
            if pod.status.phase != "Running":
                raise RuntimeError(
                    f'Pod "{pod.metadata.name}" is not running; phase: "{pod.status.phase}". Start '
                    f"the program when all pods with the label {selector!r} run, and remove those "
                    "of earlier runs."
                )
            ip = getattr(pod.status, "pod_ip", None)
            ip = ip if isinstance(ip, str) and ip else pod.status.host_ip
            addresses.append(f"{f'[{ip}]' if ':' in ip else ip}:{self._tf_server_port}")
        return addresses


def _client(location: KubernetesExecutableLocation) -> Any:
    if not isinstance(location, KubernetesExecutableLocation):
        raise ValueError(
            f"The executable location provided is invalid: {location!r}. It is a "
            "KubernetesExecutableLocation: WITHIN_CLUSTER or OFF_CLUSTER."
        )
    try:
        config = importlib.import_module("kubernetes.config")
        client = importlib.import_module("kubernetes.client")
    except ImportError:
        raise ImportError(
            "KubernetesClusterResolver needs the package `kubernetes`, which is not installed. Run "
            "`pip install kubernetes`, or pass override_client. An Indexed Job needs neither: set "
            "TF_CONFIG or REPLICAX_WORKER_HOSTNAMES."
        ) from None
    if location is KubernetesExecutableLocation.WITHIN_CLUSTER:
        config.load_incluster_config()
    else:
        config.load_kube_config()
    return client.CoreV1Api()
