"""The worker processes of this host in one generation: starting, watching and ending them.

Each worker leads a session of its own: Ctrl-C in the terminal reaches the launcher alone, which
then ends the workers with everything they have started. When the launcher dies, however it dies,
the kernel kills the workers (on Linux), and a `Guard` kills them with everything they have started.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, final

from replicax._src.cli._guard import Guard
from replicax._src.cli._log import Lines

# Runs in the new process, and becomes the worker: no code of ours runs between `fork` and `exec`,
# in a copy of a process with threads. PR_SET_PDEATHSIG (1) outlives `exec`; and the launcher may
# have died already.
_DIE_WITH_PARENT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
_READ_SIZE = 65536
# Gloo says it to everyone in every generation, and nothing silences it.
_NOISE = b"[Gloo] Rank "
# More than a pipe holds: all that a dead worker has left, however much its orphans add.
_LAST_READ_SIZE = 2 << 20
# How long the kernel may take to end a process after SIGKILL: one that is stuck in a driver or a
# network file system ends only when that lets go.
_KILL_SECONDS = 10.0


@final
class Worker:
    """One worker process: its rank in the job, its pipe, and how it ended."""

    def __init__(self, rank: int, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.rank = rank
        self.status: int | None = None
        """None while it runs; then as `Popen.returncode`: negative for a signal."""
        self.killed_by_us = False
        self.output_ended = False
        self.lines = Lines()
        self.process = subprocess.Popen(
            dies_with_us(command),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout.fileno()
        os.set_blocking(self.output, False)

    def peek(self) -> int | None:
        """Returns how the process ended, if it has, and leaves it unreaped.

        So its number cannot be given to another process, and its group can still be killed.
        """
        if self.status is None and not hasattr(os, "waitid"):  # macOS before Python 3.13
            self.status = self.process.poll()
        elif self.status is None:
            found = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if found is not None:
                by_signal = found.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
                self.status = -found.si_status if by_signal else found.si_status
        return self.status

    def signal(self, number: int) -> None:
        """Sends a signal to the worker; SIGKILL to everything that it has started, too."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if number == signal.SIGKILL:
                self.killed_by_us |= self.peek() is None
                os.killpg(self.process.pid, number)
            elif self.peek() is None:
                os.kill(self.process.pid, number)

    def close(self) -> None:
        """Closes the pipe of the process."""
        assert self.process.stdout is not None
        self.process.stdout.close()


def dies_with_us(command: Sequence[str]) -> list[str]:
    """Returns what to start for `python <command>`, so that it ends when we do.

    The kernel ties it to the thread that starts it, which must live as long.
    """
    python = sys.executable
    if not sys.platform.startswith("linux"):
        return [python, *command]
    return [python, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), python, *command]


class Output(Protocol):
    """Where the lines of workers go: a `Log`, or the reports of an actor."""

    @property
    def full(self) -> bool:
        """Whether workers should wait before they write more."""
        ...

    def worker(self, rank: int, line: bytes) -> None:
        """Adds a line of a worker."""
        ...

    def say(self, text: str) -> None:
        """Adds a line about a worker."""
        ...


@final
class LocalWorkers:
    """The workers of one generation on this host; their output goes to the log as it comes.

    It works inside the launcher's loop: file descriptors are registered with a selector, with the
    function to call as data. Processes must be started by the main thread, since the kernel ties
    them to the thread that started them.

    Args:
      selector: Of the loop.
      log: Where the lines go.
      on_exit: Called with the rank and the status of a worker that has ended on its own.
      folders: Which are of no use any more when this process is gone.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        log: Output,
        on_exit: Callable[[int, int], None],
        folders: Sequence[str] = (),
    ) -> None:
        self._selector = selector
        self._log = log
        self._on_exit = on_exit
        self._folders = folders
        self._workers: list[Worker] = []
        self._running: list[Worker] = []
        self._process_descriptors: dict[int, int] = {}
        self._guard: Guard | None = None

    def limit(self, seconds: float) -> None:
        """Has the workers ended so many seconds from now, even if this process cannot do it.

        It may be called from any thread, and again and again to put it off; `math.inf`: never.
        """
        guard = self._guard
        if guard is not None:
            guard.limit(seconds)

    @property
    def running(self) -> list[Worker]:
        """Those that have not ended yet."""
        return self._running

    def start(self, rank: int, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Starts one more worker."""
        if self._guard is None:
            self._guard = Guard(self._folders)
        worker = Worker(rank, command, environment)
        self._guard.watch(worker.process.pid)
        self._workers.append(worker)
        self._running.append(worker)
        self._selector.register(
            worker.output, selectors.EVENT_READ, lambda: self._read(worker, _READ_SIZE)
        )
        if hasattr(os, "pidfd_open"):  # Linux; elsewhere the loop comes by often enough
            with contextlib.suppress(OSError):
                descriptor = os.pidfd_open(worker.process.pid)
                self._process_descriptors[rank] = descriptor
                self._selector.register(descriptor, selectors.EVENT_READ, self.reap)

    @property
    def needs_polling(self) -> bool:
        """Whether the end of a worker does not wake the selector."""
        return len(self._process_descriptors) < len(self._running)

    def reap(self) -> None:
        """Reports the workers that have ended, those that were killed first.

        When several have ended, the others have often ended because of that one.
        """
        ended = [worker for worker in self._running if worker.peek() is not None]
        for worker in sorted(ended, key=lambda worker: worker.status or 0):
            self._running.remove(worker)
            self._forget_process(worker)
            self._read(worker, _LAST_READ_SIZE)
            assert worker.status is not None
            if not worker.killed_by_us:
                self._on_exit(worker.rank, worker.status)

    def signal(self, number: int) -> None:
        """Sends a signal to all workers."""
        for worker in self._workers:
            worker.signal(number)

    def close(self) -> None:
        """Ends all workers, and the guard over them."""
        self.end()
        if self._guard is not None:
            self._guard.close()
            self._guard = None

    def end(self) -> None:
        """Kills what still runs, with everything the workers have started, and forgets them all."""
        self.signal(signal.SIGKILL)
        deadline = time.monotonic() + _KILL_SECONDS
        for worker in self._workers:
            self._forget_process(worker)
            self._read(worker, _LAST_READ_SIZE)
            if self._guard is not None:
                self._guard.forget(worker.process.pid)
            try:
                worker.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._log.say(
                    f"worker {worker.rank} (process {worker.process.pid}) is still there "
                    f"{_KILL_SECONDS:g} s after SIGKILL: the kernel has not let go of it (does a "
                    "driver or a network file system hang?). Going on without it."
                )
            self._read(worker, _LAST_READ_SIZE)
            self._forget_output(worker)
            for line in worker.lines.end():
                self._log.worker(worker.rank, line)
            worker.close()
        self._workers.clear()
        self._running.clear()

    def _read(self, worker: Worker, most: int) -> None:
        """Takes what a worker has written, up to `most` bytes."""
        if worker.output_ended or (most == _READ_SIZE and self._log.full):
            return
        while most > 0:
            try:
                data = os.read(worker.output, _READ_SIZE)
            except BlockingIOError:
                return
            for line in worker.lines.feed(data):
                if not line.startswith(_NOISE):
                    self._log.worker(worker.rank, line)
            if not data:
                worker.output_ended = True
                return self._forget_output(worker)
            most -= len(data)

    def _forget_output(self, worker: Worker) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(worker.output)

    def _forget_process(self, worker: Worker) -> None:
        descriptor = self._process_descriptors.pop(worker.rank, None)
        if descriptor is not None:
            self._selector.unregister(descriptor)
            os.close(descriptor)
