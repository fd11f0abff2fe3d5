"""What strategies set in a `ConfigProto`, as TensorFlow's do. Any message of that shape will do."""

from __future__ import annotations

import copy
from collections.abc import MutableSequence
from typing import Any, Protocol, TypeVar

from replicax._src.cluster import ClusterSpec
from replicax._src.cluster.resolvers import ClusterResolver
from replicax._src.collectives import CommunicationImplementation

_ON = 1  # of the switches in `RewriterConfig`


class SessionConfig(Protocol):
    """What is set of a `tf.compat.v1.ConfigProto`, or an `rx.compat.v1.ConfigProto`."""

    isolate_session_state: bool
    graph_options: Any
    experimental: Any
    cluster_def: Any

    @property
    def device_filters(self) -> MutableSequence[str]:
        """The names of the devices that a session sees."""
        ...


Config = TypeVar("Config")  # messages of protocol buffers, whose fields checkers do not know


def copied(config: Config) -> Config:
    """Returns a copy, if it is a configuration of sessions."""
    if not hasattr(config, "isolate_session_state") or isinstance(config, type):
        raise TypeError(
            "update_config_proto takes a tf.compat.v1.ConfigProto, or rx.compat.v1.ConfigProto() "
            f"where there is no TensorFlow; got {config!r}."
        )
    return copy.deepcopy(config)


def isolate(config: SessionConfig) -> None:
    """Sessions of the same target do not share variables."""
    config.isolate_session_state = True


def use_collectives(
    config: SessionConfig,
    implementation: CommunicationImplementation,
    cluster_resolver: ClusterResolver,
) -> None:
    """Small all-reduces are joined; in a cluster, a worker sees its own devices and the leader."""
    rewriting = config.graph_options.rewrite_options
    rewriting.scoped_allocator_optimization = _ON
    _replace(rewriting.scoped_allocator_opts.enable_op, "CollectiveReduce")
    if implementation is CommunicationImplementation.NCCL:
        config.experimental.collective_nccl = True
    cluster = cluster_resolver.cluster_spec()
    if not cluster.as_dict():
        return
    task = f"/job:{cluster_resolver.task_type}/task:{cluster_resolver.task_id}"
    leader = "chief" if "chief" in cluster.jobs else "worker"
    config.experimental.collective_group_leader = f"/job:{leader}/replica:0/task:0"
    _replace(config.device_filters, task)


def name_hosts(config: SessionConfig, cluster: ClusterSpec) -> None:
    """Names the hosts of a TPU in the configuration."""
    jobs = config.cluster_def.job
    if cluster.as_dict():
        del jobs[:]
    for job in cluster.as_cluster_def().job:
        tasks = jobs.add(name=job.name).tasks
        for index, address in job.tasks.items():
            tasks[index] = address


def _replace(items: MutableSequence[str], value: str) -> None:
    """Makes `value` the only item of a repeated field, which cannot be assigned."""
    del items[:]
    items.append(value)
