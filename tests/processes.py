"""Real worker processes for tests: started, listened to, hurt on purpose, and never left behind.

    with workers("tests.some.module:train", count=3) as job:
        job.wait_for(1, "step 5")
        job.kill(1)
        job.expect_exit(0, status=1)

A program is a Python file, a module, a function of a module ("module:function", or the function
itself). It finds `TF_CONFIG` for a cluster on loopback, and this checkout on its path. What it
hands to `result(name, value)` arrives in `job[rank].results`. Where it can, a worker is a fork of
a process with the imports behind it (`tests/forks.py`).
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Any, TypeAlias

from .forks import PipedFork, fork
from .in_worker import RESULTS
from .in_worker import result as result
from .in_worker import say as say
from .quick_compiles import XLA_FLAGS, programs_of_this_run

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT = 600.0
"""Seconds that a whole job may take unless its test says otherwise: for very busy machines."""

_MARK = "REPLICAX_TEST_JOB"
# What the machine or another test may have set, and would reach into a job.
_FOREIGN = ("TF_CONFIG", "REPLICAX_", "JAX_", "XLA_", "SLURM_", "KUBERNETES_", "CLOUD_TPU_", "TPU_")
# Below the range from which the system serves connections: nobody is given one of these by chance.
_PORTS = range(12_000, 31_000)
_SECONDS_FOR_STACKS = 20.0
_SECONDS_FOR_READERS = 20.0
_SHOWN_LINES = 40

Program: TypeAlias = "str | Path | Callable[[], object]"
Environment: TypeAlias = Mapping[str, "str | None"]


# Clusters.


def free_addresses(count: int) -> list[str]:
    """Returns that many loopback addresses with ports on which nobody listens.

    No other process of tests gets them for a while: a socket holds each. Servers that set
    SO_REUSEADDR, as ours and those of gRPC do, can listen beside it.
    """
    ports = filter(_is_free, SystemRandom().sample(_PORTS, len(_PORTS)))
    return [f"127.0.0.1:{port}" for port in itertools.islice(ports, count)]


_HOLDERS: deque[socket.socket] = deque()
_MOST_HOLDERS = 100


def _is_free(port: int) -> bool:
    """Says whether nobody has bound a port; then it is held."""
    holder = socket.socket()
    try:
        holder.bind(("127.0.0.1", port))
    except OSError:
        holder.close()
        return False
    # Not before: it would have been bound beside the holder of another process.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _HOLDERS.append(holder)
    if len(_HOLDERS) > _MOST_HOLDERS:
        _HOLDERS.popleft().close()
    try:
        socket.create_server(holder.getsockname()).close()
    except OSError:  # this system lets nobody listen beside a holder
        _HOLDERS.pop().close()
    return True


@atexit.register
def _release() -> None:
    while _HOLDERS:
        _HOLDERS.pop().close()


def tf_config(addresses: Sequence[str], rank: int, *, chief: bool = False) -> str:
    """Describes a cluster of workers to one of them; the first is "chief" where that is asked."""
    if not chief:
        cluster = {"worker": list(addresses)}
        task = {"type": "worker", "index": rank}
    else:
        cluster = {"chief": list(addresses[:1]), "worker": list(addresses[1:])}
        task = {"type": "worker", "index": rank - 1} if rank else {"type": "chief", "index": 0}
    return json.dumps({"cluster": cluster, "task": task})


# Jobs.


def workers(
    program: Program,
    count: int,
    *,
    devices: int = 1,
    arguments: Sequence[str] = (),
    environment: Environment | Callable[[int], Environment] | None = None,
    addresses: Sequence[str] | None = None,
    chief: bool = False,
    absent: Collection[int] = (),
    timeout: float = TIMEOUT,
) -> Job:
    """Returns a job of worker processes; they start when it is entered.

    Args:
        program: A file, a module, "module:function", or a function that a module has by its name.
        count: How many workers the cluster has.
        devices: How many virtual CPU devices each finds.
        arguments: What follows the program on its command line.
        environment: More variables for all workers, or for each by its rank; None removes one.
        addresses: Where the workers are to listen; free ports of loopback by default.
        chief: Whether the first worker is called chief.
        absent: Ranks that are not started yet (`Job.start` does) or never.
        timeout: Seconds for the whole job.
    """
    places = addresses or free_addresses(count)
    extra = environment if callable(environment) else (lambda _: environment or {})
    return Job(
        [[sys.executable, "-m", "tests.in_worker", _spell(program), *arguments]] * count,
        [
            {
                "TF_CONFIG": tf_config(places, rank, chief=chief),
                "JAX_NUM_CPU_DEVICES": str(devices),
                **programs_of_this_run(),
                **extra(rank),
            }
            for rank in range(count)
        ],
        absent=absent,
        timeout=timeout,
        forked=True,
        keras=_imports_keras(_spell(program)),
    )


def command(
    arguments: Sequence[str], *, environment: Environment | None = None, timeout: float = TIMEOUT
) -> Job:
    """Returns a job of one process, such as a launcher; whatever it starts ends with the job."""
    return Job([list(arguments)], [environment or {}], timeout=timeout)


def run_workers(program: Program, count: int, **options: Any) -> list[Worker]:
    """Runs a job of workers to its end, at which all must have left with status 0."""
    with workers(program, count, **options) as job:
        job.expect_exit(status=0)
    return list(job)


class Worker:
    """One process of a job: what it printed, reported and left with."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.lines: list[tuple[str, str]] = []
        """("stdout" or "stderr", text) in the order in which they arrived."""
        self.pid: int | None = None
        self.status: int | None = None
        """The exit status; minus the number of the signal that killed it; None before the end."""
        self.started = 0.0
        self.ended: float | None = None
        """The time of the end, as `time.monotonic` has it."""
        self._file = Path()
        self._kept: list[tuple[str, Any]] | None = None

    @property
    def stdout(self) -> str:
        """Everything from its standard output so far."""
        return self._text("stdout")

    @property
    def stderr(self) -> str:
        """Everything from its standard error so far."""
        return self._text("stderr")

    @property
    def output(self) -> str:
        """Everything that it printed so far."""
        return "".join(f"{text}\n" for _, text in list(self.lines))

    @property
    def seconds(self) -> float:
        """How long it ran, or has run so far."""
        return (self.ended or time.monotonic()) - self.started

    @property
    def results(self) -> dict[str, Any]:
        """What it has reported so far, by name; the last where a name came more than once."""
        return dict(self._reported())

    def history(self, name: str) -> list[Any]:
        """Everything that it has reported under one name, in order."""
        return [value for given, value in self._reported() if given == name]

    def _text(self, stream: str) -> str:
        return "".join(f"{text}\n" for source, text in list(self.lines) if source == stream)

    def _reported(self) -> list[tuple[str, Any]]:
        if self._kept is not None:
            return self._kept
        if not self._file.exists():
            return []
        # Whoever was killed while writing has left half a line.
        lines = self._file.read_text(encoding="utf-8").split("\n")[:-1]
        return [(entry["name"], entry["value"]) for entry in map(json.loads, lines)]

    def __str__(self) -> str:
        state = "not started" if self.pid is None else "still running"
        if self.status is not None:
            state = f"left with status {self.status} after {self.seconds:.1f} s"
        shown = [f"  {source}| {text}" for source, text in self.lines[-_SHOWN_LINES:]]
        return "\n".join([f"worker {self.rank} ({state}):", *shown])


class Job(Sequence[Worker]):
    """Processes that live no longer than the `with` block around them. `job[rank]` is one."""

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        environments: Sequence[Environment],
        *,
        absent: Collection[int] = (),
        timeout: float = TIMEOUT,
        forked: bool = False,
        keras: bool = False,
    ) -> None:
        """`forked` processes have JAX and replicax, and Keras too if that is said."""
        self._forked = forked
        self._keras = keras
        self._commands = commands
        self._environments = environments
        self._absent = absent
        self._timeout = timeout
        self._mark = f"{_MARK}={uuid.uuid4().hex}"
        self._workers = [Worker(rank) for rank in range(len(commands))]
        self._processes: dict[int, subprocess.Popen[bytes] | PipedFork] = {}
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._workers)

    def __getitem__(self, rank: Any) -> Any:
        return self._workers[rank]

    def __enter__(self) -> Job:
        self._folder = Path(tempfile.mkdtemp(prefix="replicax-job-"))
        self._end = time.monotonic() + self._timeout
        try:
            for rank in range(len(self)):
                if rank not in self._absent:
                    self.start(rank)
        except BaseException:
            self._clean_up()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._clean_up()

    def start(self, rank: int) -> None:
        """Starts one worker: one that was absent, or a new process in place of one that ended."""
        worker = self._workers[rank]
        assert worker.pid is None or worker.status is not None, f"worker {rank} still runs"
        worker._file = self._folder / f"results-{rank}.jsonl"
        worker.status = worker.ended = None
        worker.started = time.monotonic()
        process = self._launch(rank, self._environment(rank, worker._file))
        worker.pid = process.pid
        self._processes[rank] = process
        for stream in ("stdout", "stderr"):
            self._watch(self._read, worker, stream, getattr(process, stream))
        self._watch(self._await, worker, process)

    def _launch(
        self, rank: int, environment: dict[str, str]
    ) -> subprocess.Popen[bytes] | PipedFork:
        command = self._commands[rank]
        if self._forked:
            _, *arguments = command
            if process := fork(arguments, self._folder, environment, rank, self._keras):
                return process
        return subprocess.Popen(
            command,
            cwd=self._folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # its own process group: what it starts can be ended with it
        )

    # Waiting.

    def wait_for(
        self, rank: int, text: str | re.Pattern[str], *, timeout: float = 300.0, occurrence: int = 1
    ) -> str:
        """Returns the first (or n-th) line of a worker that has `text` in it, when it comes."""
        worker = self._workers[rank]
        find = text.search if isinstance(text, re.Pattern) else (lambda line: text in line)

        def found() -> list[str]:
            return [line for _, line in worker.lines if find(line)]

        def settled() -> bool:
            return len(found()) >= occurrence or worker.status is not None

        self._wait(settled, timeout, f"worker {rank} to print {text!r}")
        if len(matches := found()) < occurrence:
            self._fail(f"worker {rank} has ended without printing {text!r}")
        return matches[occurrence - 1]

    def prints(self, rank: int, text: str, within: float) -> bool:
        """Waits until a worker has printed a line with `text`, or has ended; whether it has."""
        worker = self._workers[rank]

        def settled() -> bool:
            return worker.status is not None or text in worker.output

        with self._changed:
            return self._changed.wait_for(settled, within)

    def expect_exit(
        self,
        ranks: int | Iterable[int] | None = None,
        *,
        status: int | Collection[int] | None = None,
    ) -> None:
        """Waits until workers have ended, and checks with which status.

        Args:
            ranks: One, several, or (None) all that were started.
            status: What each must have left with, or one of these; None takes any.
        """
        chosen = self._choose(ranks)
        self._wait(
            lambda: all(worker.status is not None for worker in chosen),
            None,
            f"the end of {_names(chosen)}",
        )
        expected = [status] if isinstance(status, int) else status
        wrong = [w for w in chosen if expected is not None and w.status not in expected]
        if wrong:
            self._fail(f"expected exit status {status}; {_names(wrong)} left with another")

    # Hurting.

    def signal(self, rank: int, number: signal.Signals) -> None:
        """Sends a signal to one worker."""
        self._processes[rank].send_signal(number)

    def kill(self, rank: int) -> None:
        """Kills a worker as the kernel would (SIGKILL)."""
        self.signal(rank, signal.SIGKILL)

    def stop(self, rank: int) -> None:
        """Stops a worker where it stands (SIGSTOP)."""
        self.signal(rank, signal.SIGSTOP)

    def resume(self, rank: int) -> None:
        """Lets a stopped worker go on (SIGCONT)."""
        self.signal(rank, signal.SIGCONT)

    def terminate(self, rank: int) -> None:
        """Asks a worker to leave, as a scheduler does (SIGTERM)."""
        self.signal(rank, signal.SIGTERM)

    def leftovers(self) -> list[int]:
        """Returns the processes that this job has started, at any depth, and that still live."""
        # The variables of a fork are not in `/proc`; its end is known all the same.
        found = [w.pid for w in self._workers if w.pid is not None and w.status is None]
        for entry in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if self._mark.encode() in entry.read_bytes().split(b"\0"):
                    found.append(int(entry.parent.name))
        return sorted(set(found))

    def expect_nothing_left(self, within: float = 200.0) -> None:
        """Waits until every process that this job has started, at any depth, is gone."""
        end = time.monotonic() + within
        while left := self.leftovers():
            if time.monotonic() > end:
                self._fail(f"after {within} s these processes still live: {left}")
            time.sleep(0.01)  # nobody tells of the end of another's child

    # The works.

    def _environment(self, rank: int, results: Path) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
        path = [str(ROOT / "src"), str(ROOT), *filter(None, [inherited.get("PYTHONPATH")])]
        mark, _, unique = self._mark.partition("=")
        own: dict[str, str | None] = {
            **inherited,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": XLA_FLAGS,
            "PYTHONPATH": os.pathsep.join(path),
            "PYTHONUNBUFFERED": "1",
            RESULTS: str(results),
            mark: unique,
            **self._environments[rank],
        }
        return {name: value for name, value in own.items() if value is not None}

    def _watch(self, target: Callable[..., None], worker: Worker, *arguments: Any) -> None:
        name = f"test-job-worker-{worker.rank}"
        thread = threading.Thread(target=target, args=(worker, *arguments), name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _read(self, worker: Worker, stream: str, pipe: Any) -> None:
        with pipe:
            for line in pipe:
                with self._changed:
                    worker.lines.append((stream, line.decode(errors="replace").rstrip("\r\n")))
                    self._changed.notify_all()

    def _await(self, worker: Worker, process: subprocess.Popen[bytes] | PipedFork) -> None:
        status = process.wait()
        with self._changed:
            worker.ended = time.monotonic()
            worker.status = status
            self._changed.notify_all()

    def _wait(self, settled: Callable[[], bool], timeout: float | None, what: str) -> None:
        left = self._end - time.monotonic()
        limit = left if timeout is None else min(timeout, left)
        with self._changed:
            if self._changed.wait_for(settled, max(0.0, limit)):
                return
        self._ask_for_stacks()
        self._fail(f"waited {limit:.1f} s in vain for {what}")

    def _ask_for_stacks(self) -> None:
        alive = [worker for worker in self._workers if worker.pid and worker.status is None]
        # A stack comes line by line; its outermost line, the program itself, is the last.
        seen = [len(worker.lines) for worker in alive]
        for worker in alive:
            with contextlib.suppress(ProcessLookupError):
                self._processes[worker.rank].send_signal(signal.SIGUSR1)
        with self._changed:
            self._changed.wait_for(
                lambda: all(
                    any("in <module>" in text for _, text in w.lines[n:])
                    for w, n in zip(alive, seen, strict=True)
                ),
                _SECONDS_FOR_STACKS,
            )

    def _choose(self, ranks: int | Iterable[int] | None) -> list[Worker]:
        if ranks is None:
            return [worker for worker in self._workers if worker.pid is not None]
        return [self._workers[rank] for rank in ([ranks] if isinstance(ranks, int) else ranks)]

    def _fail(self, problem: str) -> None:
        raise AssertionError("\n".join([problem, *map(str, self._workers)]))

    def _clean_up(self) -> None:
        for process in self._processes.values():
            _kill_group(process.pid)
        for pid in self.leftovers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for thread in self._threads:
            thread.join(_SECONDS_FOR_READERS)
        for worker in self._workers:
            worker._kept = worker._reported()
        shutil.rmtree(self._folder, ignore_errors=True)


def _kill_group(leader: int) -> None:
    # Not the number of another group by now: a leader that was not waited for keeps it, and one
    # that was leaves it to the group's last member.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _names(chosen: Sequence[Worker]) -> str:
    ranks = ", ".join(str(worker.rank) for worker in chosen)
    return f"worker {ranks}" if len(chosen) == 1 else f"workers {ranks}"


def _imports_keras(program: str) -> bool:
    """Returns whether the file of a program imports Keras."""
    spec = None if program.endswith(".py") else importlib.util.find_spec(program.partition(":")[0])
    source = program if spec is None else spec.origin
    return source is not None and "import keras" in Path(source).read_text(encoding="utf-8")


def _spell(program: Program) -> str:
    if callable(program):
        return f"{program.__module__}:{program.__qualname__}"
    return str(program)
