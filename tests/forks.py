"""Processes of tests that need no imports: forks of a process that has imported JAX and replicax.

The imports take longer than most programs of pages and examples. JAX starts no thread before its
devices are used, so that a fork has everything. A program sees what it would in a process of its
own (`tests/warm.py`): its arguments, folder, variables and `__main__`. For programs with Keras,
whose import takes twice as long, there is another process that forks. There are two of each kind,
and workers take turns: their seeds of hashes differ, so that an order of a set that two workers
must agree on shows.

As a program, this file is that process. Its arguments are the number of the socket on which it
listens, its interpreter, and the modules that it imports besides.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests import warm
from tests.forked import HASH_SEED, NONE_LISTENS, Fork, address, can_be_forked

_MOST_BYTES = 2**17  # of a request: the variables of an environment
_IMPORTED = ("pytest", "optax")


# In the tests.


@functools.cache
def interpreter(keras: bool = False) -> str:
    """Returns a program that does what `python` does, in a fork, and so do the processes it starts.

    What cannot be run in a fork, such as `python -W error program.py`, is run by Python itself.
    """
    if not _can_fork():
        return sys.executable
    return str(Path(_listening(keras, "0")) / "python")


def fork(
    arguments: list[str],
    folder: Path,
    environment: dict[str, str],
    rank: int,
    keras: bool = False,
) -> PipedFork | None:
    """Starts `python <arguments>` as a fork; None if it must have a process of its own."""
    seed = environment.get(HASH_SEED, str(rank % 2))
    if seed not in ("0", "1") or not _can_fork() or not can_be_forked(arguments, environment):
        return None
    try:
        return PipedFork(address(_listening(keras, seed), seed), arguments, folder, environment)
    except NONE_LISTENS:
        return None


class PipedFork(Fork):
    """One without input, whose output and errors are read here."""

    def __init__(
        self, where: str, arguments: list[str], folder: Path, environment: dict[str, str]
    ) -> None:
        nothing = os.open(os.devnull, os.O_RDONLY)
        (out, stdout), (errors, stderr) = os.pipe(), os.pipe()
        self.stdout, self.stderr = open(out, "rb"), open(errors, "rb")
        try:
            super().__init__(where, arguments, str(folder), environment, (nothing, stdout, stderr))
        except BaseException:
            self.stdout.close()
            self.stderr.close()
            raise
        finally:
            for each in (nothing, stdout, stderr):
                os.close(each)


@functools.cache
def _can_fork() -> bool:
    # Who records what TensorFlow does has no JAX.
    if sys.platform != "linux" or importlib.util.find_spec("jax") is None:
        return False
    folder = _folder(False)
    may_run = os.access(os.path.join(folder, "python"), os.X_OK)  # not everywhere
    return may_run and len(os.fsencode(address(folder, "0"))) < 108 and " " not in sys.executable


@functools.cache
def _folder(keras: bool) -> str:
    """Makes the folder with the addresses and the interpreter of a kind of forks."""
    folder = tempfile.mkdtemp(prefix="replicax-forks-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _write_interpreter(Path(folder))
    return folder


def _write_interpreter(folder: Path) -> None:
    path = folder / "python"
    path.write_text(
        f"#!{sys.executable} -IS\nimport sys\nsys.path.insert(0, {str(warm.ROOT)!r})\n"
        "from tests.forked import main\nmain()\n"
    )
    path.chmod(0o700)


@functools.cache
def _listening(keras: bool, seed: str) -> str:
    """Starts a process that forks, unless it is there; returns the folder with its address."""
    folder = _folder(keras)
    # Keras imports TensorFlow where there is one, whose threads no fork has.
    with_keras = keras and importlib.util.find_spec("tensorflow") is None
    names = (*_IMPORTED, *(("keras",) if with_keras else ()))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address(folder, seed))
        listener.listen()
        number = str(listener.fileno())
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.forks", number, os.path.join(folder, "python"), *names],
            stdin=subprocess.PIPE,
            cwd=warm.ROOT,
            env={**warm.environment_of_imports(), HASH_SEED: seed},
            pass_fds=[listener.fileno()],
        )
    atexit.register(_end, process)
    return folder


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()  # it ends with its input
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# In the process that forks.


def _serve(listener: socket.socket, imports: list[str]) -> tuple[dict[str, Any], list[int]]:
    """Forks until the tests end; in a fork, returns what it is to do, and its files."""
    added = warm.import_all(imports)  # what they have set, they would set for a program too
    ended, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(tell)
    running: dict[socket.socket, int] = {}  # the child of each connection
    while True:
        ready, _, _ = select.select([0, ended, listener, *running], [], [])
        if ended in ready:
            os.read(ended, 4096)
            _tell_of_ended(running)
        for connection in running.keys() & set(ready):  # nobody waits for its child any more
            _kill(running.pop(connection))
            connection.close()
        if 0 in ready:
            for child in running.values():
                _kill(child)
            os._exit(0)
        if listener not in ready:
            continue
        connection, _ = listener.accept()
        try:
            text, files, _, _ = socket.recv_fds(connection, _MOST_BYTES, 3)
        except OSError:
            text = b""
        if not text:  # it has ended before it said what it wants
            connection.close()
            continue
        if (child := os.fork()) == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (ended, tell):
                os.close(each)
            for each in (listener, connection, *running):
                each.close()
            request = json.loads(text)
            request["environment"] = {**added, **request["environment"]}
            return request, files
        running[connection] = child
        _send(connection, child)  # whoever does not wait any more has closed it: see above
        for each in files:
            os.close(each)


def _tell_of_ended(running: dict[socket.socket, int]) -> None:
    by_child = {child: connection for connection, child in running.items()}
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if child == 0:
            return
        if connection := by_child.get(child):
            del running[connection]
            with connection:
                _send(connection, os.waitstatus_to_exitcode(status))


def _send(connection: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # nobody waits for it any more
        connection.send(b"%d" % number)


def _kill(child: int) -> None:
    """Ends a fork, and what is of its group: it leads one, unless it has just begun."""
    for end in (os.killpg, os.kill):
        try:
            end(child, signal.SIGKILL)
        except ProcessLookupError:
            continue
        return


if __name__ == "__main__":
    _request, _files = _serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[3:])
    warm.become(_request, _files, sys.argv[2])
    warm.run_program(_request["arguments"])
