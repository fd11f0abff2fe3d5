"""What the doctor looks at beyond this machine: its name, the cluster, and who can be reached."""

import errno
import os
import socket

from replicax._src.cli._examinations import Diagnoses, Diagnosis
from replicax._src.cluster import WorkerView, checked_cluster, reachable_host, split_address
from replicax._src.cluster.control import NotThisMachine, bind, listening_host, process_at_port
from replicax._src.cluster.resolvers import resolver_from_environment

_CONNECT_SECONDS = 2.0
# More workers than this are not called one by one: the doctor should not take minutes.
_MOST_CALLED = 16


def examine_network(_: Diagnoses) -> Diagnosis:
    """Looks whether this host knows its own name, by which others are told to find it."""
    finding = Diagnosis()
    name = socket.gethostname()
    finding.facts["hostname"] = name
    try:
        addresses = _resolve(name)
    except OSError as error:
        finding.lines.append(f"host name {name}")
        finding.wrong(
            f"the host name {name!r} cannot be resolved ({error.strerror or error})",
            f"Add it to /etc/hosts with the address of this host: echo '<address> {name}' >> "
            "/etc/hosts",
        )
    else:
        finding.facts["addresses"] = addresses
        finding.lines.append(f"host name {name}: {', '.join(addresses)}")
    return finding


def examine_cluster(_: Diagnoses) -> Diagnosis:
    """Reads the cluster as a strategy would, and looks whether its workers can be reached."""
    finding = Diagnosis()
    for variable in ("TF_CONFIG", "REPLICAX_CONTROL", "REPLICAX_GENERATION"):
        if variable in os.environ:
            finding.lines.append(f"{variable}={os.environ[variable]}")
    try:
        view = checked_cluster(resolver_from_environment())
    except Exception as error:  # whatever it is, a strategy would meet it too
        finding.wrong(
            f"the cluster in the environment is not understood: {error}",
            "Mend the variable, or unset it to train with one worker; the right form is "
            'TF_CONFIG=\'{"cluster": {"worker": ["host0:2222", "host1:2222"]}, '
            '"task": {"type": "worker", "index": 0}}\'',
        )
        return finding
    if view is None:
        finding.lines.append("none in the environment: one worker")
        return finding
    finding.facts["cluster"] = {
        "source": view.source,
        "workers": list(view.workers),
        "task_type": view.task_type,
        "task_id": view.task_id,
    }
    finding.lines.append(f"from {view.source}: this is {view.name}, of {len(view.workers)} workers")
    for rank, (name, address) in enumerate(zip(view.names, view.workers)):
        if rank < _MOST_CALLED or rank == view.rank:
            _call(finding, view, rank, name, address)
    if len(view.workers) > _MOST_CALLED:
        finding.lines.append(f"... (the first {_MOST_CALLED} were called)")
    _check_loopback(finding, view)
    return finding


def _call(finding: Diagnosis, view: WorkerView, rank: int, name: str, address: str) -> None:
    """Looks whether the address of a worker is good: of this one, free; of others, reachable."""
    host, port = split_address(address)
    line = f"  {name} ({address}): "
    try:
        addresses = _resolve(host)
    except OSError as error:
        finding.lines.append(line + "unknown host")
        finding.wrong(
            f"the host {host!r} of {name} cannot be resolved ({error.strerror or error})",
            "Correct the name in the cluster, use an IP address, or add it to /etc/hosts.",
        )
        return
    if rank == view.rank:
        listens = rank == 0 and len(view.workers) > 1
        state = _own_port(finding, name, host, port, listens)
        finding.lines.append(line + f"this worker, {state}")
        return
    try:
        socket.create_connection((host, port), _CONNECT_SECONDS).close()
        finding.lines.append(line + f"{addresses[0]}, listens")
    except ConnectionRefusedError:
        # Its host answers; workers other than the first listen only while they meet.
        finding.lines.append(line + f"{addresses[0]}, reachable, not listening now")
    except OSError as error:
        why = "no answer" if isinstance(error, TimeoutError) else (error.strerror or str(error))
        finding.lines.append(line + f"{addresses[0]}, {why.lower()}")
        finding.wrong(
            f"{name} ({address}) cannot be reached: {why.lower()}",
            f"See that its host is up and that no firewall drops TCP to port {port}.",
        )


def _own_port(finding: Diagnosis, name: str, host: str, port: int, listens: bool) -> str:
    """Says whether a worker could listen at its own address; only the first one has to."""
    try:
        bind(listening_host(host), port).close()
    except NotThisMachine as error:
        if listens:
            finding.wrong(
                f"{name} cannot listen at its address: {error}",
                f"Otherwise correct the address of {name} in the cluster.",
            )
        return f"but {host} is not an address of this host (forwarded to it?)"
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            holder = process_at_port(port)
            finding.wrong(
                f"port {port} of {name} is in use{f' by {holder}' if holder else ''}",
                "End that process, or give this worker another port in the cluster.",
            )
            return "its port is in use"
        return f"its port cannot be bound: {error.strerror}"
    return "its port is free"


def _check_loopback(finding: Diagnosis, view: WorkerView) -> None:
    """Checks that worker 0 of several hosts does not listen on its loopback: all meet there."""
    hosts = [split_address(address)[0] for address in view.workers]
    others = [host for host in hosts if host != hosts[0]]
    if view.rank != 0 or not others:
        return
    try:
        addresses = _resolve(reachable_host(hosts[0], others))
    except OSError:
        return  # which was told already
    if all(address.startswith("127.") for address in addresses):
        finding.wrong(
            f"the host {hosts[0]!r} of {view.names[0]} leads to {addresses[0]} here, where no "
            "other host finds it",
            f"In /etc/hosts, give {hosts[0]} the address by which other hosts reach this one, "
            "or write that address in the cluster.",
        )


def _resolve(host: str) -> list[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))
