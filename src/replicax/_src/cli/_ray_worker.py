"""`RayWorker`: an actor that starts and ends the process of one worker, wherever Ray places it.

The worker is a process of its own, as with `replicax launch` on one host: JAX starts again in each
generation, it ends with all that it has started, and when the actor dies, however it dies, so does
the worker. The actor stays, generation after generation. Ray calls its methods one at a time.
"""

import dataclasses
import os
import selectors
import socket
import time
from collections.abc import Mapping
from typing import final

from replicax._src.cli._errand import Errand, KeptPrograms
from replicax._src.cli._node import free_addresses
from replicax._src.cli._options import LaunchOptions
from replicax._src.cli._workers import LocalWorkers
from replicax._src.cluster import imported_ray

# The launcher's settings of these count more than those of the node; of all others, the node's do.
_OF_THE_LAUNCHER = ("GLOO_", "JAX_", "KERAS_", "NCCL_", "PYTHONUNBUFFERED", "REPLICAX_", "XLA_")
# Ray has given the actor its GPUs, and knows its own settings.
_OF_THE_NODE = ("CUDA_VISIBLE_DEVICES", "RAY_")


@final
@dataclasses.dataclass
class Report:
    """What has happened since the last report."""

    lines: list[bytes] = dataclasses.field(default_factory=list)
    """Of the worker's output."""
    said: list[str] = dataclasses.field(default_factory=list)
    """By what watches over the process."""
    status: int | None = None
    """How the process ended, if it has ended on its own: negative for a signal."""
    outcome: bytes | None = None
    """What the process has left as its result."""


@final
class RayWorker:
    """Starts one worker process after the other.

    Args:
      options: What to run.
      environment: Of the launcher.
      folder: In which the launcher was started.
    """

    def __init__(
        self, options: LaunchOptions, environment: Mapping[str, str], folder: str | None
    ) -> None:
        self._options = options
        self._environment = _merged(os.environ, environment)
        self._folder = folder
        self._programs = KeptPrograms(self._environment) if options.max_restarts else None
        self._errand = None if options.payload is None else Errand(options.payload)
        self._selector = selectors.DefaultSelector()
        self._workers = LocalWorkers(self._selector, self, self._exited)
        self._report = Report()
        self._rank = 0

    def arrive(self) -> str:
        """Returns the address of the next process."""
        return free_addresses(imported_ray().util.get_node_ip_address(), 1)[0]

    def start(self, rank: int, environment: Mapping[str, str]) -> None:
        """Starts the worker of a generation; `environment` says who it is."""
        self._rank, self._report = rank, Report()
        told = {**self._environment, **environment}
        if self._errand is not None:
            told.update(self._errand.environment_of(rank))
        self._go_to_the_script()
        self._workers.start(rank, self._options.command, told)

    def poll(self, seconds: float) -> Report:
        """Waits until something has happened, for a while at most, and returns what."""
        end = time.monotonic() + seconds
        while not self._has_news and (left := end - time.monotonic()) > 0:
            often = 0.02 if self._workers.needs_polling else left
            for key, _ in self._selector.select(min(left, often)):
                if key.fd in self._selector.get_map():
                    key.data()
            self._workers.reap()
        return self._taken()

    def signal(self, number: int) -> None:
        """Sends a signal to the process."""
        self._workers.signal(number)

    def renew(self) -> tuple[Report, str]:
        """Ends the process with all that it has started; returns its report, and an address."""
        self._workers.end()
        report = self._taken()
        if self._errand is not None:
            report.outcome = self._errand.outcome(self._rank)
        return report, self.arrive()

    def close(self) -> Report:
        """Ends the process, and leaves nothing behind."""
        self._workers.close()
        for folder in (self._programs, self._errand):
            if folder is not None:
                folder.close()
        return self._taken()

    # --- what `LocalWorkers` calls ---------------------------------------------------------------

    full = False
    """The launcher asks for no more when it has too much."""

    def worker(self, rank: int, line: bytes) -> None:
        """Takes a line of the worker."""
        self._report.lines.append(line)

    def say(self, text: str) -> None:
        """Takes a line for the launcher's log."""
        self._report.said.append(f"{text} (on {socket.gethostname()})")

    def _exited(self, rank: int, status: int) -> None:
        self._report.status = status
        if self._errand is not None:
            self._report.outcome = self._errand.outcome(rank)

    @property
    def _has_news(self) -> bool:
        return bool(self._report.lines or self._report.said) or self._report.status is not None

    def _taken(self) -> Report:
        report, self._report = self._report, Report()
        return report

    def _go_to_the_script(self) -> None:
        """Makes the launcher's folder this process's, where there is such a folder.

        Elsewhere it is the folder that Ray has unpacked for the job (`working_dir`).
        """
        script = self._options.command[0]
        here = [self._folder] if self._folder is not None else []
        for folder in (*here, os.getcwd()):
            if script.startswith("-") or os.path.isfile(os.path.join(folder, script)):
                if os.path.isdir(folder):
                    os.chdir(folder)
                    return
        raise FileNotFoundError(
            f"{socket.gethostname()} has no file {script!r} in {self._folder} or {os.getcwd()}. "
            "Put the script where all nodes see it, or have Ray copy its folder: `ray job submit "
            "--working-dir . -- replicax launch --ray ...`."
        )


def _merged(node: Mapping[str, str], launcher: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a node, with what the launcher's has besides.

    >>> merged = _merged({"HOME": "/a", "JAX_X": "1"}, {"HOME": "/b", "JAX_X": "2", "EPOCHS": "3"})
    >>> sorted(merged.items())
    [('EPOCHS', '3'), ('HOME', '/a'), ('JAX_X', '2')]
    """
    given = {name: text for name, text in launcher.items() if not name.startswith(_OF_THE_NODE)}
    first = {name: text for name, text in given.items() if name.startswith(_OF_THE_LAUNCHER)}
    return {**given, **node, **first}
