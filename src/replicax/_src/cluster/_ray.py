"""Ray, which is an extra: the module, and the cluster that this process is connected to.

Nothing of Ray is imported before it is asked for.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import socket
from types import ModuleType

from replicax._src.cluster._addresses import split_address

_OLDEST = (2, 50)
_INSTALL = 'Run: pip install "replicax[ray]"'
_REACHED_WITHIN = 10.0  # seconds; Ray itself tries for minutes, and then ends the process


def imported() -> ModuleType:
    """Returns the module `ray`.

    Raises:
      ImportError: if Ray is not installed, or is too old.
    """
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise ImportError(f"The package ray is not installed. {_INSTALL}") from error
    oldest = ".".join(map(str, _OLDEST))
    if tuple(map(int, re.findall(r"\d+", ray.__version__)[:2])) < _OLDEST:
        raise ImportError(
            f"replicax needs Ray {oldest} or newer, and Ray {ray.__version__} is installed. "
            f"{_INSTALL}"
        )
    return ray


def connect(
    address: str | None = None, *, cpus: int | None = None, show_output: bool = True
) -> ModuleType:
    """Connects this process to a cluster, unless it is connected, and returns the module `ray`.

    Args:
      address: "host:port" of the cluster's head, "auto" for the one that `ray start` has started on
        this machine, or "local" for one of this process. None means the cluster that this process
        is connected to already, else `RAY_ADDRESS`, else "local". One of this process has no
        dashboard, and ends with the process.
      cpus: how many CPUs a cluster that is started here says that it has, so that so many actors
        of one CPU each fit; never less than there are. A cluster that is there already is left as
        it is.
      show_output: whether what actors print is printed here, as Ray does it.

    Raises:
      ImportError: if Ray is not installed, or is too old.
      ConnectionError: if nothing answers at the address.
      RuntimeError: if this process is connected to another cluster.
    """
    ray = imported()
    if ray.is_initialized():
        _check_same_cluster(ray, address)
        return ray
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    if address == "local":
        ray.init(
            address="local",
            num_cpus=max(cpus or 1, os.cpu_count() or 1),
            include_dashboard=False,
            logging_level=logging.ERROR,
            log_to_driver=show_output,
            # Ray's default of 15 lets actors, which do the work here, wait for all other processes.
            _system_config=None if "RAY_worker_niceness" in os.environ else {"worker_niceness": 0},
        )
        return ray
    if address != "auto":
        _check_reachable(address)
    try:
        ray.init(address=address, logging_level=logging.WARNING, log_to_driver=show_output)
    except ConnectionError as error:
        raise ConnectionError(_why_not(address, error)) from error
    return ray


def _why_not(address: str, error: ConnectionError) -> str:
    """Returns why a cluster cannot be connected to: it is not there, or does not know us."""
    if address == "auto":
        return (
            f"There is no Ray cluster on this host: {error} Start one with `ray start --head`, or "
            'pass address="local" for one in this process.'
        )
    # `ray start` asks for a token if its user has one, which every local cluster leaves behind.
    # Ray sends it to a cluster that it has found itself, and to an address only if it is told to.
    told = "on" if os.environ.get("RAY_AUTH_MODE") == "token" else "off"
    return (
        f"The Ray cluster at address {address!r} does not answer as one should: {error} If it asks "
        f"for a token, set RAY_AUTH_MODE=token here, else RAY_AUTH_MODE=disabled; tokens are {told}"
        " in this process. Expected the host:port that `ray start --head` prints."
    )


def _check_same_cluster(ray: ModuleType, address: str | None) -> None:
    """Raises `RuntimeError` if an address names another cluster than that of this process."""
    if address in (None, "auto", "local") or address.startswith("ray://"):
        return
    connected = ray.get_runtime_context().gcs_address
    if _resolved(address) != _resolved(connected):
        raise RuntimeError(
            f"This process is connected to the Ray cluster at {connected}, and {address!r} is "
            "another one. Pass no address, or call ray.shutdown() before."
        )


def _resolved(address: str) -> tuple[str, int]:
    host, port = split_address(address, "Ray's address")
    try:
        return socket.gethostbyname(host), port
    except OSError:
        return host, port


def _check_reachable(address: str) -> None:
    """Raises `ConnectionError` if nothing listens at an address."""
    try:
        host, port = split_address(address.removeprefix("ray://"), "Ray's address")
        socket.create_connection((host, port), timeout=_REACHED_WITHIN).close()
    except OSError as error:
        raise ConnectionError(
            f"There is no Ray cluster at address {address!r}: {error}. Expected the host:port that "
            "`ray start --head` prints."
        ) from error
