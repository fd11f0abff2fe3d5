"""A node: a host with a launcher and its share of the workers. Here: this one, and its launcher.

`NodePlan` is all that a launcher must know to start its workers of a generation, wherever it runs.
Nodes elsewhere are in `_other_nodes.py`; what such a node does for itself is in `_member.py`.
"""

import abc
import dataclasses
import json
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, final

from replicax._src._typing import override
from replicax._src.cli._devices import device_environments
from replicax._src.cli._event_loop import EventLoop
from replicax._src.cli._log import Log
from replicax._src.cli._options import KEY_VARIABLE, LaunchOptions, Usage
from replicax._src.cli._workers import LocalWorkers
from replicax._src.cluster.control import NotThisMachine, bind, joined, listening_host

# After Ctrl-C, workers have this long to leave on their own.
_SECONDS_AFTER_CTRL_C = 3.0


@final
@dataclasses.dataclass(frozen=True)
class NodePlan:
    """One generation, as a node needs it."""

    cluster: list[str]
    """The addresses of all workers, by rank."""
    environment: dict[str, str]
    """Where the control server is, and the key of the generation."""
    seats: list[tuple[int, int]]
    """(place on this node, rank in the job) of each worker that this node starts."""

    def environment_of(self, rank: int) -> dict[str, str]:
        """Returns the variables that tell a worker who it is."""
        place = {
            "cluster": {"worker": self.cluster},
            "task": {"type": "worker", "index": rank},
        }
        return {**self.environment, "TF_CONFIG": json.dumps(place)}


class JobNode(Protocol):
    """What the launcher that leads asks of a node, its own or another."""

    rank: int
    addresses: list[str] | None
    """An address for each worker place, new in each generation; None while it is not ready."""

    def start(self, plan: NodePlan) -> None:
        """Starts its workers of a generation."""
        ...

    def signal(self, number: int) -> None:
        """Sends a signal to its workers; after SIGKILL it makes itself ready again."""
        ...


@final
class LocalNode(JobNode):
    """The workers of this host."""

    def __init__(
        self,
        options: LaunchOptions,
        loop: EventLoop,
        log: Log,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.rank = options.node_rank
        self.addresses: list[str] | None = None
        self._host = ""
        self._on_exit: Callable[[int, int], None] = lambda rank, status: None
        self._options = options
        self._log = log
        self._environment = dict(os.environ if environment is None else environment)
        self._environment.pop(KEY_VARIABLE, None)  # it is between launchers
        self._environment["PYTHONUNBUFFERED"] = "1"
        self._environment["REPLICAX_JOIN_TIMEOUT"] = f"{options.join_timeout:g}"
        self._devices = device_environments(
            options.workers.most, options.devices_per_worker, self._environment
        )
        self._programs = self._keep_programs() if options.max_restarts else None
        self.workers = LocalWorkers(
            loop.selector, log, lambda rank, status: self._on_exit(rank, status)
        )

    def serve(self, host: str, on_exit: Callable[[int, int], None]) -> None:
        """Makes it ready for a leader.

        Args:
          host: The address by which the others reach this host.
          on_exit: Called with the rank and the status of a worker that has ended on its own.
        """
        self._host, self._on_exit = host, on_exit
        self.addresses = self._new_addresses()

    def _keep_programs(self) -> str | None:
        """Lets later generations find what the first one has compiled; returns where, if so."""
        if "JAX_COMPILATION_CACHE_DIR" in self._environment:
            return None  # the user's own, which also other jobs may share
        # For this user's eyes only: JAX runs what it finds there.
        folder = tempfile.mkdtemp(prefix="replicax-programs-")
        self._environment["JAX_COMPILATION_CACHE_DIR"] = folder
        # Small programs count as well: there are many of them before the first step.
        for name, value in (("MIN_COMPILE_TIME_SECS", "0"), ("MIN_ENTRY_SIZE_BYTES", "-1")):
            self._environment.setdefault(f"JAX_PERSISTENT_CACHE_{name}", value)
        return folder

    def close(self) -> None:
        """Ends the workers, and leaves nothing behind."""
        self.workers.close()
        if self._programs is not None:
            shutil.rmtree(self._programs, ignore_errors=True)

    @override
    def start(self, plan: NodePlan) -> None:
        """Starts this host's workers of a generation."""
        self.addresses = None
        for place, rank in plan.seats:
            environment = {
                **self._environment,
                **self._devices[place],
                **plan.environment_of(rank),
            }
            self.workers.start(rank, self._options.command, environment)

    @override
    def signal(self, number: int) -> None:
        """Sends a signal to the workers; after SIGKILL they are gone, and new ones may start."""
        if number == signal.SIGKILL:
            self.workers.end()
            self.addresses = self._new_addresses()
        else:
            self.workers.signal(number)

    def _new_addresses(self) -> list[str]:
        return free_addresses(self._host, self._options.workers.most)


class Launcher(abc.ABC):
    """The launcher of this host, whether it leads the job or not.

    Args:
      options: What to run, and how.
      log: Where the lines of all workers go; by default, to standard output.
      environment: What the environments of the workers start from; by default, this process's.
      loop: The launcher's loop; by default, a new one.
    """

    def __init__(
        self,
        options: LaunchOptions,
        log: Log | None = None,
        environment: Mapping[str, str] | None = None,
        loop: EventLoop | None = None,
    ) -> None:
        self._options = options
        self._environment = environment
        self._log = log or Log(files=options.worker_files())
        self._loop = loop or EventLoop()

    def run(self) -> int:
        """Runs until the job ends; returns its exit status."""
        try:
            with self._loop:
                local = LocalNode(self._options, self._loop, self._log, self._environment)
                try:
                    status = self.take_part(local)
                finally:
                    local.close()
        finally:
            self._log.close(timeout=60.0 if self._loop.told_to_end is None else 2.0)
        return 1 if status is None else status

    @abc.abstractmethod
    def take_part(self, local: LocalNode) -> int | None:
        """Runs until the job ends; returns its exit status, or None if another leads it now."""

    def _how_to_end(self, told: int) -> tuple[signal.Signals, float]:
        """Returns the signal for the workers of a launcher that was told to end, and their time."""
        if told == signal.SIGTERM:
            return signal.SIGTERM, self._options.grace_period
        return signal.SIGINT, _SECONDS_AFTER_CTRL_C


def free_addresses(host: str, number: int) -> list[str]:
    """Returns addresses on this host with ports that are free now, all different."""
    sockets: list[socket.socket] = []
    try:
        for _ in range(number):
            sockets.append(bind(listening_host(host), 0))
        return [joined(host, each.getsockname()[1]) for each in sockets]
    except NotThisMachine as error:
        raise Usage(f"--coordinator: this launcher is to listen there, but {error}.") from None
    finally:
        for each in sockets:
            each.close()


def seats_for(
    nodes: Sequence[JobNode], places: Mapping[int, Sequence[int]]
) -> dict[int, list[tuple[int, int]]]:
    """Returns which places of which nodes work, and their ranks: in the order of the nodes.

    >>> class N: rank = 0
    >>> seats_for([N()], {0: [0, 2, 3]})
    {0: [(0, 0), (2, 1), (3, 2)]}
    """
    seats: dict[int, list[tuple[int, int]]] = {}
    rank = 0
    for node in nodes:
        seats[node.rank] = []
        for place in places[node.rank]:
            seats[node.rank].append((place, rank))
            rank += 1
    return seats
