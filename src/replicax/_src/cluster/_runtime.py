"""The only file that talks to `jax.distributed`: start it with settings under which faults show.

JAX's own defaults swallow SIGTERM, and give up on a silent worker after 100 s and on an absent one
after 300 s by aborting the process. The control plane notices both earlier and in Python; what is
set here is the last line behind it.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
from collections.abc import Iterator

import jax
import jaxlib.version

from replicax._src import _jax_cache, _jax_internals

# Above the time in which the control plane reacts. Heartbeats pass through a Python thread (the
# relay), so also above the longest time for which a library may hold Python's lock.
_HEARTBEAT_SECONDS = 60
_INITIALIZATION_SECONDS = 120
_SHUTDOWN_SECONDS = 60


def versions() -> dict[str, str]:
    """Returns the versions that must be the same on all workers."""
    found = {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "jax": jax.__version__,
        "jaxlib": jaxlib.version.__version__,
    }
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # run from its source
        found["replicax"] = importlib.metadata.version("replicax")
    return found


def backends_started() -> bool:
    """Returns whether it is too late to make this process part of a cluster."""
    return _jax_internals.backends_started()


def is_started() -> bool:
    """Returns whether somebody has called `jax.distributed.initialize` in this process."""
    return jax.distributed.is_initialized()


def planned_device_count() -> int | None:
    """Returns how many CPU devices JAX will have; None if it may have other devices."""
    if jax.config.jax_platforms != "cpu":  # pyright: ignore[reportAttributeAccessIssue]
        return None
    wanted: int = jax.config.jax_num_cpu_devices  # pyright: ignore[reportAttributeAccessIssue]
    if wanted >= 0:
        return wanted
    flags = os.environ.get("XLA_FLAGS", "")
    match = re.findall(r"--xla_force_host_platform_device_count=(\d+)", flags)
    return int(match[-1]) if match else 1


def start(
    coordinator: str, bind_address: str | None, workers: int, worker: int, address: str | None
) -> None:
    """Makes this process worker number `worker` of JAX's runtime.

    Args:
      coordinator: "host:port" of worker 0, as the others see it.
      bind_address: Where worker 0 listens for it.
      workers: How many there are.
      worker: Which one this is.
      address: Of this host, where the others reach it; None leaves it to JAX to find one.
    """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    if address is not None:
        _jax_internals.listen_with_gloo_at(address)
    jax.config.update("jax_enable_preemption_service", False)
    _jax_cache.let_every_process_write()
    with _past_proxies(coordinator):
        jax.distributed.initialize(
            coordinator_address=coordinator,
            num_processes=workers,
            process_id=worker,
            local_device_ids=None,
            cluster_detection_method="deactivate",
            initialization_timeout=_INITIALIZATION_SECONDS,
            heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=_SHUTDOWN_SECONDS,
            coordinator_bind_address=bind_address,
        )


@contextlib.contextmanager
def _past_proxies(coordinator: str) -> Iterator[None]:
    """Keeps gRPC from asking an HTTP proxy of the environment for the coordinator, and hanging."""
    if not any("_proxy" in name.lower() for name in os.environ):
        yield
        return
    before = os.environ.get("no_grpc_proxy")
    exceptions = before or os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    host = coordinator.rpartition(":")[0].strip("[]")
    os.environ["no_grpc_proxy"] = ",".join(filter(None, [exceptions, host]))
    jax.config.update("jax_check_proxy_envs", False)  # it would warn of what is mended here
    try:
        yield
    finally:
        if before is None:
            del os.environ["no_grpc_proxy"]
        else:
            os.environ["no_grpc_proxy"] = before
