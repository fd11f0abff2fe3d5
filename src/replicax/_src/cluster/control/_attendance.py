"""The meeting of the workers: who has come, who has not, and on what they disagree.

No sockets here: the server puts in what was said, and asks for the verdict.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar, final

from replicax._src.cluster.control._types import Message, counted, listed

Value = TypeVar("Value")


@final
@dataclasses.dataclass(frozen=True)
class Hello:
    """What a worker says when it arrives."""

    worker: int
    addresses: tuple[str, ...]
    names: tuple[str, ...]
    generation: int
    pid: int
    host: str
    device_count: int | None
    versions: dict[str, str]
    coordinator: str | None

    def message(self) -> Message:
        """Returns the message for the wire."""
        return {"op": "hello", **dataclasses.asdict(self)}

    @classmethod
    def of(cls, message: Message) -> Hello:
        """Returns what a message from the wire says; ValueError if a stranger made it up."""
        try:
            hello = cls(
                worker=int(message["worker"]),
                addresses=tuple(map(str, message["addresses"])),
                names=tuple(map(str, message["names"])),
                generation=int(message["generation"]),
                pid=int(message["pid"]),
                host=str(message["host"]),
                device_count=None
                if message["device_count"] is None
                else int(message["device_count"]),
                versions={str(k): str(v) for k, v in dict(message["versions"]).items()},
                coordinator=message["coordinator"],
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a hello: {error}") from error
        if not 0 <= hello.worker < len(hello.addresses) == len(hello.names):
            raise ValueError("not a hello: the worker is not in its own cluster")
        if not isinstance(hello.coordinator, str | None):
            raise ValueError("not a hello: its coordinator is no address")
        return hello

    @property
    def process(self) -> str:
        """ "pid 12 on host"."""
        return f"pid {self.pid} on {self.host}"


@final
class Attendance:
    """Collects the hellos of a job of `workers` workers."""

    def __init__(self, workers: int, names: list[str]) -> None:
        self.workers = workers
        self.names = names
        self.hellos: dict[int, Hello] = {}
        self._short = [f"worker {worker}" for worker in range(workers)]
        self._twice: list[str] = []

    def arrive(self, hello: Hello) -> None:
        """Notes a worker; one that is there already is a mistake, which `problems` tells."""
        there = self.hellos.get(hello.worker)
        if there is not None:
            self._twice.append(
                f"{self.name(hello.worker)} was started twice, as {there.process} and as "
                f"{hello.process}. Give every process its own task index"
            )
            return
        self.hellos[hello.worker] = hello
        if hello.worker < self.workers and len(hello.names) == self.workers:
            for rank, (name, address) in enumerate(zip(hello.names, hello.addresses, strict=True)):
                if rank not in self.hellos or rank == hello.worker:
                    self.names[rank] = f"{name} ({address})"
                    self._short[rank] = name

    def leave(self, worker: int) -> None:
        """Forgets a worker that went away before the verdict: it may be started again."""
        self.hellos.pop(worker, None)

    def name(self, worker: int) -> str:
        """Returns "worker 2 (host:port)", as far as that is known."""
        return self.names[worker] if worker < len(self.names) else f"worker {worker}"

    def short_name(self, worker: int) -> str:
        """Returns the name without the address."""
        return self._short[worker] if worker < self.workers else f"worker {worker}"

    @property
    def complete(self) -> bool:
        """Whether all have come."""
        return all(worker in self.hellos for worker in range(self.workers))

    @property
    def missing(self) -> list[int]:
        """Those who have not come."""
        return [worker for worker in range(self.workers) if worker not in self.hellos]

    def absent_text(self, seconds: float) -> str:
        """Returns the error if somebody did not come in time."""
        came = self.workers - len(self.missing)
        absent = listed([self.name(worker) for worker in self.missing])
        return (
            f"{came} of {self.workers} workers arrived in {seconds:g} s; missing: {absent}. "
            "Look into the output of what is missing, or whether it was started at all; set "
            "REPLICAX_JOIN_TIMEOUT (seconds) to wait longer."
        )

    def problems(self) -> list[str]:
        """Returns a sentence for everything that is wrong with those who have come."""
        found = [*dict.fromkeys(self._twice)]
        found += self._different(
            lambda hello: hello.addresses,
            lambda value: f"{counted(len(value), 'worker')}: {', '.join(value)}",
            "The workers have different descriptions of the cluster",
            "Give all of them the same one (the same 'cluster' in TF_CONFIG)",
        )
        others = [hello for hello in self.hellos.values() if len(hello.addresses) != self.workers]
        if others and not found:
            found.append(
                f"The job was started with {counted(self.workers, 'worker')}, but the description "
                f"of the cluster has {len(others[0].addresses)}: "
                f"{', '.join(others[0].addresses)}. Make them agree"
            )
        for package in dict.fromkeys(
            name for hello in self.hellos.values() for name in hello.versions
        ):
            found += self._different(
                lambda hello, package=package: hello.versions.get(package),
                str,
                f"The workers have different versions of {package}",
                "Install the same version everywhere",
            )
        found += self._different(
            lambda hello: hello.device_count,
            lambda value: counted(value, "device"),
            "The workers have different numbers of devices",
            "Give each the same number (CUDA_VISIBLE_DEVICES, JAX_NUM_CPU_DEVICES)",
        )
        return found

    def _different(
        self,
        of: Callable[[Hello], Value | None],
        text: Callable[[Value], str],
        what: str,
        fix: str,
    ) -> list[str]:
        groups: dict[Value, list[int]] = {}
        for worker in sorted(self.hellos):
            value = of(self.hellos[worker])
            if value is not None:
                groups.setdefault(value, []).append(worker)
        if len(groups) < 2:
            return []
        said = "; ".join(
            f"{self._all_of(workers)} {'has' if len(workers) == 1 else 'have'} {text(value)}"
            for value, workers in groups.items()
        )
        return [f"{what}: {said}. {fix}"]

    def _all_of(self, workers: list[int]) -> str:
        names = [self.short_name(worker) for worker in workers]
        if len(names) > 6:
            return f"{len(names)} workers ({names[0]}, {names[1]}, ...)"
        return listed(names)
