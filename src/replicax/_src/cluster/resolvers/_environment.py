"""Which cluster does the environment describe? Used when a strategy is made without a resolver.

One script, started by hand, by a launcher or by a scheduler: it finds its workers by itself. The
first of these that is there decides; docs/clusters.md shows each at work.

1. TF_CONFIG.
2. A step of Slurm's `srun` with more than one task.
3. REPLICAX_WORKER_HOSTNAMES, with the place in REPLICAX_WORKER_ID or JOB_COMPLETION_INDEX, which
   Kubernetes sets in the pods of an Indexed Job.
4. TPU_WORKER_HOSTNAMES and TPU_WORKER_ID of a TPU pod with more than one host.
"""

from __future__ import annotations

import os

from replicax._src._errors import ClusterConfigError
from replicax._src._typing import override
from replicax._src.cluster._spec import ClusterSpec
from replicax._src.cluster._tf_config import VARIABLE, task_index
from replicax._src.cluster.resolvers._host_lists import expand_hostlist
from replicax._src.cluster.resolvers._resolver import ClusterResolver
from replicax._src.cluster.resolvers._simple import SimpleClusterResolver
from replicax._src.cluster.resolvers._slurm import SlurmClusterResolver
from replicax._src.cluster.resolvers._tf_config import TFConfigClusterResolver
from replicax._src.cluster.resolvers._tpu import TPUClusterResolver, tpu_hosts, with_port


def resolver_from_environment() -> ClusterResolver | None:
    """Returns a resolver for the cluster that the environment describes, or None if there is none.

    Raises:
      ClusterConfigError: If the environment describes a cluster, and wrongly.
    """
    environ = os.environ
    if VARIABLE in environ:
        return TFConfigClusterResolver()
    if _tasks_of_step(environ.get("SLURM_STEP_NUM_TASKS", "")) > 1:
        try:
            return SlurmClusterResolver(port_base=_port_of_step())
        except (RuntimeError, ValueError) as error:
            raise ClusterConfigError(
                f"This is a step of Slurm with several tasks, but not a cluster: {error} Set "
                "TF_CONFIG='{}' to train with this process alone."
            ) from error
    if environ.get("REPLICAX_WORKER_HOSTNAMES"):
        return _listed_hosts()
    if tpu_hosts(environ)[0]:
        return TPUClusterResolver()
    return None


def _tasks_of_step(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else 0


def _port_of_step() -> int:
    """Returns a port for the first task on a node, below those that the system hands out.

    Steps of different jobs may share a node, so the port follows from the numbers of job and step.
    """
    if "REPLICAX_PORT" in os.environ:
        return int(with_port("host", os.environ).rpartition(":")[2])
    job, step = (
        _tasks_of_step(os.environ.get(name, "")) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID")
    )
    return 16384 + (job + step) % 1024 * 16


def _listed_hosts() -> SimpleClusterResolver:
    text = os.environ["REPLICAX_WORKER_HOSTNAMES"]
    try:
        hosts = expand_hostlist(text.replace(" ", ""))
    except ValueError as error:
        raise ClusterConfigError(f"REPLICAX_WORKER_HOSTNAMES: {error}") from None
    variables = ("REPLICAX_WORKER_ID", "JOB_COMPLETION_INDEX")
    variable = next((name for name in variables if name in os.environ), None)
    if variable is None:
        raise ClusterConfigError(
            f"REPLICAX_WORKER_HOSTNAMES lists the workers, {text!r}, but neither "
            "REPLICAX_WORKER_ID nor JOB_COMPLETION_INDEX says which of them this is. Set "
            "REPLICAX_WORKER_ID to its place: 0 for the first."
        )
    index = task_index(os.environ[variable], variable)
    if index >= len(hosts):
        raise ClusterConfigError(
            f"{variable} is {index}, but REPLICAX_WORKER_HOSTNAMES lists {len(hosts)} workers, "
            f"numbered from 0: {text!r}. List all of them."
        )
    addresses = [with_port(host, os.environ) for host in hosts]
    return _Listed(ClusterSpec({"worker": addresses}), task_type="worker", task_id=index)


class _Listed(SimpleClusterResolver):
    """A resolver whose messages name the variable."""

    @property
    @override
    def _source(self) -> str:
        return "REPLICAX_WORKER_HOSTNAMES"
