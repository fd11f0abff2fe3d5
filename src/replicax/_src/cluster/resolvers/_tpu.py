"""The resolver for TPUs: describes the pod that this process runs on.

In TensorFlow a program runs anywhere and connects to a TPU by name. With JAX it runs on the TPU's
own hosts, once on each, so nothing is looked up in a cloud: the hosts are in the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from replicax._src._errors import ClusterConfigError
from replicax._src._typing import override
from replicax._src.cluster._addresses import split_address
from replicax._src.cluster._spec import ClusterSpec
from replicax._src.cluster._tf_config import task_index
from replicax._src.cluster.resolvers._resolver import (
    ClusterResolver,
    format_master_url,
    local_accelerators,
)

DEFAULT_PORT = 8888


class TPUSystemMetadata(NamedTuple):
    """Facts about the TPU system.

    Attributes:
      num_cores: The number of devices, of all hosts.
      num_hosts: The number of hosts.
      num_of_cores_per_host: The number of devices of each host.
      topology: None; JAX's devices know their own coordinates.
      devices: JAX's devices.
    """

    num_cores: int
    num_hosts: int
    num_of_cores_per_host: int
    topology: object
    devices: list[Any]


class TPUClusterResolver(ClusterResolver):
    """A resolver for the TPU host, or the pod of several hosts, on which the program runs.

    The hosts of a pod are read from the environment: TPU_WORKER_HOSTNAMES, their names with commas
    between, and TPU_WORKER_ID, the place of this one. Without these, and with tpu="local", it is
    one host. On a machine without TPUs it is one host as well, and its other devices, for example
    virtual CPU devices, stand in:

    >>> import replicax as rx
    >>> resolver = rx.distribute.cluster_resolver.TPUClusterResolver(tpu="")
    >>> resolver.cluster_spec(), resolver.master()
    (ClusterSpec({}), '')

    Args:
      tpu: Empty or None for the TPU of this host, and "local" for this host alone. A name is taken
        on a TPU host only (if it sets TPU_NAME, then only that name).
      zone: Not used: nothing is looked up.
      project: Not used.
      job_name: The name of the job that the hosts are.
      coordinator_name: The name of a further job for `coordinator_address`.
      coordinator_address: An address to add to the cluster as a job of its own.
      credentials: Not used.
      service: Not used.
      discovery_url: Not used.

    Raises:
      ClusterConfigError: If `tpu` is an address or the name of another TPU, or if the environment
        does not describe a pod.
    """

    @staticmethod
    def connect(
        tpu: str | None = None, zone: str | None = None, project: str | None = None
    ) -> TPUClusterResolver:
        """Returns a resolver. There is nothing to connect to: JAX starts the TPU at its first use.

        Args:
          tpu: As in the constructor.
          zone: Not used.
          project: Not used.
        """
        return TPUClusterResolver(tpu, zone, project)

    def __init__(
        self,
        tpu: str | None = None,
        zone: str | None = None,
        project: str | None = None,
        job_name: str = "worker",
        coordinator_name: str | None = None,
        coordinator_address: str | None = None,
        credentials: object = "default",
        service: object = None,
        discovery_url: str | None = None,
    ) -> None:
        del zone, project, credentials, service, discovery_url
        _check_name(tpu)
        if coordinator_name and not coordinator_address:
            raise ClusterConfigError(
                f"TPUClusterResolver: coordinator_name={coordinator_name!r} needs a "
                "coordinator_address; no server is started for it. Give both, or neither."
            )
        self._hosts, index = ((), 0) if tpu == "local" else tpu_hosts(os.environ)
        self._task_type = job_name
        self._task_id = index
        self._coordinator = (coordinator_name or "coordinator", coordinator_address)

    @override
    def cluster_spec(self) -> ClusterSpec:
        """Returns the hosts of the pod; an empty cluster if there is only this host."""
        if not self._hosts:
            return ClusterSpec({})
        assert self._task_type is not None
        cluster: dict[str, list[str]] = {self._task_type: list(self._hosts)}
        name, address = self._coordinator
        if address:
            cluster[name] = [address]
        return ClusterSpec(cluster)

    @override
    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Returns the address of a host as "grpc://host:port"; empty if there is only this host.

        Args:
          task_type: The host's job; this process's if it or `task_id` is None.
          task_id: The host's index.
          rpc_layer: Not used.
        """
        del rpc_layer
        cluster = self.cluster_spec()
        if not cluster:
            return ""
        if task_type is None or task_id is None:
            task_type, task_id = self.task_type, self.task_id
        if task_type is None or task_id is None:
            return ""
        return format_master_url(cluster.task_address(task_type, task_id), "grpc")

    def get_master(self) -> str:
        """Returns `master()`."""
        return self.master()

    def get_job_name(self) -> str | None:
        """Returns the name of the job that the hosts are."""
        return self.task_type

    def get_coordination_service_leader(self) -> str:
        """Returns the first host in TensorFlow's form, "/job:worker/task:0"."""
        return f"/job:{self.get_job_name()}/task:0"

    def get_tpu_system_metadata(self) -> TPUSystemMetadata:
        """Returns how many devices and hosts there are. It starts JAX: make the strategy first."""
        import jax

        devices = jax.devices()
        return TPUSystemMetadata(
            num_cores=len(devices),
            num_hosts=jax.process_count(),
            num_of_cores_per_host=len(jax.local_devices()),
            topology=None,
            devices=devices,
        )

    @override
    def _known_accelerators(self) -> dict[str, int]:
        return {"TPU": local_accelerators().get("TPU", 0)}

    @property
    def tpu_hardware_feature(self) -> None:
        """None: JAX's devices say what they are."""
        return None


def tpu_hosts(environ: Mapping[str, str]) -> tuple[tuple[str, ...], int]:
    """Returns the addresses of a pod's hosts and the place of this one; ((), 0) if it is one host.

    Raises:
      ClusterConfigError: If the variables contradict each other, or describe several slices.
    """
    text = environ.get("TPU_WORKER_HOSTNAMES", "")
    hosts = [host.strip() for host in text.split(",")] if text.strip() else []
    if len(hosts) <= 1:
        return (), 0
    slices = environ.get("MEGASCALE_NUM_SLICES", "1") or "1"
    if slices != "1":
        raise ClusterConfigError(
            f"TPU_WORKER_HOSTNAMES lists the hosts of one slice, but MEGASCALE_NUM_SLICES is "
            f"{slices!r}. Set TF_CONFIG with the hosts of all slices, those of slice 0 first."
        )
    if not all(hosts):
        raise ClusterConfigError(
            f"TPU_WORKER_HOSTNAMES has an empty name: {text!r}. Write the names of all hosts with "
            "commas between."
        )
    if "TPU_WORKER_ID" not in environ:
        raise ClusterConfigError(
            f"TPU_WORKER_HOSTNAMES lists {len(hosts)} hosts, but TPU_WORKER_ID is not set. Set it "
            "to the place of this host in the list: 0 for the first."
        )
    index = task_index(environ["TPU_WORKER_ID"], "TPU_WORKER_ID")
    if index >= len(hosts):
        raise ClusterConfigError(
            f"TPU_WORKER_ID is {index}, but TPU_WORKER_HOSTNAMES lists {len(hosts)} hosts, "
            f"numbered 0 to {len(hosts) - 1}: {text!r}."
        )
    return tuple(with_port(host, environ) for host in hosts), index


def with_port(host: str, environ: Mapping[str, str]) -> str:
    """Returns host:port; the port is REPLICAX_PORT, or else 8888, if the host comes without one.

    Raises:
      ClusterConfigError: If REPLICAX_PORT is not a port.
    """
    if ":" in host and not host.endswith("]"):
        return host
    port = environ.get("REPLICAX_PORT", str(DEFAULT_PORT))
    split_address(f"localhost:{port}", "REPLICAX_PORT is not a port: the address")
    return f"{host}:{port}"


def _check_name(tpu: str | None) -> None:
    if not tpu or tpu == "local":
        return
    if not isinstance(tpu, str):
        raise TypeError(f"TPUClusterResolver: `tpu` is a name, or '' for this host; got {tpu!r}.")
    name, on_tpu = os.environ.get("TPU_NAME"), "TPU_WORKER_ID" in os.environ
    if ":" in tpu or (tpu != name if name else not on_tpu):
        raise ClusterConfigError(
            f"TPUClusterResolver: tpu={tpu!r} is another machine than this one. With JAX a program "
            "does not connect to a TPU; it runs on the TPU's hosts, once on each. Start it there, "
            "and write tpu=''."
        )
