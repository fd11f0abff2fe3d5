"""A process of tests that is a fork of one with the imports behind it (`tests/forks.py`).

`Fork` is one as whoever starts it sees it. As a program, this file stands for `python`: it has its
arguments run in a fork with its own folder, variables, input and output, passes signals on, and
ends as the fork does. Where a fork would not be what a process of its own is, it becomes one. It is
started often, and imports little.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from typing import Any

# What JAX reads when it is imported, and how it is said later.
SETTINGS: dict[str, Any] = {
    "JAX_ENABLE_COMPILATION_CACHE": lambda text: text != "0",
    "JAX_PLATFORMS": str,
    "JAX_NUM_CPU_DEVICES": int,
    "JAX_COMPILATION_CACHE_DIR": str,
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": float,
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": int,
}
READ_BY_IMPORTS = ("JAX_", "PYTHON", "REPLICAX_RECORD")
HASH_SEED = "PYTHONHASHSEED"
_MAY_DIFFER = ("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONWARNINGS")
# None was started with this seed, or its imports have failed.
NONE_LISTENS = (FileNotFoundError, ConnectionError)
_PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def can_be_forked(arguments: list[str], environment: dict[str, str]) -> bool:
    """Says whether a fork can be what `python <arguments>` would be with these variables."""
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-c", "-m")):
        return False
    names = {name for name in environment if name.startswith(READ_BY_IMPORTS)}
    return not names - {*SETTINGS, *_MAY_DIFFER, HASH_SEED}


def address(folder: str, seed: str) -> str:
    """Returns where the process listens whose hashes have a seed."""
    return os.path.join(folder, f"{seed}.socket")


class Fork:
    """A process, as far as jobs know `subprocess.Popen`. It ends when nobody holds this any more.

    Args:
      where: the address of the process that forks; `NONE_LISTENS` if there is none any more.
      arguments: of Python.
      folder: in which it begins.
      environment: its variables.
      files: its input, output and errors.
    """

    def __init__(
        self,
        where: str,
        arguments: list[str],
        folder: str,
        environment: dict[str, str],
        files: tuple[int, int, int],
    ) -> None:
        self.returncode: int | None = None
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = {"arguments": arguments, "folder": folder, "environment": environment}
        try:
            self._connection.connect(where)
            socket.send_fds(self._connection, [json.dumps(request).encode()], list(files))
            if not (pid := self._connection.recv(64)):
                raise ConnectionResetError(f"the process that forks at {where} has ended")
        except BaseException:
            self._connection.close()
            raise
        self.pid = int(pid)

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit status; minus the number of the signal that ended it."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            self.returncode = int(self._connection.recv(64) or -signal.SIGKILL)
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # its end is on the way here
                os.kill(self.pid, number)


def main() -> None:
    """Runs `python <arguments>` in a fork, and ends as it does."""
    arguments, environment = sys.argv[1:], dict(os.environ)
    if can_be_forked(arguments, environment):
        where = address(os.path.dirname(sys.argv[0]), environment.get(HASH_SEED, "0"))
        signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
        try:
            fork = Fork(where, arguments, os.getcwd(), environment, (0, 1, 2))
        except NONE_LISTENS:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        else:
            _end_as(fork)
    os.execv(sys.executable, [sys.executable, *arguments])


def _end_as(fork: Fork) -> None:
    for number in _PASSED_ON:
        signal.signal(number, lambda number, _: fork.send_signal(number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    status = fork.wait()
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main()
