"""`ClusterSpec`: which jobs a cluster has, and at which addresses their tasks are.

It only holds what it was given, as TensorFlow's does; whether the addresses make sense is asked in
`_view.py`, when a strategy wants to use them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass
class JobDef:
    """One job of a `ClusterDef`: its name, and the address of each of its tasks."""

    name: str = ""
    tasks: dict[int, str] = field(default_factory=dict)


@dataclass
class ClusterDef:
    """What TensorFlow keeps in a protocol buffer of this name, as a plain object."""

    job: list[JobDef] = field(default_factory=list)


class ClusterSpec:
    """A cluster: jobs, and for each job the network addresses of its tasks.

    >>> import replicax as rx
    >>> cluster = rx.train.ClusterSpec({
    ...     "chief": ["host0:2222"],
    ...     "worker": ["host1:2222", "host2:2222"],
    ... })
    >>> cluster.num_tasks("worker"), cluster.task_address("worker", 1)
    (2, 'host2:2222')

    A job may also be a dict from task index to address, if not all of its tasks are known:

    >>> rx.train.ClusterSpec({"worker": {1: "host1:2222"}}).job_tasks("worker")
    [None, 'host1:2222']

    Args:
      cluster: A dict from the name of each job to a list of addresses, or to a dict from task index
        to address; or a `ClusterSpec` or `ClusterDef`, to copy.

    Raises:
      TypeError: If it is something else.
    """

    def __init__(
        self,
        cluster: Mapping[str, Sequence[str] | Mapping[int, str]] | ClusterSpec | ClusterDef,
    ) -> None:
        if isinstance(cluster, ClusterSpec):
            cluster = cluster.as_cluster_def()
        if isinstance(cluster, ClusterDef):
            cluster = {job.name: job.tasks for job in cluster.job}
        if not isinstance(cluster, Mapping):
            raise TypeError(
                "`cluster` must be a dict from job names to lists of addresses, for example "
                f"{{'worker': ['host0:2222', 'host1:2222']}}; got {_short(cluster)}."
            )
        self._jobs: dict[str, dict[int, str]] = {
            _text(name, "the name of a job"): _tasks(name, tasks) for name, tasks in cluster.items()
        }

    def as_dict(self) -> dict[str, list[str] | dict[int, str]]:
        """Returns a dict from job names to lists of addresses.

        A job that does not have all indices from 0 is a dict from index to address.
        """
        return {
            name: [tasks[i] for i in sorted(tasks)]
            if tasks and max(tasks) + 1 == len(tasks)
            else {i: tasks[i] for i in sorted(tasks)}
            for name, tasks in self._jobs.items()
        }

    def as_cluster_def(self) -> ClusterDef:
        """Returns the same as a `ClusterDef`, with the jobs sorted by name."""
        return ClusterDef(
            [
                JobDef(name, dict(sorted(tasks.items())))
                for name, tasks in sorted(self._jobs.items())
            ]
        )

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs."""
        return list(self._jobs)

    def num_tasks(self, job_name: str) -> int:
        """Returns how many tasks a job has.

        Raises:
          ValueError: If there is no such job.
        """
        return len(self._job(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """Returns the indices of a job's tasks, sorted.

        Raises:
          ValueError: If there is no such job.
        """
        return sorted(self._job(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """Returns the address of one task.

        Raises:
          ValueError: If there is no such job, or no such task in it.
        """
        job = self._job(job_name)
        if task_index not in job:
            raise ValueError(
                f"No task with index {task_index!r} in job {job_name!r}, which has "
                f"{sorted(job) or 'no tasks'}."
            )
        return job[task_index]

    def job_tasks(self, job_name: str) -> list[str | None]:
        """Returns a job's addresses by index; None where the job has no task of that index.

        Raises:
          ValueError: If there is no such job.
        """
        job = self._job(job_name)
        return [job.get(i) for i in range(max(job, default=-1) + 1)]

    def _job(self, job_name: str) -> dict[int, str]:
        try:
            return self._jobs[job_name]
        except KeyError:
            raise ValueError(
                f"No such job in cluster: {job_name!r}. It has {self.jobs or 'no jobs'}."
            ) from None

    def __bool__(self) -> bool:
        return bool(self._jobs)

    # As in TensorFlow, also equal to the plain dict {job: {index: address}}.
    def __eq__(self, other: object) -> bool:
        return self._jobs == (other._jobs if isinstance(other, ClusterSpec) else other)

    __hash__ = None  # type: ignore[assignment]  # equal to dicts, which have none

    def __repr__(self) -> str:
        jobs = self.as_dict()
        return (
            "ClusterSpec({" + ", ".join(f"{name!r}: {jobs[name]!r}" for name in sorted(jobs)) + "})"
        )


def worker_tasks(cluster: ClusterSpec) -> list[tuple[str, int]]:
    """Returns the tasks that train, in the order of their ranks: the chief first, then workers."""
    return [
        (job, index)
        for job in ("chief", "worker")
        if job in cluster.jobs
        for index in cluster.task_indices(job)
    ]


def _tasks(job: object, tasks: object) -> dict[int, str]:
    if isinstance(tasks, list | tuple):
        tasks = dict(enumerate(tasks))
    if not isinstance(tasks, Mapping):
        hint = f" Write [{tasks!r}] for a job of one task." if isinstance(tasks, str) else ""
        raise TypeError(
            f"The tasks for job {job!r} must be a list of addresses, or a dict from integers to "
            f"addresses; got {_short(tasks)}.{hint}"
        )
    found: dict[int, str] = {}
    for key, address in tasks.items():
        try:
            index = int(key)
        except (TypeError, ValueError):
            raise ValueError(
                f"The index of a task must be an integer; job {job!r} has {_short(key)}."
            ) from None
        if index < 0:
            raise ValueError(f"The index of a task must not be negative; job {job!r} has {index}.")
        found[index] = _text(address, f"the address of task {index} in job {job!r}")
    return found


def _text(value: object, what: str) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise TypeError(f"{what[0].upper()}{what[1:]} must be a string; got {_short(value)}.")
    return value


def _short(value: object) -> str:
    """Shows a value and its type, without filling the screen."""
    shown = repr(value)
    return f"{shown if len(shown) <= 80 else shown[:77] + '...'} ({type(value).__name__})"
