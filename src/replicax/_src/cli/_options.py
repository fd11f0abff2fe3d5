"""What a launch is told: how many workers, how often to restart, how long to wait for what.

A bad value fails here, when the options are made, with what to write instead. The command line is
read in `_arguments.py`; the options are used in `_launch.py` and `_member.py`.
"""

import dataclasses
import re
from typing import NamedTuple, final

from replicax._src._errors import ClusterConfigError
from replicax._src._local_path import is_address
from replicax._src.cli._log import WorkerFiles
from replicax._src.cluster import reachable_host, split_address
from replicax._src.cluster.control import Settings

KEY_VARIABLE = "REPLICAX_LAUNCH_KEY"
HOW_TO_GIVE_A_KEY = (
    f"Start all launchers with the same key: --key, or {KEY_VARIABLE} in the environment."
)


_NUMBER = r"\d+(?:\.\d*)?(?:e[+-]?\d+)?"
_TRAP = re.compile(rf"finite|bits|copies_every=[1-9]\d*|(?:bound|slower_than)={_NUMBER}")


class Usage(ValueError):
    """The command line cannot be right; the text says what to write instead."""


class Range(NamedTuple):
    """From `least` to `most` of something; both ends are allowed."""

    least: int
    most: int

    @classmethod
    def parse(cls, text: str, option: str) -> "Range":
        """Reads `4`, or `2:4`."""
        parts = text.split(":")
        if len(parts) > 2 or not all(part.isascii() and part.isdigit() for part in parts):
            raise Usage(
                f"{option} {text}: expected a number, as in `{option} 4`, or the least and the "
                f"most, as in `{option} 2:4`."
            )
        numbers = [int(part) for part in parts]
        if not 1 <= numbers[0] <= numbers[-1]:
            raise Usage(
                f"{option} {text}: both numbers must be at least 1, and the first not above the "
                f"second, as in `{option} 2:4`."
            )
        return cls(numbers[0], numbers[-1])

    def __str__(self) -> str:
        return str(self.most) if self.least == self.most else f"{self.least}:{self.most}"


@final
@dataclasses.dataclass(frozen=True)
class LaunchOptions:
    """The options of `replicax launch`, checked."""

    command: tuple[str, ...]
    """What each worker runs after `python`: a script, or `-m` and a module, with arguments."""
    workers: Range = Range(1, 1)
    """Workers on this host."""
    devices_per_worker: int | None = None
    max_restarts: int = 0
    stall_timeout: float = 600.0
    """Seconds without any progress after which the workers are stuck; 0 turns the check off."""
    join_timeout: float = Settings.join_timeout
    """Seconds to wait for workers, and for the launchers of other nodes, to arrive."""
    grace_period: float = 30.0
    """Seconds that the workers have to save and leave when they are told to end."""
    nodes: Range = Range(1, 1)
    node_rank: int = 0
    coordinator: str | None = None
    """Where the launcher of node 0 listens for those of the other nodes, as `host:port`."""
    key: str | None = dataclasses.field(default=None, repr=False)
    """What all launchers of a job know and others do not; None: nobody is asked for it."""
    shared_folder: str | None = None
    """Where the launchers agree on a new leader when theirs is lost; None: they end with it."""
    log_dir: str | None = None
    """A folder for a file with the lines of each worker, beside the combined log."""
    record: str | None = None
    """A folder in which the steps of the program are recorded."""
    traps: str = ""
    """What is looked for in these steps."""
    ray: str | None = None
    """Where Ray is, if the workers are to run there; "" finds it, or starts one."""
    payload: bytes | None = dataclasses.field(default=None, repr=False)
    """What is handed to each worker as a file; see `_errand.py`."""

    def __post_init__(self) -> None:
        if not self.command:
            raise Usage("nothing to run: name a script, as in `replicax launch train.py`.")
        if self.devices_per_worker is not None:
            self._check_at_least("--devices-per-worker", self.devices_per_worker, 1)
        self._check_at_least("--max-restarts", self.max_restarts, 0)
        self._check_at_least("--stall-timeout", self.stall_timeout, 0)
        if not self.join_timeout > 0:
            raise Usage(f"--join-timeout {self.join_timeout:g}: expected more than 0 seconds.")
        self._check_at_least("--grace-period", self.grace_period, 0)
        self._check_folders()
        self._check_nodes()
        self._check_traps()
        if self.ray is not None:
            self._check_ray(self.ray)

    def coordinator_address(self) -> tuple[str, int]:
        """Returns host and port of `coordinator`, as all nodes reach it."""
        host, port = split_address(self.coordinator or "")
        return reachable_host(host), port

    def worker_files(self) -> WorkerFiles | None:
        """Returns where the lines of each worker go, besides the combined log.

        Raises:
          Usage: the folder cannot be made.
        """
        if self.log_dir is None:
            return None
        try:
            return WorkerFiles(self.log_dir)
        except OSError as error:
            raise Usage(
                f"--log-dir {self.log_dir}: {error.strerror or error}. Name a folder that can be "
                "written to."
            ) from None

    def _check_at_least(self, option: str, value: float, least: float) -> None:
        if not value >= least:  # also NaN
            raise Usage(f"{option} {value:g}: expected {least} or more.")

    def _check_folders(self) -> None:
        folders = {
            "--log-dir": self.log_dir,
            "--record": self.record,
            "--shared-folder": self.shared_folder,
        }
        for option, folder in folders.items():
            if folder is not None and is_address(folder):
                raise Usage(
                    f"{option} {folder}: expected a folder of the file system, which may be one "
                    "that is mounted; the address of a store is none."
                )

    def _check_traps(self) -> None:
        if self.record == "":
            raise Usage("--record: name a folder, which all workers see.")
        if self.traps and self.record is None:
            raise Usage("--traps without --record: say where to record, as in `--record DIR`.")
        for word in self.traps.replace(",", " ").split():
            if not _TRAP.fullmatch(word):
                raise Usage(
                    f"--traps {word}: expected some of finite, bits, bound=1e6, copies_every=100 "
                    "and slower_than=10, separated by commas."
                )

    def _check_ray(self, address: str) -> None:
        if self.nodes.most > 1:
            raise Usage(
                "--ray with --nodes: Ray knows its nodes, and one launcher starts the workers on "
                "all of them. Leave out --nodes, and write all workers of the job in --workers."
            )
        if address.startswith("ray://"):
            raise Usage(
                f"--ray {address}: workers must be able to reach the launcher, which a client of "
                "Ray is outside of the cluster for. Start it on a node of the cluster, for example "
                "with `ray job submit -- replicax launch --ray ...`."
            )

    def _check_nodes(self) -> None:
        if self.key == "":
            raise Usage("--key: it is empty. Give a text that is hard to guess, or leave it out.")
        if self.nodes.most == 1:
            if self.node_rank or self.coordinator or self.shared_folder is not None:
                raise Usage(
                    "--node-rank, --coordinator and --shared-folder are for several nodes: say how "
                    "many there are, "
                    "as in `--nodes 2 --node-rank 0 --coordinator host0:12345`, the same on every "
                    "node but for the rank."
                )
            return
        if not 0 <= self.node_rank < self.nodes.most:
            raise Usage(
                f"--node-rank {self.node_rank}: with --nodes {self.nodes}, the nodes are "
                f"0 to {self.nodes.most - 1}."
            )
        try:
            split_address(self.coordinator or "", "This one")
        except ClusterConfigError as error:
            raise Usage(
                f"--coordinator {self.coordinator}: several nodes need the address of node 0, as "
                "every node can reach it: host and free port, as in `--coordinator host0:12345` "
                f"or `--coordinator [2001:db8::1]:12345`.{f' {error}' if self.coordinator else ''}"
            ) from None
        if self.shared_folder is not None and not self.max_restarts:
            raise Usage(
                f"--shared-folder {self.shared_folder} without --max-restarts: a job that may not "
                "start again ends with its first host. Write how often it may, as in "
                "`--max-restarts 10`."
            )
        if self.workers.least != self.workers.most:
            raise Usage(
                f"--workers {self.workers} with --nodes {self.nodes}: over several nodes it is the "
                f"nodes that come and go. Write `--workers {self.workers.most}` for the workers of "
                "each node, and `--nodes MIN:MAX`."
            )
