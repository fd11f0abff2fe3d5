"""Where the workers meet: hosting the server in worker 0, reaching it from the others, the port of
JAX's coordinator; and what to say when somebody else is there, or nobody.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Sequence

from replicax._src._errors import ClusterConfigError, WorkersMissingError
from replicax._src.cluster.control import _dial, _exits, _sockets
from replicax._src.cluster.control._server import ControlServer
from replicax._src.cluster.control._settings import Settings, listening_host
from replicax._src.cluster.control._types import Event, EventKind

# A server of an earlier run that is just about to end may hold the port a little longer.
_PORT_SECONDS = 1.0
_COORDINATOR_SECONDS = 30.0
_STILL_RUNNING = "REPLICAX_CONTROL is set by `replicax launch`: is the launcher still running?"


def host_server(
    names: Sequence[str], addresses: Sequence[str], host: str, settings: Settings
) -> ControlServer:
    """Starts the server of a job without a launcher, in a thread of worker 0, at `host`.

    A cluster of one needs no address that others can reach.
    """
    alone = len(addresses) == 1
    host, port = ("127.0.0.1", 0) if alone else (host, _sockets.split(addresses[0])[1])
    server = ControlServer(
        len(addresses),
        host,
        port,
        key=settings.job,
        generation=settings.generation,
        names=[f"{name} ({at})" for name, at in zip(names, addresses, strict=True)],
        join_timeout=settings.join_timeout,
        stall_timeout=settings.stall_timeout,
        on_event=_print_report,
    )
    began = time.monotonic()
    while True:
        try:
            server.start()
            return server
        except OSError as error:
            patience = _PORT_SECONDS
            if isinstance(error, _sockets.NotThisMachine) and not _is_ip(listening_host(host)):
                # A new pod may be there before its name is, or while that leads to an earlier one.
                patience = settings.join_timeout
            if time.monotonic() - began > patience:
                raise ClusterConfigError(
                    _cannot_listen(names[0], addresses[0], host, port, error)
                ) from None
        time.sleep(0.1)


def own_address(server: ControlServer) -> tuple[str, int]:
    """Returns how worker 0 reaches its own server, also where its name leads to a forwarder."""
    host, port = server.bound_address
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port


def dial_server(host: str, port: int, server: str, settings: Settings) -> _dial.Link:
    """Reaches the server, of worker 0 or of a launcher; `server` is its name for errors."""
    launched = settings.control is not None
    try:
        return _dial.dial(host, port, settings.join_timeout)
    except _dial.WrongProgram as error:
        name = server.partition(" (")[0]
        fix = f"Give {name} another port in the cluster, or end that program."
        raise ClusterConfigError(
            f"{server} should be met at {_sockets.joined(host, port)}, but {error}. "
            f"{_STILL_RUNNING if launched else fix}"
        ) from None
    except _dial.NobodyThere as error:
        fix = (
            "The workers meet there. Look whether it was started and whether its address is "
            "right; set REPLICAX_JOIN_TIMEOUT (seconds) to wait longer."
        )
        kind = ClusterConfigError if error.unresolved else WorkersMissingError
        raise kind(
            f"{server} was not there in {settings.join_timeout:g} s: {error}. "
            f"{_STILL_RUNNING if launched else fix}"
        ) from None


def hold_coordinator_port(host: str, port: int) -> socket.socket:
    """Binds a port for JAX's coordinator: gRPC may bind it too, and nobody else may."""
    try:
        holder = _sockets.bind(listening_host(host), port)
    except _sockets.NotThisMachine as error:
        raise ClusterConfigError(f"JAX's coordinator cannot listen on worker 0: {error}.") from None
    except OSError as error:
        process = _sockets.process_at_port(port)
        raise ClusterConfigError(
            f"REPLICAX_COORDINATOR_PORT={port} cannot be used on worker 0: "
            f"{(error.strerror or str(error)).lower()}{f' by {process}' if process else ''}. Give "
            "every job on a host a port of its own, or unset it to take a free one."
        ) from None
    _sockets.share(holder)
    return holder


def wait_for_coordinator(coordinator: str, me: str, first: str) -> tuple[str, int]:
    """Waits until JAX's coordinator listens: gRPC's own first retry would come after a second."""
    host, port = _sockets.split(coordinator)
    try:
        _dial.wait_until_listening(host, port, _COORDINATOR_SECONDS)
    except _dial.NobodyThere as error:
        raise ClusterConfigError(
            f"{me} cannot reach port {port} of {first} ({coordinator}) where JAX's coordinator "
            f"listens: {error}. If a firewall is between them, set REPLICAX_COORDINATOR_PORT to an "
            "open port."
        ) from None
    return host, port


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _cannot_listen(name: str, address: str, host: str, port: int, error: OSError) -> str:
    if isinstance(error, _sockets.NotThisMachine):
        return (
            f"{name} ({address}) cannot listen at its address: {error}; otherwise correct the "
            f"address of {name} in the cluster."
        )
    text = (
        f"{name} ({address}) cannot listen on its port {port}: "
        f"{(error.strerror or str(error)).lower()}"
    )
    try:
        _dial.dial(host, port, 0.5).close()
    except (_dial.NobodyThere, _dial.WrongProgram):
        holder = _sockets.process_at_port(port)
        held = f" It is held by {holder}." if holder else ""
        return f"{text}.{held} End that program, or give {name} another port in the cluster."
    holder = _sockets.process_at_port(port)
    return (
        f"{text}. Another {name} listens there already{f', {holder}' if holder else ''}: two "
        "processes have the same task index, or an earlier run has not ended. Give every process "
        "its own index, or end the earlier run."
    )


def _print_report(event: Event) -> None:
    if event.kind is EventKind.STALLED:
        _exits.say(event.details["report"])
