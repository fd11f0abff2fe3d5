"""Sockets of the control plane: binding, ports in use and who holds them."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket

# Seconds after which the kernel gives up a peer whose machine has gone without a word.
_SILENCE = 20
_LONGEST_COMMAND = 80


def tune(sock: socket.socket) -> None:
    """Messages go out at once, and a peer whose machine vanished is noticed."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(OSError, AttributeError):  # not everywhere, and only a second line
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENCE * 1000)


class NotThisMachine(OSError):
    """An address to listen on is none of this machine's; the text says what to do."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. If it is forwarded to this machine, set REPLICAX_LISTEN_HOST to an address "
            "that the machine has, or to 0.0.0.0 for all of them"
        )


def bind(host: str, port: int) -> socket.socket:
    """Returns a TCP socket that is bound to an address of this machine.

    Raises:
      NotThisMachine: `host` is no address of this machine, or cannot be resolved.
      OSError: The port is not free.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # the latter: no name can be like that
        raise NotThisMachine(unresolved(host, error)) from None
    for family, _, _, _, address in found:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
        except OSError as error:
            sock.close()
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
        else:
            return sock
    raise NotThisMachine(f"{host!r} is not an address of this machine")


def unresolved(host: str, error: OSError | UnicodeError) -> str:
    """Returns what to say of a name that has no address."""
    reason = error.strerror if isinstance(error, OSError) else None
    return f"the host name {host!r} cannot be resolved ({reason or error})"


def share(sock: socket.socket) -> None:
    """Lets sockets be bound to the port of a bound one, if they ask for it as gRPC does.

    `bind` is not refused for the connections of an earlier program that the kernel still remembers,
    but it is for a socket that is shared: so one job at a time has a port.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)


def split(address: str) -> tuple[str, int]:
    """Returns host and port of "host:port" or "[v6]:port"; the form has been checked before."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def joined(host: str, port: int) -> str:
    """Returns what `split` takes apart."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def process_at_port(port: int) -> str | None:
    """Returns "pid 123 (python train.py)" for what listens on a port here; None if unseen."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table, encoding="ascii") as lines:
            for fields in (line.split() for line in lines):
                if len(fields) > 9 and fields[1].endswith(f":{port:04X}") and fields[3] == "0A":
                    inodes.add(fields[9])
    wanted = {f"socket:[{inode}]" for inode in inodes - {"0"}}
    if not wanted:
        return None
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{descriptor}") in wanted:
                        return f"pid {pid} ({_command_of(pid)})"
    return None


def process_state(pid: int) -> str | None:
    """Returns what the kernel says that a process of this machine does: "stopped", "running" ..."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="utf-8") as lines:
        for line in lines:
            if match := re.match(r"State:\s+(\S)\s*(?:\((.*)\))?", line):
                letter = match[1]
                return {"T": "stopped", "t": "stopped by a debugger", "Z": "dead"}.get(
                    letter, match[2] or letter
                )
    return None


def _command_of(pid: str) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as words:
        command = " ".join(words.read(4096).decode(errors="replace").replace("\0", " ").split())
        return command if len(command) <= _LONGEST_COMMAND else f"{command[:_LONGEST_COMMAND]}..."
    return "?"
