"""The resolver that reads the environment variable TF_CONFIG."""

from __future__ import annotations

from replicax._src._errors import ClusterConfigError
from replicax._src._typing import override
from replicax._src.cluster._spec import ClusterSpec
from replicax._src.cluster._tf_config import EXAMPLE, read_tf_config, task_index
from replicax._src.cluster.resolvers._resolver import ClusterResolver, Place, format_master_url


class TFConfigClusterResolver(ClusterResolver):
    """A resolver that reads the environment variable TF_CONFIG, again each time it is asked.

    The variable is a JSON text: the cluster, and the place of this process in it.

    >>> import json, os
    >>> import replicax as rx
    >>> os.environ["TF_CONFIG"] = json.dumps({
    ...     "cluster": {"worker": ["host0:2222", "host1:2222"]},
    ...     "task": {"type": "worker", "index": 1},
    ... })
    >>> resolver = rx.distribute.cluster_resolver.TFConfigClusterResolver()
    >>> resolver.task_type, resolver.task_id, resolver.master("worker", 0)
    ('worker', 1, 'host0:2222')
    >>> del os.environ["TF_CONFIG"]

    Args:
      task_type: To use instead of what TF_CONFIG says.
      task_id: To use instead of what TF_CONFIG says.
      rpc_layer: To use instead of what TF_CONFIG says.
      environment: What `environment` is.

    Every property and method raises a `ClusterConfigError` if TF_CONFIG is malformed.
    """

    def __init__(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        environment: str | None = None,
    ) -> None:
        self._task_type = task_type
        self._task_id = task_id
        self._rpc_layer = rpc_layer
        self._environment = environment

    @override
    def cluster_spec(self) -> ClusterSpec:
        """Returns the cluster in TF_CONFIG; an empty one if it has none."""
        return ClusterSpec(read_tf_config().get("cluster", {}))

    @override
    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Returns the address of a task; of use to TensorFlow 1 only.

        It is the `session_master` of TF_CONFIG if there is one, and an empty string if the cluster
        has one task or none.

        Args:
          task_type: The task's job; this process's if None.
          task_id: The task's index; this process's if None.
          rpc_layer: A protocol to put before the address.
        """
        session_master = read_tf_config().get("session_master")
        if session_master is not None:
            return session_master
        cluster = self.cluster_spec()
        if not cluster or (len(cluster.jobs) == 1 and len(cluster.job_tasks(cluster.jobs[0])) <= 1):
            return ""
        task_type = self.task_type if task_type is None else task_type
        task_id = self.task_id if task_id is None else task_id
        if task_type is None or task_id is None:
            raise ClusterConfigError(
                "TF_CONFIG does not say which task this process is. "
                'Add "task": {"type": "worker", "index": 0}, or give task_type and task_id.'
            )
        rpc_layer = self.rpc_layer if rpc_layer is None else rpc_layer
        return format_master_url(cluster.task_address(task_type, task_id), rpc_layer)

    @property
    @override
    def environment(self) -> str | None:
        """What it was given."""
        return self._environment

    @property
    @override
    def task_id(self) -> int | None:
        """The index of this process in its job; None if TF_CONFIG does not say."""
        found = super().task_id
        return None if found is None else task_index(found, "TF_CONFIG: the index of the task")

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = task_id

    @override
    def _place(self) -> Place:
        config = read_tf_config()
        task = config.get("task", {})
        return Place(task.get("type"), task.get("index"), config.get("rpc_layer"))

    @property
    @override
    def _source(self) -> str:
        return "TF_CONFIG"

    @override
    def _check(self) -> None:
        config = read_tf_config()
        trains = config.get("task", {}).get("type", "evaluator") != "evaluator"
        if trains and not config.get("cluster"):  # in TensorFlow each would train by itself
            raise ClusterConfigError(
                f"TF_CONFIG has a 'task', {config['task']}, but no 'cluster'; its keys are "
                f"{sorted(config)}. Write {EXAMPLE}; to train with one worker, unset TF_CONFIG."
            )
