"""Workers of tests that need no imports: forks of a process that has imported JAX and replicax.

`tests/warm.py` runs one program after the other in this way. A fork of here lives beside others,
is signalled and waited for. There are two such processes for each set of imports, and workers take
turns: their seeds of hashes differ, so that an order of a set that two workers must agree on shows.

As a program, this file is that process. Its arguments are the number of the socket on which
requests come, and the modules that it imports besides.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests import warm

_MOST_BYTES = 2**17  # of a request: the variables of an environment


# In the tests.


class Fork:
    """A process, as far as jobs know `subprocess.Popen`."""

    def __init__(
        self,
        channel: socket.socket,
        arguments: list[str],
        folder: Path,
        environment: dict[str, str],
    ) -> None:
        request = {"arguments": arguments, "folder": str(folder), "environment": environment}
        pipes = [os.pipe() for _ in range(3)]
        socket.send_fds(channel, [json.dumps(request).encode()], [write for _, write in pipes])
        for _, write in pipes:
            os.close(write)
        self.stdout, self.stderr, self._status = (open(read, "rb") for read, _ in pipes)
        self.pid = int(self._status.readline())
        self.returncode: int | None = None

    def wait(self) -> int:
        """Returns the exit status; minus the number of the signal that ended it."""
        with self._status:
            self.returncode = int(self._status.readline() or -signal.SIGKILL)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless its end is known."""
        if self.returncode is None:
            os.kill(self.pid, number)


def fork(
    arguments: list[str],
    folder: Path,
    environment: dict[str, str],
    rank: int,
    imports: tuple[str, ...] = (),
) -> Fork | None:
    """Starts `python <arguments>` as a fork; None if it must have a process of its own."""
    # Who records what TensorFlow does has no JAX.
    has_imports = sys.platform == "linux" and importlib.util.find_spec("jax") is not None
    if not has_imports or not warm.can_be_forked(environment):
        return None
    return Fork(_process_that_forks(imports, rank % 2), arguments, folder, environment)


@functools.cache
def _process_that_forks(imports: tuple[str, ...], number: int) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.forks", str(theirs.fileno()), *imports],
            stdin=subprocess.DEVNULL,
            cwd=warm.ROOT,
            env=warm.environment_of_imports(),
            pass_fds=[theirs.fileno()],
        )
    atexit.register(process.wait)
    atexit.register(ours.close)  # before that: it ends with the requests
    return ours


# In the process that forks.


def _serve(channel: socket.socket, imports: list[str]) -> tuple[dict[str, Any], int, int]:
    """Forks until there are no more requests; in a fork, returns the request and its outputs."""
    added = warm.import_all(imports)
    ended, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(tell)
    waiting: dict[int, int] = {}  # by the child's number, where its status is to be written
    while True:
        ready, _, _ = select.select([channel, ended], [], [])
        if ended in ready:
            os.read(ended, 4096)
            _tell_of_ended(waiting)
        if channel not in ready:
            continue
        text, files, _, _ = socket.recv_fds(channel, _MOST_BYTES, 3)
        if not text:
            os._exit(0)  # and the forks with it
        stdout, stderr, status = files
        if (child := os.fork()) == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (channel.detach(), ended, tell, status, *waiting.values()):
                os.close(each)
            request = json.loads(text)
            request["environment"] = {**added, **request["environment"]}
            return request, stdout, stderr
        os.write(status, b"%d\n" % child)
        waiting[child] = status
        os.close(stdout)
        os.close(stderr)


def _tell_of_ended(waiting: dict[int, int]) -> None:
    while waiting:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            return
        with open(waiting.pop(child), "wb") as file:
            file.write(b"%d\n" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    _request, _stdout, _stderr = _serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
    warm.become(_request, _stdout, _stderr)
    warm.run_program(_request["arguments"])
