"""Connecting to other hosts: TensorFlow does, JAX does not, for its programs are everywhere.

TensorFlow's programs run on one host and send work to others, so they connect first. JAX's run on
every host. What is left is to accept what has nothing to do here, and to say so where a program
counts on hosts that would stay idle.
"""

from __future__ import annotations

import ipaddress

from replicax._src._errors import ClusterConfigError
from replicax._src.cluster._addresses import is_own, is_this_hosts_name, split_address
from replicax._src.cluster._spec import ClusterSpec
from replicax._src.cluster.resolvers import ClusterResolver

_INSTEAD = (
    "With JAX a program does not send work to other hosts; it runs on each of them, and the "
    "workers meet when the strategy is made. Start the program on every host, for example with "
    "`replicax launch`, and give the strategy a resolver that says which worker each one is: "
    "SimpleClusterResolver(cluster_spec, task_type='worker', task_id=0), TFConfigClusterResolver()."
)


def experimental_connect_to_cluster(
    cluster_spec_or_resolver: ClusterSpec | ClusterResolver,
    job_name: str = "localhost",
    task_index: int = 0,
    protocol: str | None = None,
    make_master_device_default: bool = True,
    cluster_device_filters: object = None,
) -> None:
    """Checks its argument; there is nothing to connect to before the strategy is made.

    With TensorFlow this makes the devices of other hosts usable here. With JAX the program runs on
    every host, and the strategy that gets the resolver joins the others.

    >>> import replicax as rx
    >>> resolver = rx.distribute.cluster_resolver.TPUClusterResolver(tpu="")
    >>> rx.config.experimental_connect_to_cluster(resolver)

    Args:
      cluster_spec_or_resolver: A resolver, or a `rx.train.ClusterSpec` of this host alone.
      job_name: Not used.
      task_index: Not used.
      protocol: Not used.
      make_master_device_default: Not used.
      cluster_device_filters: None: there are no devices to hide.

    Raises:
      TypeError: It is neither a resolver nor a `ClusterSpec`.
      ClusterConfigError: It is a `ClusterSpec` with other hosts, which does not say which one of
        them this process is.
      ValueError: `cluster_device_filters` is not None.
    """
    del job_name, task_index, protocol, make_master_device_default
    if cluster_device_filters is not None:
        raise ValueError(
            "`cluster_device_filters` hides devices of other hosts; with JAX a program sees those "
            "of its own process only. Leave it out."
        )
    if isinstance(cluster_spec_or_resolver, ClusterResolver):
        cluster_spec_or_resolver._check()
        return
    if not isinstance(cluster_spec_or_resolver, ClusterSpec):
        raise TypeError(
            "`cluster_spec_or_resolver` must be a rx.train.ClusterSpec or a resolver of "
            f"rx.distribute.cluster_resolver; got {cluster_spec_or_resolver!r} of type "
            f"{type(cluster_spec_or_resolver).__name__}."
        )
    _check_is_this_host(cluster_spec_or_resolver)


def experimental_connect_to_host(
    remote_host: str | list[str] | tuple[str, ...] | None = None, job_name: str = "worker"
) -> None:
    """Checks its argument: nothing is done for this host, and another one is refused.

    With TensorFlow this makes the devices of other hosts usable here. With JAX the program runs on
    every host.

    Args:
      remote_host: An address, "host:port" or "grpc://host:port", or a list of them.
      job_name: The name of the job that the hosts would be.

    Raises:
      ValueError: There is none.
      ClusterConfigError: It is not this host.
    """
    if not remote_host:
        raise ValueError(
            "`remote_host` must be an address such as 'localhost:2222', or a list of addresses; "
            f"got {remote_host!r}."
        )
    hosts = remote_host if isinstance(remote_host, list | tuple) else [remote_host]
    if not all(isinstance(host, str) for host in hosts):
        raise TypeError(
            "`remote_host` must be an address such as 'localhost:2222', or a list of addresses; "
            f"got {remote_host!r}."
        )
    _check_is_this_host(ClusterSpec({job_name: [host.removeprefix("grpc://") for host in hosts]}))


def _check_is_this_host(cluster: ClusterSpec) -> None:
    tasks = [(job, index) for job in cluster.jobs for index in cluster.task_indices(job)]
    for job, index in tasks:
        address = cluster.task_address(job, index)
        host, _ = split_address(address, f"The address of task {index} in job {job!r}")
        if len(tasks) > 1 or not _is_this_host(host):
            what = f"{len(tasks)} tasks" if len(tasks) > 1 else f"a task on {host!r}, not this host"
            raise ClusterConfigError(f"{cluster!r} has {what}. {_INSTEAD}")


def _is_this_host(host: str) -> bool:
    """Returns whether a name or an IP address is ours, as far as known without a name server."""
    host = host.lower().rstrip(".")
    if host == "localhost" or is_this_hosts_name(host):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_unspecified or is_own(host)
