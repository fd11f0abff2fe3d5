"""Addresses: those in the description of a cluster, and those of this host.

The name of a host is no help to find an address of it that others can reach: on Debian, and on much
that is made from it, /etc/hosts has it lead to 127.0.1.1 on the host itself, where others find
themselves.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import itertools
import re
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

from replicax._src._errors import ClusterConfigError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.S)
# Addresses that nobody has: the way to them is that to any network.
_ELSEWHERE = ("192.0.2.1", "2001:db8::1")
_DEVICES = Path("/sys/class/net")
_GET_DEVICE_ADDRESS = 0x8915  # SIOCGIFADDR
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
    if _is_link_local(host):
        raise ClusterConfigError(
            f"{whose}, {address!r}, is a link-local one (fe80::): it holds for one cable alone, "
            "and other hosts do not find it by this text. Write a name, an IPv4 address, or an "
            "IPv6 address of the network, such as '[fd00::1]:2222'."
        )
    if not (port.isascii() and port.isdecimal()) or not 1 <= int(port) <= 65535:
        raise ClusterConfigError(
            f"{whose}, {address!r}, has the port {port!r}. A port is a number from 1 to 65535: "
            f"write, for example, {f'{head}:2222'!r}."
        )
    return host, int(port)


def _is_link_local(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.version == 6 and address.is_link_local


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


def is_this_hosts_name(host: str) -> bool:
    """Returns whether a name is that of this host, as far as known without a name server."""
    host, own = host.lower().rstrip("."), socket.gethostname().lower()
    return host == own or host.startswith(f"{own}.") or own.startswith(f"{host}.")


def reachable_host(host: str, others: Iterable[str] = ()) -> str:
    """Returns where a host listens, and is called, so that other hosts reach it too.

    That is `host`, but for the name of this very host where that leads to the loopback: then it is
    the address with which this host calls others.

    Args:
      host: A name or an IP address.
      others: The other hosts of the cluster, as far as they are known.
    """
    if host.partition(".")[0].lower() == "localhost" or not is_this_hosts_name(host):
        return host
    found = _addresses_of(host)
    if not any(map(_is_loopback, found)):
        return host
    known = [address for other in others for address in _addresses_of(other)]
    own = map(_address_towards, (*known, *_ELSEWHERE))
    for address in itertools.chain(found, own, _addresses_of_devices()):
        if address is not None and not _is_loopback(address):
            return address
    return host


def _address_towards(address: str) -> str | None:
    """Returns the address of this host for what it sends to another; None if there is no way."""
    family = socket.AF_INET if _version(address) == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))  # of a datagram socket: it looks for a way, sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return None


def _addresses_of_devices() -> Iterator[str]:
    """Yields the IPv4 address of each network device, where the system is Linux.

    Those of bridges come last: that of containers leads to this host alone.
    """
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        names = [name for _, name in socket.if_nameindex()]
        for name in sorted(names, key=lambda each: (_DEVICES / each / "bridge").exists()):
            with contextlib.suppress(OSError):  # a device without one
                found = fcntl.ioctl(probe, _GET_DEVICE_ADDRESS, name.encode().ljust(256, b"\0"))
                yield socket.inet_ntoa(found[20:24])


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
    except (OSError, UnicodeError):  # the latter: no name can be like that
        return []
    return [str(address[0]) for *_, address in found]


def _version(address: str) -> int:
    return ipaddress.ip_address(address).version


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback
