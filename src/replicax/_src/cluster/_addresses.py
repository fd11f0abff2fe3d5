"""Addresses: those in the description of a cluster, and those of this host.

The name of a host is no help to find an address of it that others can reach: on Debian, and on much
that is made from it, /etc/hosts has it lead to 127.0.1.1 on the host itself, where others find
themselves.
"""

from __future__ import annotations

import ipaddress
import re
import socket

from replicax._src._errors import ClusterConfigError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.S)
_LONGEST = 300  # a name has 253 characters at most
_HOST = re.compile(r"[^\s:/@,\[\]]+")


def split_address(address: str, whose: str = "the address") -> tuple[str, int]:
    """Returns host and port of `host:port` or `[ipv6]:port`.

    Args:
      address: The text.
      whose: How to call it in an error, such as "TF_CONFIG: the address of worker 1".

    Raises:
      ClusterConfigError: If it is not such an address; the text says what to write.
    """
    if len(address) > _LONGEST:
        raise ClusterConfigError(
            f"{whose}, {address[:60]!r}..., has {len(address)} characters. Write host:port with "
            "the name or the IP address of a machine and a port from 1 to 65535."
        )
    if scheme := _SCHEME.fullmatch(address):
        raise ClusterConfigError(
            f"{whose}, {address!r}, has a scheme ({scheme[1]}://). Write it without: "
            f"{scheme[2].rstrip('/') or 'host:2222'!r}."
        )
    if address.count(":") > 1 and not address.startswith("["):
        raise ClusterConfigError(
            f"{whose}, {address!r}, has more than one colon. Write host:port; an IPv6 address goes "
            "in brackets, for example '[::1]:2222'."
        )
    head, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        raise ClusterConfigError(
            f"{whose}, {address!r}, has no port. Write host:port, for example "
            f"{f'{address.strip()}:2222' if address.strip() else 'host:2222'!r}."
        )
    host = head[1:-1] if head.startswith("[") and head.endswith("]") else head
    if not host:
        raise ClusterConfigError(
            f"{whose}, {address!r}, has no host. Write host:port with the name or the IP address "
            f"of the machine, for example 'localhost:{port or 2222}'."
        )
    if not (_HOST.fullmatch(host) or (host != head and re.fullmatch(r"[0-9A-Fa-f:.%\w]+", host))):
        raise ClusterConfigError(
            f"{whose}, {address!r}, has a host that no machine can have, {host!r}. Write host:port "
            "with a plain name or IP address, without spaces and paths."
        )
    if not (port.isascii() and port.isdecimal()) or not 1 <= int(port) <= 65535:
        raise ClusterConfigError(
            f"{whose}, {address!r}, has the port {port!r}. A port is a number from 1 to 65535: "
            f"write, for example, {f'{head}:2222'!r}."
        )
    return host, int(port)


def same_place(host: str, port: int) -> tuple[str, int]:
    """Returns what two spellings of one address have in common."""
    host = host.lower().rstrip(".")
    return ("127.0.0.1" if host in ("localhost", "::1") else host), port


def own_address(known_as: str, calls_from: str) -> str | None:
    """Returns an IP address of this host for the other workers; None if there is none to be found.

    Args:
      known_as: The host in this worker's address in the cluster: a name or an IP address.
      calls_from: The address from which this host has reached the server of the workers.
    """
    own = [address for address in _addresses_of(known_as) if is_own(address)]
    # All have called one server: so all have one in the family of its address, IPv4 or IPv6.
    named = [address for address in own if _version(address) == _version(calls_from)]
    for address in (*named, calls_from):
        if not _is_loopback(address):
            return address
    # All workers are on this host; or it is behind a forwarder, of which nothing is known here.
    return (named or [calls_from])[0] if own else None


def is_own(address: str) -> bool:
    """Returns whether an IP address is one of this host's; 0.0.0.0 is none."""
    parsed = ipaddress.ip_address(address)
    if parsed.is_loopback or parsed.is_unspecified:
        return parsed.is_loopback
    family = socket.AF_INET if parsed.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))  # possible with an address of this host only; nothing is sent
    except OSError:
        return False
    return True


def _addresses_of(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(address[0]) for *_, address in found]


def _version(address: str) -> int:
    return ipaddress.ip_address(address).version


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback
