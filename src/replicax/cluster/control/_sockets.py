"""Sockets of the control plane: binding, ports in use and who holds them."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket

# Seconds after which the kernel gives up a peer whose machine has gone without a word.
_SILENCE = 20


def tune(sock: socket.socket) -> None:
    """Messages go out at once, and a peer whose machine vanished is noticed."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(OSError, AttributeError):  # not everywhere, and only a second line
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENCE * 1000)


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A TCP socket bound to an address of this machine.

    Where `host` is the name of a forwarded address, which no interface here has, it is bound to all
    interfaces. `shared` lets another socket of this user be bound to the same port.
    """
    candidates: list[tuple[socket.AddressFamily, str]] = []
    with contextlib.suppress(OSError):
        for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            if family in (socket.AF_INET, socket.AF_INET6):
                candidates.append((family, str(address[0])))
    candidates.append((socket.AF_INET, "0.0.0.0"))
    for family, address in candidates:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            option = socket.SO_REUSEPORT if shared else socket.SO_REUSEADDR
            sock.setsockopt(socket.SOL_SOCKET, option, 1)
            sock.bind((address, port))
        except OSError as error:
            sock.close()
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
        else:
            return sock
    raise OSError(errno.EADDRNOTAVAIL, f"no address of this machine can be bound for {host!r}")


def split(address: str) -> tuple[str, int]:
    """Host and port of "host:port" or "[v6]:port"; the form has been checked before."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def joined(host: str, port: int) -> str:
    """The opposite of `split`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def process_at_port(port: int) -> str | None:
    """ "pid 123 (nginx)" for the process that listens on a port here; None if it cannot be seen."""
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
                        return f"pid {pid} ({_name_of(pid)})"
    return None


def process_state(pid: int) -> str | None:
    """What the kernel says that a process of this machine is doing: "stopped", "running" ..."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="utf-8") as lines:
        for line in lines:
            if match := re.match(r"State:\s+(\S)\s*(?:\((.*)\))?", line):
                letter = match[1]
                return {"T": "stopped", "t": "stopped by a debugger", "Z": "dead"}.get(
                    letter, match[2] or letter
                )
    return None


def _name_of(pid: str) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8") as comm:
        return comm.read().strip()
    return "?"
