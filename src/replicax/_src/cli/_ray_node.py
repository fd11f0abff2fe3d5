"""`RayNode`: workers on Ray, each under an actor in one placement group that is spread over nodes.

An actor that is lost, with its node or alone, is a worker that is lost. Ray starts it again as soon
as there is room for it; until then, the job goes on without its place if it may.
"""

import importlib
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from types import ModuleType
from typing import Any, Protocol, TypeVar, final

from replicax._src._typing import override
from replicax._src.cli._event_loop import EventLoop
from replicax._src.cli._log import Log
from replicax._src.cli._node import NodePlan, OnExit, OnLoss, OwnNode, base_environment
from replicax._src.cli._options import LaunchOptions, Usage
from replicax._src.cli._ray_worker import RayWorker, Report
from replicax._src.cluster import connect_to_ray, split_address
from replicax._src.cluster.control import joined

_T = TypeVar("_T")

# How long an actor waits for something to report, which is how late it may hear of a signal.
_POLL_SECONDS = 0.25
# How long the last words of workers are waited for.
_SECONDS_TO_END = 15.0
# An actor that is lost so often before it is ready has some other reason than a lost node.
_MOST_FAILURES = 3
_LONGEST_REASON = 300


class _Answer(Protocol):
    """What a method of an actor returns at once: Ray's `ObjectRef`."""

    def future(self) -> Future[Any]:
        """Returns a future of the result."""
        ...


@final
class _Place:
    """One place for a worker: an actor, and what is known of it."""

    def __init__(self, number: int, actor: object) -> None:
        self.number = number
        self.actor: Any = actor
        self.address: str | None = None
        """Of the next process; None while the actor is not ready for one."""
        self.ending = False
        """Whether it was told to end its process, and has not answered yet."""
        self.rank: int | None = None
        """Of the worker that runs there."""
        self.life = 0
        """How many times the actor was lost."""
        self.failures = 0
        """How many times in a row it was lost before it was ready."""


@final
class RayNode(OwnNode):
    """All workers of a job, on Ray; the arguments are those of `LocalNode`."""

    def __init__(
        self,
        options: LaunchOptions,
        loop: EventLoop,
        log: Log,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.rank = options.node_rank
        self.host = "127.0.0.1"
        self._options = options
        self._loop = loop
        self._log = log
        self._on_exit: OnExit = lambda rank, status: None
        self._on_loss: OnLoss = lambda rank, text: None
        self._has_started = False
        self._makes_do = False
        self._trouble = ""
        self._outcomes: dict[int, bytes | None] = {}
        self._is_closed = False
        self._held_up: list[_Place] = []
        self._ray = connect_to_ray(
            options.ray or None, cpus=options.workers.most, show_output=False
        )
        self._own_host: str = self._ray.util.get_node_ip_address()
        self._bundle, devices = share(self._ray, options, environment)
        self._group: Any = self._ray.util.placement_group(
            [self._bundle] * options.workers.most, strategy="SPREAD"
        )
        remote = self._ray.remote(RayWorker)
        told = {**base_environment(options, environment), **devices}
        self._places = [
            _Place(
                number,
                remote.options(
                    num_cpus=self._bundle["CPU"],
                    num_gpus=self._bundle.get("GPU", 0),
                    max_restarts=-1,
                    max_task_retries=0,
                    scheduling_strategy=_in_bundle(self._group, number),
                ).remote(options, told, _working_directory()),
            )
            for number in range(options.workers.most)
        ]

    # --- what the launcher asks ------------------------------------------------------------------

    @property
    @override
    def addresses(self) -> list[str] | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """An address for each place, "" where no worker can be started; None while too few can."""
        if any(place.ending for place in self._places) and not self._makes_do:
            return None
        least, most = self._options.workers
        wanted = least if self._has_started or self._makes_do else most
        if len(self.places) < wanted:
            return None
        hosts = {split_address(place.address)[0] for place in self._places if place.address}
        together = hosts == {self._own_host}
        self.host = "127.0.0.1" if together else self._own_host
        return [_at_home(place.address or "", together) for place in self._places]

    @property
    @override
    def places(self) -> Sequence[int]:
        return [place.number for place in self._places if place.address is not None]

    @property
    @override
    def running(self) -> bool:
        return any(place.rank is not None for place in self._places)

    @property
    @override
    def needs_polling(self) -> bool:
        return False

    @property
    @override
    def trouble(self) -> str:
        return self._trouble

    @property
    @override
    def waits_for(self) -> str:
        if self.addresses is not None:
            return ""
        each = " and ".join(f"{number:g} {name}" for name, number in self._bundle.items())
        there = self._ray.cluster_resources()
        has = " and ".join(f"{there.get(name, 0):g} {name}" for name in self._bundle)
        return (
            f"Ray: {len(self.places)} of {self._options.workers} workers have a place there, with "
            f"{each} each, and its nodes have {has} in all, of which others may use some"
        )

    @override
    def serve(self, host: str, on_exit: OnExit, on_loss: OnLoss) -> None:
        self._on_exit, self._on_loss = on_exit, on_loss
        for place in self._places:
            self._expect(place)

    @override
    def make_do(self) -> None:
        self._makes_do = True

    @override
    def start(self, plan: NodePlan) -> None:
        self._has_started, self._makes_do = True, False
        self._outcomes.clear()
        for number, rank in plan.seats:
            place = self._places[number]
            place.rank, place.address = rank, None
            started = place.actor.start.remote(rank, plan.environment_of(rank))
            self._call(place, started, lambda _: None)
            self._poll(place)

    @override
    def signal(self, number: int) -> None:
        for place in self._places:
            if place.rank is None or place.ending:
                continue
            if number == signal.SIGKILL:
                self._renew(place, place.rank)
            else:
                place.actor.signal.remote(int(number))

    @override
    def reap(self) -> None:
        """Takes reports again where that had to wait for the log; all others wake the loop."""
        if self._held_up and not self._log.full:
            held_up, self._held_up = self._held_up, []
            for place in held_up:
                if place.rank is not None and not place.ending:
                    self._poll(place)

    @override
    def outcome(self, rank: int) -> bytes | None:
        self._wait_until(lambda: not any(place.ending for place in self._places))
        return self._outcomes.get(rank)

    @override
    def end(self) -> None:
        self.signal(signal.SIGKILL)
        self._wait_until(lambda: not any(place.ending for place in self._places))

    @override
    def limit(self, seconds: float) -> None:
        """Nobody else can lead workers on Ray."""

    @override
    def close(self) -> None:
        self.end()
        self._is_closed = True
        if closing := [place.actor.close.remote() for place in self._places if place.address]:
            self._ray.wait(closing, num_returns=len(closing), timeout=_SECONDS_TO_END)
        for place in self._places:
            self._ray.kill(place.actor)
        self._ray.util.remove_placement_group(self._group)

    # --- what actors answer ----------------------------------------------------------------------

    def _expect(self, place: _Place) -> None:
        """Notes where a worker can be started, as soon as its actor is there."""

        def arrived(address: str) -> None:
            place.address, place.failures = address, 0

        self._call(place, place.actor.arrive.remote(), arrived)

    def _poll(self, place: _Place) -> None:
        """Takes what a worker has to report, again and again while it runs."""

        def reported(report: Report) -> None:
            rank = place.rank
            if rank is None:
                return
            self._note(rank, report)
            if report.status is not None:
                self._on_exit(rank, report.status)
            elif self._log.full:
                self._held_up.append(place)  # it may write as fast as the log's reader reads
            elif not place.ending:
                self._poll(place)

        self._call(place, place.actor.poll.remote(_POLL_SECONDS), reported)

    def _renew(self, place: _Place, rank: int) -> None:
        """Ends the worker at a place, and makes the place ready for another."""
        place.ending = True

        def renewed(answer: tuple[Report, str]) -> None:
            report, place.address = answer
            place.ending, place.rank = False, None
            self._note(rank, report)

        self._call(place, place.actor.renew.remote(), renewed)

    def _note(self, rank: int, report: Report) -> None:
        for line in report.lines:
            self._log.worker(rank, line)
        for text in report.said:
            self._log.say(text)
        if report.outcome is not None:
            self._outcomes[rank] = report.outcome

    def _call(self, place: _Place, answer: "_Answer", then: Callable[[_T], None]) -> None:
        """Calls `then` with what an actor answers, in the launcher's thread."""
        life = place.life

        def answered(future: Future[_T]) -> None:
            self._loop.call_soon(lambda: self._answered(place, life, future, then))

        answer.future().add_done_callback(answered)

    def _answered(
        self, place: _Place, life: int, future: Future[_T], then: Callable[[_T], None]
    ) -> None:
        if self._is_closed or place.life != life:  # of an actor that is lost
            return
        error = future.exception()
        if error is None:
            then(future.result())
        else:
            self._lose(place, error)

    def _lose(self, place: _Place, error: BaseException) -> None:
        """Notes that an actor is gone, or cannot do what it was asked to."""
        rank, place.rank = place.rank, None
        place.address, place.ending = None, False
        place.life += 1
        place.failures += 1
        if place.failures >= _MOST_FAILURES:
            self._trouble = f"worker {place.number} cannot be started on Ray: {_in_short(error)}"
        else:
            self._expect(place)  # answered when Ray has started it again
        if rank is not None:
            self._on_loss(rank, _in_short(error))

    def _wait_until(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _SECONDS_TO_END
        while not is_done() and time.monotonic() < deadline and not self._loop.hurry:
            self._loop.wait(deadline)


def share(
    ray: ModuleType, options: LaunchOptions, environment: Mapping[str, str] | None
) -> tuple[dict[str, float], dict[str, str]]:
    """Returns what each worker asks of Ray, and what its environment says of devices."""
    platforms = (os.environ if environment is None else environment).get("JAX_PLATFORMS", "")
    may_use_gpus = not platforms or bool({"cuda", "gpu", "rocm"} & set(platforms.split(",")))
    gpus = int(ray.cluster_resources().get("GPU", 0)) if may_use_gpus else 0
    each, most = options.devices_per_worker, options.workers.most
    if not gpus and may_use_gpus and platforms and "cpu" not in platforms.split(","):
        raise Usage(
            f"JAX_PLATFORMS={platforms} asks for GPUs, and no node of Ray has one. Start Ray's "
            "nodes with --num-gpus, or set JAX_PLATFORMS=cpu to train on CPUs."
        )
    if not gpus:
        return {"CPU": 1}, {} if each is None else {"JAX_NUM_CPU_DEVICES": str(each)}
    each = gpus // most if each is None else each
    if not 0 < each * most <= gpus:
        raise Usage(
            f"{most} workers with {max(each, 1)} GPU(s) each need {most * max(each, 1)}, and Ray "
            f"has {gpus}. Start fewer workers, give each fewer with --devices-per-worker, or set "
            "JAX_PLATFORMS=cpu to train on CPUs."
        )
    return {"CPU": 1, "GPU": each}, {}


def _in_bundle(group: object, number: int) -> object:
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    return strategies.PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number)


def _at_home(address: str, together: bool) -> str:
    """Returns an address on the loopback if all workers are on the launcher's host."""
    return joined("127.0.0.1", split_address(address)[1]) if address and together else address


def _in_short(error: BaseException) -> str:
    cause = getattr(error, "cause", None)
    text = " ".join(str(cause or error).split())
    return text.rstrip(".") if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}..."


def _working_directory() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:  # somebody has removed it
        return None
