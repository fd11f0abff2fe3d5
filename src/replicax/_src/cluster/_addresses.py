"""Addresses as they stand in a cluster description: `host:port`, and what people write instead."""

from __future__ import annotations

import re

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
