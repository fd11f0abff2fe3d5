"""A node: a host with a launcher and its share of the workers. Here: this one, and its launcher.

`NodePlan` is all that a launcher must know to start its workers of a generation, wherever it runs.
Nodes elsewhere are in `_other_nodes.py`; what such a node does for itself is in `_member.py`.
"""

import abc
import dataclasses
import json
import os
import resource
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias, final

from replicax._src._local_path import absolute_path
from replicax._src._typing import override
from replicax._src.cli._devices import device_environments
from replicax._src.cli._errand import Errand, KeptPrograms
from replicax._src.cli._event_loop import EventLoop
from replicax._src.cli._log import Log
from replicax._src.cli._options import KEY_VARIABLE, LaunchOptions, Usage
from replicax._src.cli._workers import LocalWorkers
from replicax._src.cluster.control import NotThisMachine, bind, joined, listening_host

# After Ctrl-C, workers have this long to leave on their own.
_SECONDS_AFTER_CTRL_C = 3.0
# Of a launcher, and for each worker: its output, its process, and its connection.
_OPEN_FILES = 16
_OPEN_FILES_PER_WORKER = 3

OnExit: TypeAlias = Callable[[int, int], None]
OnLoss: TypeAlias = Callable[[int, str], None]


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


class OwnNode(JobNode, abc.ABC):
    """The workers that this launcher starts itself: on this host, or wherever Ray places them.

    Everything is called in the launcher's thread.
    """

    host: str
    """The address by which its workers reach this launcher."""

    @property
    @abc.abstractmethod
    def places(self) -> Sequence[int]:
        """Where a worker can be started now, of `workers.most` places."""

    @property
    @abc.abstractmethod
    def running(self) -> bool:
        """Whether a worker has not ended yet."""

    @property
    @abc.abstractmethod
    def needs_polling(self) -> bool:
        """Whether the end of a worker does not wake the loop."""

    @property
    @abc.abstractmethod
    def waits_for(self) -> str:
        """What is missing while it has no addresses, in words; "" if nothing is."""

    @property
    @abc.abstractmethod
    def trouble(self) -> str:
        """Why it will never have addresses; "" while it may."""

    @abc.abstractmethod
    def serve(self, host: str, on_exit: OnExit, on_loss: OnLoss) -> None:
        """Makes it ready for a leader.

        Args:
          host: The address by which other launchers reach this host.
          on_exit: Called with the rank and the status of a worker that has ended on its own.
          on_loss: Called with the rank of a worker that is lost with its machine, and how.
        """

    @abc.abstractmethod
    def make_do(self) -> None:
        """Is ready with the places that there are, if they are enough: it has waited too long."""

    @abc.abstractmethod
    def reap(self) -> None:
        """Reports the workers that have ended."""

    @abc.abstractmethod
    def outcome(self, rank: int) -> bytes | None:
        """Returns what a worker of this generation has left as its result; see `_errand.py`."""

    @abc.abstractmethod
    def end(self) -> None:
        """Ends all workers, with everything they have started."""

    @abc.abstractmethod
    def limit(self, seconds: float) -> None:
        """Has the workers ended so many seconds from now, even if this process cannot do it."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends the workers, and leaves nothing behind."""


def base_environment(
    options: LaunchOptions, environment: Mapping[str, str] | None
) -> dict[str, str]:
    """Returns what the environment of each worker starts from; None: that of this process."""
    base = dict(os.environ if environment is None else environment)
    base.pop(KEY_VARIABLE, None)  # it is between launchers
    base["PYTHONUNBUFFERED"] = "1"
    if options.record is not None:
        base["REPLICAX_RECORD"] = absolute_path(options.record, "--record")
        base["REPLICAX_RECORD_TRAPS"] = options.traps
    base["REPLICAX_JOIN_TIMEOUT"] = f"{options.join_timeout:g}"
    return base


@final
class LocalNode(OwnNode):
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
        self.host = ""
        self._on_exit: OnExit = lambda rank, status: None
        self._options = options
        _check_open_files(options.workers.most)
        self._environment = base_environment(options, environment)
        self._devices = device_environments(
            options.workers.most, options.devices_per_worker, self._environment
        )
        self._programs = KeptPrograms(self._environment) if options.max_restarts else None
        self._errand = None if options.payload is None else Errand(options.payload)
        made = (self._programs, self._errand)
        self._workers = LocalWorkers(
            loop.selector,
            log,
            lambda rank, status: self._on_exit(rank, status),
            [each.folder for each in made if each is not None and each.folder is not None],
        )

    @property
    @override
    def places(self) -> Sequence[int]:
        return range(self._options.workers.most)

    @property
    @override
    def running(self) -> bool:
        return bool(self._workers.running)

    @property
    @override
    def needs_polling(self) -> bool:
        return self._workers.needs_polling

    @property
    @override
    def waits_for(self) -> str:
        return ""

    @property
    @override
    def trouble(self) -> str:
        return ""

    @override
    def serve(self, host: str, on_exit: OnExit, on_loss: OnLoss) -> None:
        self.host, self._on_exit = host, on_exit
        self.addresses = self._new_addresses()

    @override
    def make_do(self) -> None:
        """There is nothing that it waits for."""

    @override
    def reap(self) -> None:
        self._workers.reap()

    @override
    def outcome(self, rank: int) -> bytes | None:
        return None if self._errand is None else self._errand.outcome(rank)

    @override
    def end(self) -> None:
        self._workers.end()

    @override
    def limit(self, seconds: float) -> None:
        self._workers.limit(seconds)

    @override
    def close(self) -> None:
        self._workers.close()
        if self._programs is not None:
            self._programs.close()
        if self._errand is not None:
            self._errand.close()

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
            if self._errand is not None:
                environment.update(self._errand.environment_of(rank))
            self._workers.start(rank, self._options.command, environment)

    @override
    def signal(self, number: int) -> None:
        """Sends a signal to the workers; after SIGKILL they are gone, and new ones may start."""
        if number == signal.SIGKILL:
            self._workers.end()
            self.addresses = self._new_addresses()
        else:
            self._workers.signal(number)

    def _new_addresses(self) -> list[str]:
        return free_addresses(self.host, self._options.workers.most)


def _check_open_files(workers: int) -> None:
    """Raises Usage if the launcher may not open as many files as its workers need."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _OPEN_FILES + _OPEN_FILES_PER_WORKER * workers
    if allowed != resource.RLIM_INFINITY and needed > allowed:
        raise Usage(
            f"--workers {workers}: the launcher needs {needed} open files for them, and may have "
            f"{allowed}. Allow more with `ulimit -n {needed}`, or start fewer workers."
        )


NewNode: TypeAlias = Callable[[LaunchOptions, EventLoop, Log, Mapping[str, str] | None], OwnNode]


class Launcher(abc.ABC):
    """The launcher of this host, whether it leads the job or not.

    Args:
      options: What to run, and how.
      log: Where the lines of all workers go; by default, to standard output.
      environment: What the environments of the workers start from; by default, this process's.
      loop: The launcher's loop; by default, a new one.
      new_node: Makes the node whose workers this launcher starts; by default, that of this host.
    """

    def __init__(
        self,
        options: LaunchOptions,
        log: Log | None = None,
        environment: Mapping[str, str] | None = None,
        loop: EventLoop | None = None,
        new_node: NewNode = LocalNode,
    ) -> None:
        self._options = options
        self._environment = environment
        self._new_node = new_node
        self._log = log or Log(files=options.worker_files())
        self._loop = loop or EventLoop()

    def run(self) -> int:
        """Runs until the job ends; returns its exit status."""
        try:
            with self._loop:
                local = self._new_node(self._options, self._loop, self._log, self._environment)
                try:
                    status = self.take_part(local)
                finally:
                    local.close()
        finally:
            self._log.close(timeout=60.0 if self._loop.told_to_end is None else 2.0)
        return 1 if status is None else status

    @abc.abstractmethod
    def take_part(self, local: OwnNode) -> int | None:
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
