"""What one worker knows of its cluster: its place in it, checked as far as one worker can check.

Everything here is a pure function of a resolver; no socket is opened, and JAX is not touched. What
only several workers together can find out (two with the same place, other versions, one missing) is
the business of the handshake, which starts from a `WorkerView`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from replicax._src._errors import ClusterConfigError
from replicax._src.cluster._addresses import same_place, split_address
from replicax._src.cluster._spec import ClusterSpec, worker_tasks
from replicax._src.cluster._tf_config import task_index
from replicax._src.cluster.resolvers import ClusterResolver

JOBS = ("chief", "worker", "ps", "evaluator")
_JOBS_TEXT = "'chief', 'worker', 'ps' and 'evaluator'"


@final
@dataclass(frozen=True)
class WorkerView:
    """The place of this process in a cluster.

    Attributes:
      workers: The addresses of the workers in the order of their ranks: the chief if there is one,
        then the job "worker".
      names: How to call them, in the same order: "chief", "worker 0", "worker 1".
      rank: Which of them this process is; None for a task that does not train: an evaluator, or a
        parameter server.
      task_type: The job of this process.
      task_id: Its index in that job.
      source: Where the description came from, for messages: "TF_CONFIG", or the resolver's class.
    """

    workers: tuple[str, ...]
    names: tuple[str, ...]
    rank: int | None
    task_type: str
    task_id: int
    source: str = "the cluster resolver"

    @property
    def name(self) -> str:
        """How to call this process."""
        return _name(self.task_type, self.task_id)

    @property
    def is_chief(self) -> bool:
        """Whether this process writes what is written once: rank 0, and an evaluator for itself."""
        return self.rank == 0 or self.task_type == "evaluator"

    @property
    def num_workers(self) -> int:
        """How many processes work with this one: an evaluator works alone."""
        return len(self.workers) if self.rank is not None else 1


def checked_cluster(resolver: ClusterResolver | None) -> WorkerView | None:
    """Returns this worker's place in the cluster that a resolver describes.

    The ranks are those of TensorFlow's `id_in_cluster`: the chief is 0, workers follow.

    Args:
      resolver: Where to ask; None is one worker without a cluster.

    Returns:
      The view; None if there is no cluster, so that this worker is the only one.

    Raises:
      ClusterConfigError: If anything is wrong with the description.
      TypeError: If it is not a resolver.
    """
    if resolver is None:
        return None
    if not isinstance(resolver, ClusterResolver):
        raise TypeError(
            "A cluster resolver must be a rx.distribute.cluster_resolver.ClusterResolver; got "
            f"{type(resolver).__name__}. A ClusterSpec goes into "
            'SimpleClusterResolver(cluster_spec, task_type="worker", task_id=0).'
        )
    source = resolver._source
    resolver._check()
    try:
        cluster = resolver.cluster_spec()
        if isinstance(cluster, Mapping):
            cluster = ClusterSpec(cluster)
        task_type, task_id = resolver.task_type, resolver.task_id  # some know it only now
    except ClusterConfigError:
        raise
    except (TypeError, ValueError) as error:  # from ClusterSpec
        raise ClusterConfigError(f"{source}: {error}") from error
    if not isinstance(cluster, ClusterSpec):
        raise ClusterConfigError(
            f"{source}: cluster_spec() returned {type(cluster).__name__}. Return a "
            "rx.train.ClusterSpec; ClusterSpec({}) if there is no cluster."
        )
    if not cluster:
        return None
    _check_jobs(cluster, source)
    _check_addresses(cluster, source)
    return _view(cluster, task_type, task_id, source)


def _name(job: str, index: int) -> str:
    return "chief" if job == "chief" else f"{job} {index}"


def _short(value: object) -> str:
    """Shows a cluster, which may have thousands of workers."""
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:200]} ... {text[-90:]}"


def _check_jobs(cluster: ClusterSpec, source: str) -> None:
    for job in cluster.jobs:
        if job not in JOBS:
            hint = {
                "master": " What was 'master' in TensorFlow 1 is 'chief' now.",
                "workers": " Did you mean 'worker'?",
            }.get(job, "")
            raise ClusterConfigError(
                f"{source}: the cluster has a job {job!r}; the jobs are {_JOBS_TEXT}.{hint}"
            )
    for job in ("chief", "evaluator"):
        if job in cluster.jobs and cluster.num_tasks(job) > 1:
            raise ClusterConfigError(
                f"{source}: the job {job!r} has {cluster.num_tasks(job)} tasks "
                f"({_short(cluster.job_tasks(job))}); there can be one. "
                + ("Move the others to 'worker'." if job == "chief" else "Leave out the others.")
            )
    if "ps" in cluster.jobs:
        raise ClusterConfigError(
            f"{source}: the cluster has parameter servers, "
            f"'ps': {_short(cluster.as_dict()['ps'])}. Workers that "
            "reduce among each other have none: leave 'ps' out of the cluster, or use "
            "a strategy for parameter servers."
        )
    if not worker_tasks(cluster):
        raise ClusterConfigError(
            f"{source}: the cluster has no 'worker' and no 'chief': {_short(cluster)}. Write "
            "{'worker': ['host0:2222', ...]} with the address of every worker."
        )
    for job in cluster.jobs:
        have = cluster.task_indices(job)
        missing = sorted(set(range(max(have, default=-1) + 1)) - set(have))
        if missing:
            raise ClusterConfigError(
                f"{source}: the job {job!r} has gaps: tasks {have}, but not {missing}. Every "
                "worker must know all others: write the addresses as a list, or number them from 0."
            )


def _check_addresses(cluster: ClusterSpec, source: str) -> None:
    seen: dict[tuple[str, int], str] = {}
    for job in cluster.jobs:
        for index in cluster.task_indices(job):
            name, address = _name(job, index), cluster.task_address(job, index)
            place = same_place(*split_address(address, f"{source}: the address of {name}"))
            if place in seen:
                raise ClusterConfigError(
                    f"{source}: {seen[place]} and {name} have the same address, {address!r}. Give "
                    "each its own; on one machine, its own port."
                )
            seen[place] = name


def _view(cluster: ClusterSpec, task_type: object, task_id: object, source: str) -> WorkerView:
    if task_type is None or task_id is None:
        lacks = "task_type" if task_type is None else "task_id"
        write = (
            'Add "task": {"type": "worker", "index": 0} with the place of this worker.'
            if source == "TF_CONFIG"
            else "Set task_type and task_id of the resolver to the place of this worker."
        )
        raise ClusterConfigError(
            f"{source} describes a cluster, {_short(cluster)}, but does not say which of its "
            f"tasks this process is ({lacks} is not known). {write}"
        )
    if task_type not in JOBS or not isinstance(task_type, str):
        raise ClusterConfigError(
            f"{source}: this process has the task type {task_type!r}; the types are {_JOBS_TEXT}."
        )
    index = task_index(task_id, f"{source}: the index of this {task_type}")
    tasks = worker_tasks(cluster)
    if task_type != "evaluator" or task_type in cluster.jobs:  # an evaluator need not be listed
        if task_type not in cluster.jobs:
            raise ClusterConfigError(
                f"{source}: this process is {_name(task_type, index)}, but the cluster has no job "
                f"{task_type!r}: {_short(cluster)}. Add its address to the cluster, or "
                "change the type."
            )
        have = cluster.num_tasks(task_type)
        if index >= have:
            raise ClusterConfigError(
                f"{source}: this process is {task_type} {index}, but the cluster has "
                f"{have} of that type (the first is {task_type} 0): {_short(cluster)}. Correct the "
                "index, or add the address."
            )
    own = (task_type, index)
    return WorkerView(
        workers=tuple(cluster.task_address(*task) for task in tasks),
        names=tuple(_name(*task) for task in tasks),
        rank=tasks.index(own) if own in tasks else None,
        task_type=task_type,
        task_id=index,
        source=source,
    )
