"""Ray, which is an extra: the module, and the cluster that this process is connected to.

Nothing of Ray is imported before it is asked for.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import secrets
import socket
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from replicax._src._warnings import warn
from replicax._src.cluster._addresses import split_address

_OLDEST = (2, 50)
_INSTALL = 'Run: pip install "replicax[ray]"'
_REACHED_WITHIN = 10.0  # seconds; Ray itself tries for minutes, and then ends the process
# A client of HTTP/2 begins with these words and a frame of settings, and is answered with one.
_FRAME_HEAD = 9  # bytes: 3 of length, the kind, flags, 4 of the stream
_SETTINGS = b"\4"
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + _SETTINGS + bytes(5)
_STARTS = 3  # of a cluster of this process
_NOT_A_NODE = "resolve node to connect to"  # in what Ray says then
_TOO_SLOW = "timed out during startup"  # what Ray says then, in an Exception


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
      TimeoutError: if a cluster of this process does not start in time.
    """
    ray = imported()
    if ray.is_initialized():
        _check_same_cluster(ray, address)
        return ray
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    if address == "local":
        _start(ray, max(cpus or 1, os.cpu_count() or 1), show_output)
        return ray
    if address != "auto":
        _check_reachable(address)
    try:
        with _loopback_as_it_is():
            ray.init(address=address, logging_level=logging.WARNING, log_to_driver=show_output)
    except ConnectionError as error:
        raise ConnectionError(_why_not(address, error)) from error
    except RuntimeError as error:
        if _NOT_A_NODE not in str(error):  # of another version, for one, which Ray says well
            raise
        raise ConnectionError(
            f"This host is not a node of the Ray cluster at address {address!r}. Run the program "
            "on one of its nodes, or make this host one: `ray start --address=HOST:PORT`."
        ) from error
    return ray


def _start(ray: ModuleType, cpus: int, show_output: bool) -> None:
    """Starts a cluster of this process, which other hosts cannot reach.

    Ray gives its own processes 15 s to start, which cannot be changed: on a machine that is busy,
    as with several clusters that start at once, this may take several attempts.
    """
    _make_token()
    for left in reversed(range(_STARTS)):
        try:
            with _loopback_as_it_is():
                ray.init(
                    address="local",
                    num_cpus=cpus,
                    include_dashboard=False,
                    logging_level=logging.ERROR,
                    log_to_driver=show_output,
                    # Ray's default of 15 lets actors, which do the work, wait for all others.
                    _system_config=None
                    if "RAY_worker_niceness" in os.environ
                    else {"worker_niceness": 0},
                )
            return
        except Exception as error:
            if _TOO_SLOW not in str(error):
                raise
            _end_processes(error)
            if not left:
                raise TimeoutError(
                    f"Ray did not start on this machine in {_STARTS} attempts: {error} The machine "
                    "may be too busy: Ray's processes have 15 s to start. Its logs are in "
                    "/tmp/ray/session_latest/logs. Or start Ray before, `ray start --head`, and "
                    "set RAY_ADDRESS=auto."
                ) from error
        warn("Ray did not start in time on this machine, which may be busy: it is started again.")


@contextlib.contextmanager
def _loopback_as_it_is() -> Iterator[None]:
    """Lets a local cluster listen at the loopback address alone, and others connect to it there.

    As Ray does on systems where it does not support clusters of several hosts. On others it takes
    an address of the host instead, listens at all of them, and has no argument for that.
    """
    constants = importlib.import_module("ray._private.ray_constants")
    before = getattr(constants, "ENABLE_RAY_CLUSTER", True)
    vars(constants)["ENABLE_RAY_CLUSTER"] = False
    try:
        yield
    finally:
        vars(constants)["ENABLE_RAY_CLUSTER"] = before


def _make_token() -> None:
    """Makes the token of this user's clusters, if there is none.

    Ray would make it, but readable by other users, and two programs that start at the same time
    could take different ones.
    """
    if any(os.environ.get(f"RAY_AUTH_{name}") for name in ("MODE", "TOKEN", "TOKEN_PATH")):
        return
    path = Path.home() / ".ray" / "auth_token"
    if path.exists():
        return
    token = secrets.token_hex(32)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent) as file:  # for its owner alone
            file.write(token)
            file.flush()
            with contextlib.suppress(FileExistsError):
                os.link(file.name, path)
    except OSError:  # such as a home that cannot be written to
        os.environ["RAY_AUTH_TOKEN"] = token


def _end_processes(error: Exception) -> None:
    """Ends what Ray has started before it failed."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        node: Any = frame.f_locals.get("self")
        if hasattr(node, "kill_all_processes"):
            node.kill_all_processes(check_alive=False, allow_graceful=False)


def _why_not(address: str, error: ConnectionError) -> str:
    """Returns why a cluster cannot be connected to: it is not there, or does not know us."""
    if address == "auto" and "Could not find" in str(error):
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
    """Raises `ConnectionError` if nothing at an address talks as Ray does: HTTP/2."""
    try:
        host, port = split_address(address.removeprefix("ray://"), "Ray's address")
        with socket.create_connection((host, port), timeout=_REACHED_WITHIN) as connection:
            if os.environ.get("RAY_USE_TLS", "0") in ("1", "true", "True"):
                return
            connection.sendall(_GREETING)
            frame = connection.makefile("rb").read(_FRAME_HEAD)
    except TimeoutError as error:
        raise ConnectionError(
            f"Nothing at address {address!r} answered within {_REACHED_WITHIN:g} s. Expected the "
            "host:port that `ray start --head` prints."
        ) from error
    except OSError as error:
        raise ConnectionError(
            f"There is no Ray cluster at address {address!r}: {error}. Expected the host:port that "
            "`ray start --head` prints."
        ) from error
    if frame[3:4] != _SETTINGS:
        raise ConnectionError(
            f"What answers at address {address!r} is not Ray. Expected the host:port that "
            "`ray start --head` prints."
        )
