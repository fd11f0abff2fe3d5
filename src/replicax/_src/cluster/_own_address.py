"""Which address of this host the other workers can reach.

The name of a host is no help: on Debian, and on much that is made from it, /etc/hosts has it lead
to 127.0.1.1 on the host itself, where others find themselves.
"""

from __future__ import annotations

import ipaddress
import socket


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
    """Whether an IP address is one of this host's; 0.0.0.0 is none."""
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
