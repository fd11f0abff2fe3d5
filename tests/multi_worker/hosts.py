"""Hosts for tests: network namespaces behind one switch, each with its own name and address.

    with hosts(3) as (first, second, third):
        subprocess.run(first.command(["ping", "-c1", second.address]))
        third.cut()

The hosts know each other by name. As Debian sets it up, the name of each host leads to the loopback
on the host itself. The switch is
a namespace as well, so that nothing of this machine's own network is touched. They need root and
iproute2 (`ip`, `tc`); a test without them is skipped, and says what is missing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

_HOSTS_FILES = Path("/etc/netns")  # `ip netns exec` puts NAME/hosts in place of /etc/hosts
_SECONDS = 60
_SET_TUN_DEVICE = 0x400454CA
_TAP_WITHOUT_HEADER = 0x0002 | 0x1000


class Host:
    """One of them. What leaves and reaches it goes through one cable."""

    def __init__(self, name: str, address: str, switch: str) -> None:
        self.name = name
        self.address = address
        self._switch = switch
        self._bad_cable: BadCable | None = None

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

    def spoil(self, delay: float, loss: float) -> None:
        """Makes the cable a bad one: each packet takes so many seconds, and a part is lost."""
        how = ("netem", "delay", f"{delay * 1000:g}ms", "loss", f"{loss * 100:g}%")
        try:
            _run("tc", "-n", self._switch, "qdisc", "add", "dev", self.name, "root", *how)
            _run("tc", "-n", self.name, "qdisc", "add", "dev", "cable", "root", *how)
        except subprocess.CalledProcessError:  # a kernel without netem
            _run("ip", "-n", self._switch, "link", "delete", self.name)
            self._bad_cable = BadCable(self.name, delay, loss)
            _attach(self, self._switch, *self._bad_cable.ends)

    def close(self) -> None:
        """Ends what carries packets to it."""
        if self._bad_cable is not None:
            self._bad_cable.close()


class BadCable:
    """Two network devices; a thread carries packets from each to the other, late or not at all."""

    def __init__(self, name: str, delay: float, loss: float) -> None:
        self.ends = f"{name}o", f"{name}i"
        self._files = [self._device(end) for end in self.ends]
        self._delay = delay
        self._loss = loss
        self._random = random.Random(0)
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._carry, name="bad-cable", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread and removes the devices."""
        self._is_closing.set()
        self._thread.join(_SECONDS)
        for file in self._files:
            os.close(file)

    def _device(self, name: str) -> int:
        file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        request = struct.pack("16sH22x", name.encode(), _TAP_WITHOUT_HEADER)
        fcntl.ioctl(file, _SET_TUN_DEVICE, request)
        return file

    def _carry(self) -> None:
        waiting: deque[tuple[float, int, bytes]] = deque()
        there = dict(zip(self._files, reversed(self._files), strict=True))
        while not self._is_closing.is_set():
            until = waiting[0][0] - time.monotonic() if waiting else 0.1
            for file in select.select(self._files, [], [], max(0.0, min(until, 0.1)))[0]:
                with contextlib.suppress(OSError):  # cut
                    packet = os.read(file, 1 << 16)
                    if self._random.random() >= self._loss:
                        waiting.append((time.monotonic() + self._delay, there[file], packet))
            while waiting and waiting[0][0] <= time.monotonic():
                with contextlib.suppress(OSError):  # cut
                    os.write(waiting[0][1], waiting[0][2])
                waiting.popleft()


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
            _plug_in(host, switch, made)
        yield made
    finally:
        for host in made:
            host.close()
        for name in (switch, *(host.name for host in made)):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=_SECONDS)
            shutil.rmtree(_HOSTS_FILES / name, ignore_errors=True)
            # Where it did not come as far as into its host.
            subprocess.run(["ip", "link", "delete", f"{name}o"], capture_output=True)
        with contextlib.suppress(OSError):  # somebody else has files there
            _HOSTS_FILES.rmdir()


def _make_switch(switch: str) -> None:
    _run("ip", "netns", "add", switch)
    _run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
    _run("ip", "-n", switch, "link", "set", "bridge", "up")


def _plug_in(host: Host, switch: str, hosts: Sequence[Host]) -> None:
    _run("ip", "netns", "add", host.name)
    (_HOSTS_FILES / host.name).mkdir(parents=True, exist_ok=True)
    own = "127.0.0.1 localhost\n", f"127.0.1.1 {host.name}\n"
    others = [f"{each.address} {each.name}\n" for each in hosts if each is not host]
    text = "".join((*own, *others))
    (_HOSTS_FILES / host.name / "hosts").write_text(text, encoding="utf-8")
    outer, inner = f"{host.name}o", f"{host.name}i"
    _run("ip", "link", "add", outer, "type", "veth", "peer", inner)
    _attach(host, switch, outer, inner)


def _attach(host: Host, switch: str, outer: str, inner: str) -> None:
    """Puts one end of a cable into the switch, and the other into the host."""
    _run("ip", "link", "set", outer, "netns", switch, "name", host.name)
    _run("ip", "link", "set", inner, "netns", host.name, "name", "cable")
    _run("ip", "-n", switch, "link", "set", host.name, "master", "bridge", "up")
    _run("ip", "-n", host.name, "address", "add", f"{host.address}/24", "dev", "cable")
    _run("ip", "-n", host.name, "link", "set", "cable", "up")
    _run("ip", "-n", host.name, "link", "set", "lo", "up")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=_SECONDS)
