"""Hosts for tests: network namespaces behind one switch, each with its own name and address.

    with hosts(3) as (first, second, third):
        subprocess.run(first.command(["ping", "-c1", second.address]))
        third.cut()

As Debian sets it up, the name of each host leads to the loopback on the host itself. The switch is
a namespace as well, so that nothing of this machine's own network is touched. They need root and
iproute2 (`ip`, `tc`); a test without them is skipped, and says what is missing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

_HOSTS_FILES = Path("/etc/netns")  # `ip netns exec` puts NAME/hosts in place of /etc/hosts
_SECONDS = 60


class Host:
    """One of them. What leaves and reaches it goes through one cable."""

    def __init__(self, name: str, address: str, switch: str) -> None:
        self.name = name
        self.address = address
        self._switch = switch

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Returns what to start so that `arguments` run there; the process number stays."""
        inside = ["ip", "netns", "exec", self.name, "unshare", "-u"]
        return [*inside, "sh", "-c", 'hostname "$0"; exec "$@"', self.name, *arguments]

    def cut(self) -> None:
        """Pulls the cable: packets vanish, and nobody is told."""
        _run("ip", "-n", self._switch, "link", "set", self.name, "down")

    def mend(self) -> None:
        """Puts the cable back."""
        _run("ip", "-n", self._switch, "link", "set", self.name, "up")

    def spoil(self, *how: str) -> None:
        """Makes the cable a bad one, both ways: `spoil("delay", "50ms", "loss", "1%")`."""
        netem = ("netem", *how)
        _run("tc", "-n", self._switch, "qdisc", "add", "dev", self.name, "root", *netem)
        _run("tc", "-n", self.name, "qdisc", "add", "dev", "cable", "root", *netem)


@contextlib.contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """Makes hosts, and removes them at the end, whatever happens."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    for program in ("ip", "tc", "unshare", "hostname"):
        if shutil.which(program) is None:
            pytest.skip(f"network namespaces need the program `{program}`")
    mark = f"rx{os.getpid()}"  # names of interfaces have 15 characters at most
    switch = f"{mark}s"
    made = [Host(f"{mark}h{i}", f"10.77.0.{i + 1}", switch) for i in range(count)]
    try:
        try:
            _make_switch(switch)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces cannot be made here: {error.stderr.strip()}")
        for host in made:
            _plug_in(host, switch)
        yield made
    finally:
        for name in (switch, *(host.name for host in made)):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=_SECONDS)
            shutil.rmtree(_HOSTS_FILES / name, ignore_errors=True)
        with contextlib.suppress(OSError):  # somebody else has files there
            _HOSTS_FILES.rmdir()


def _make_switch(switch: str) -> None:
    _run("ip", "netns", "add", switch)
    _run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
    _run("ip", "-n", switch, "link", "set", "bridge", "up")


def _plug_in(host: Host, switch: str) -> None:
    _run("ip", "netns", "add", host.name)
    (_HOSTS_FILES / host.name).mkdir(parents=True, exist_ok=True)
    (_HOSTS_FILES / host.name / "hosts").write_text(
        f"127.0.0.1 localhost\n127.0.1.1 {host.name}\n", encoding="utf-8"
    )
    outer = ("ip", "-n", switch)
    inner = ("ip", "-n", host.name)
    _run(*outer, "link", "add", host.name, "type", "veth", "peer", "cable", "netns", host.name)
    _run(*outer, "link", "set", host.name, "master", "bridge", "up")
    _run(*inner, "address", "add", f"{host.address}/24", "dev", "cable")
    _run(*inner, "link", "set", "cable", "up")
    _run(*inner, "link", "set", "lo", "up")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=_SECONDS)
