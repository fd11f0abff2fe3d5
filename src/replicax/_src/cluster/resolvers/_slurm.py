"""The resolver for Slurm: every task of an `srun` step is a worker.

Where it differs from TensorFlow's on purpose:

- Hosts keep Slurm's order. TensorFlow sorts them as text, which puts n10 before n2; Slurm numbers
  its tasks in its own order, so the two disagree about who is where.
- Nodes without GPUs work, and GPUs that Slurm has bound to tasks itself are left alone.
"""

from __future__ import annotations

import os
import subprocess

from replicax._src._errors import ClusterConfigError
from replicax._src._typing import override
from replicax._src.cluster._spec import ClusterSpec
from replicax._src.cluster.resolvers._host_lists import (
    expand_hostlist,
    expand_tasks_per_node,
    natural_order,
)
from replicax._src.cluster.resolvers._resolver import LookedUpCluster


class SlurmClusterResolver(LookedUpCluster):
    """A resolver that reads the variables which Slurm sets for every task of an `srun` step.

    It reads SLURM_PROCID, and, as far as the arguments do not say it, SLURM_STEP_NUM_TASKS,
    SLURM_STEP_NODELIST and SLURM_STEP_TASKS_PER_NODE. Tasks on the same node get ports one after
    the other. With SLURMD_NODENAME it checks that the task runs where the cluster says.

    Args:
      jobs: A dict from the name of each job to its number of tasks. By default all tasks are
        workers. The first tasks belong to the job whose name comes first in the alphabet.
      port_base: The port of the first task on a node.
      gpus_per_node: The number of GPUs of a node. By default those in CUDA_VISIBLE_DEVICES, or else
        those that `nvidia-smi` lists, or 0.
      gpus_per_task: The number of GPUs of a task. By default a node's are shared out evenly.
      tasks_per_node: The number of tasks on each node: a number, or a dict from host to number.
      auto_set_gpu: Whether `cluster_spec()` sets CUDA_VISIBLE_DEVICES to this task's GPUs. Nothing
        is set if there are none, or if Slurm has bound them (`--gpus-per-task`, `--gpu-bind`).
      rpc_layer: The protocol that `master()` shows.

    Raises:
      RuntimeError: If the variables are not there, so that this is no task of an `srun` step; or if
        more GPUs or tasks are asked for than there are.
    """

    def __init__(
        self,
        jobs: dict[str, int] | None = None,
        port_base: int = 8888,
        gpus_per_node: int | None = None,
        gpus_per_task: int | None = None,
        tasks_per_node: int | dict[str, int] | None = None,
        auto_set_gpu: bool = True,
        rpc_layer: str | None = "grpc",
    ) -> None:
        self._rank = _number("PROCID")
        self._jobs = {"worker": _number("STEP_NUM_TASKS")} if jobs is None else jobs
        self._port_base = port_base
        self._task_configuration = _tasks_on_hosts(tasks_per_node)
        self._auto_set_gpu = auto_set_gpu
        self._task_type = None
        self._task_id = None
        self._rpc_layer = rpc_layer

        most_on_a_node = max(self._task_configuration.values(), default=0)
        tasks = sum(self._task_configuration.values())
        self._gpus = _visible_gpus() if gpus_per_node is None else _numbered(gpus_per_node)
        if gpus_per_task is None and gpus_per_node is None and _gpus_are_bound():
            # What is visible is already this task's share.
            self._auto_set_gpu = False
            self._gpus_per_task = len(self._gpus)
        else:
            if gpus_per_task is None:
                gpus_per_task = len(self._gpus) // max(most_on_a_node, 1)
            if most_on_a_node * gpus_per_task > len(self._gpus):
                raise RuntimeError(
                    f"Requested more GPUs per node than available: {most_on_a_node} tasks with "
                    f"{gpus_per_task} GPUs each, on nodes with {len(self._gpus)}. Lower "
                    "gpus_per_task, or start fewer tasks per node."
                )
            self._gpus_per_task = gpus_per_task
        if sum(self._jobs.values()) != tasks:
            raise RuntimeError(
                f"Requested {sum(self._jobs.values())} tasks but only {tasks} were assigned: jobs "
                f"{self._jobs}, tasks on nodes {self._task_configuration}. Make the jobs as large "
                "as the step (srun --ntasks)."
            )
        if not 0 <= self._rank < tasks:
            raise RuntimeError(
                f"SLURM_PROCID is {self._rank}, but there are {tasks} tasks on nodes "
                f"{self._task_configuration}."
            )

    @override
    def cluster_spec(self) -> ClusterSpec:
        """Returns the cluster; also sets `task_type` and `task_id`, and CUDA_VISIBLE_DEVICES.

        Raises:
          ClusterConfigError: If Slurm has put this task on another node than the one with its place
            in the cluster, because it does not fill node after node (`srun --distribution`).
        """
        places = [
            (host, local)
            for host, count in self._task_configuration.items()
            for local in range(count)
        ]
        host, local = places[self._rank]
        node = os.environ.get("SLURMD_NODENAME", host)
        if node != host:
            raise ClusterConfigError(
                f"SlurmClusterResolver: task {self._rank} of the step runs on {node!r}, but has "
                f"its place on {host!r} (tasks on nodes: {self._task_configuration}). Tasks must "
                "fill node after node: start them with `srun --distribution=block`."
            )
        cluster: dict[str, list[str]] = {}
        start = 0
        for job, count in sorted(self._jobs.items()):
            stop = start + count
            cluster[job] = [f"{host}:{self._port_base + i}" for host, i in places[start:stop]]
            if start <= self._rank < stop:
                self._task_type, self._task_id = job, self._rank - start
            start = stop
        if self._auto_set_gpu and self._gpus_per_task:
            first = local * self._gpus_per_task
            _set_visible_gpus(self._gpus[first : first + self._gpus_per_task])
        return ClusterSpec(cluster)

    def get_task_info(self) -> tuple[str | None, int | None]:
        """Returns the job and the index of this process; None before the first `cluster_spec()`."""
        return self.task_type, self.task_id

    @override
    def _known_accelerators(self) -> dict[str, int]:
        return {"GPU": self._gpus_per_task}


def _variable(name: str) -> str:
    try:
        return os.environ[f"SLURM_{name}"]
    except KeyError:
        raise RuntimeError(
            f"SLURM_{name} not found in environment. Not running inside a SLURM step? Start the "
            "program with `srun python train.py`, also in a batch script."
        ) from None


def _number(name: str) -> int:
    text = _variable(name)
    try:
        return int(text)
    except ValueError:
        raise ClusterConfigError(f"SLURM_{name} is {text!r}; it must be a number.") from None


def _tasks_on_hosts(tasks_per_node: int | dict[str, int] | None) -> dict[str, int]:
    """Returns the number of tasks on each host, in the order in which Slurm numbers them."""
    if isinstance(tasks_per_node, dict):
        try:
            order = expand_hostlist(os.environ.get("SLURM_STEP_NODELIST", ""))
        except ValueError:
            order = []
        known = order if tasks_per_node.keys() <= set(order) else None
        hosts = sorted(tasks_per_node, key=known.index if known else natural_order)
        return {host: tasks_per_node[host] for host in hosts}
    hosts = expand_hostlist(_variable("STEP_NODELIST"))
    if tasks_per_node is not None:
        return dict.fromkeys(hosts, int(tasks_per_node))
    text = _variable("STEP_TASKS_PER_NODE")
    counts = expand_tasks_per_node(text)
    if len(counts) != len(hosts):
        raise ClusterConfigError(
            f"SLURM_STEP_NODELIST has {len(hosts)} nodes ({hosts}), but SLURM_STEP_TASKS_PER_NODE, "
            f"{text!r}, has {len(counts)}. They are set by srun for every step; do not change them."
        )
    return dict(zip(hosts, counts))


# --- GPUs -----------------------------------------------------------------------------------------

# What CUDA_VISIBLE_DEVICES was before a resolver of this process set it, and what it was set to: a
# second resolver must share out the node's GPUs, not the first one's share of them.
_replaced: tuple[str | None, str] | None = None


def _gpus_are_bound() -> bool:
    """Returns whether Slurm itself decides which GPUs a task sees: --gpus-per-task, --gpu-bind."""
    return bool(
        os.environ.get("SLURM_GPUS_PER_TASK")
        or os.environ.get("SLURM_GPU_BIND", "none") != "none"
        or "gpu" in os.environ.get("SLURM_TRES_PER_TASK", "")
    )


def _visible_gpus() -> list[str]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if _replaced is not None and visible == _replaced[1]:
        visible = _replaced[0]
    if visible is not None:
        return [gpu for gpu in visible.split(",") if gpu]
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=30, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []  # no NVIDIA driver, so no NVIDIA GPUs
    return _numbered(sum(line.startswith("GPU ") for line in listed.splitlines()))


def _numbered(gpus: int) -> list[str]:
    return [str(gpu) for gpu in range(gpus)]


def _set_visible_gpus(gpus: list[str]) -> None:
    global _replaced
    before, after = os.environ.get("CUDA_VISIBLE_DEVICES"), ",".join(gpus)
    if _replaced is None or before != _replaced[1]:
        _replaced = before, after
    os.environ["CUDA_VISIBLE_DEVICES"] = after
