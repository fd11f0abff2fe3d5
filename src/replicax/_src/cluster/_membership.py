"""`join`: makes this process one of the workers of a cluster. `Membership`: what it is then.

Joining is: check the description, meet the other workers at the control server (which worker 0
hosts unless a launcher does), get one verdict for all, start JAX's runtime, and install the hooks
that tell the others how this process ends. One membership per process, for its whole life.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, final

from replicax._src._errors import ClusterConfigError, WorkerLostError
from replicax._src.cluster import _runtime
from replicax._src.cluster._addresses import own_address, reachable_host
from replicax._src.cluster._view import WorkerView, checked_cluster
from replicax._src.cluster.control import _exits, _meeting_place, _sockets
from replicax._src.cluster.control._attendance import Hello
from replicax._src.cluster.control._client import ControlClient
from replicax._src.cluster.control._progress import WorkerProgress
from replicax._src.cluster.control._relay import Relay
from replicax._src.cluster.control._server import ControlServer
from replicax._src.cluster.control._settings import Settings
from replicax._src.cluster.control._types import LEFT_STATUS, RESTART_STATUS, Cause
from replicax._src.cluster.resolvers import ClusterResolver, resolver_from_environment

# What the server may take for its verdict after the time-out of the meeting.
_VERDICT_SECONDS = 5.0
# While waiting for others at the end, say so after this long.
_NOTICE_SECONDS = 60.0

_current: Membership | None = None
_joining = threading.Lock()


def current_membership() -> Membership | None:
    """Returns the membership of this process; None if it has not joined a cluster."""
    return _current


def join(
    resolver: ClusterResolver | None = None,
    *,
    device_count: int | None = None,
    join_timeout: float | None = None,
) -> Membership | None:
    """Joins the cluster that a resolver describes; waits until all its workers are there.

    Args:
      resolver: The description of the cluster; None takes it from the environment.
      device_count: How many devices this worker will have; all must have the same number. None: it
        is found out where that is possible before JAX starts.
      join_timeout: Seconds to wait for the others; None takes `REPLICAX_JOIN_TIMEOUT`, or 60.

    Returns:
      The membership; None if there is no cluster, or this process is none of its workers (an
      evaluator). The same object if this process has joined that cluster before.

    Raises:
      ClusterConfigError: The description is wrong, or the workers do not agree.
      WorkersMissingError: Some workers did not come in time; the text names them.
      WorkerLostError: A worker failed while the others were waiting for it.
      RuntimeError: JAX has been used already, so that it is too late.
    """
    global _current
    with _joining:
        view = checked_cluster(resolver_from_environment() if resolver is None else resolver)
        if view is None or view.rank is None:
            return None
        if _current is not None:
            _check_same(_current, view)
            return _current
        settings = Settings.from_environment(join_timeout)
        if len(view.workers) > 1:
            _check_fresh(view)
        if device_count is None:
            device_count = _runtime.planned_device_count()
        _current = _join(view, view.rank, settings, device_count)
        return _current


@final
class Series:
    """Exchanges of one topic, which any worker may end for all."""

    def __init__(
        self, client: ControlClient, topic: str, timeout: float, before_waiting: Callable[[], None]
    ) -> None:
        self._client = client
        self._before_waiting = before_waiting
        self._topic = topic
        self._timeout = timeout
        self._lock = threading.Lock()
        self._next = 0
        self._closed = False

    def __call__(self, payload: object) -> list[Any] | None:
        """Returns the payloads of all workers; None if one of them has ended the series."""
        with self._lock:
            if self._closed:
                return None
            number, self._next = self._next, self._next + 1
        self._before_waiting()
        said = self._client.exchange(self._topic, [payload], self._timeout, number)
        return None if None in said else [each[0] for each in said]

    def close(self) -> None:
        """Ends it, and releases all that wait in it, here or on other workers."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            number = self._next
        self._client.put(self._topic, number, None)


@final
class Membership:
    """This process as one of the workers of a cluster.

    Attributes:
      workers: How many there are.
      worker: Which one this is, from 0.
      addresses: Their addresses, by worker.
      names: How to call them, by worker: "worker 0", "chief".
      job: The key of the job, `REPLICAX_JOB`; "" without one.
      generation: Which attempt this is, from the launcher; 0 without one.
      progress: What this worker tells of itself: plain attributes `calls`, `phase`, `step`, `busy`.
    """

    def __init__(
        self,
        view: WorkerView,
        rank: int,
        settings: Settings,
        progress: WorkerProgress,
        client: ControlClient,
        server: ControlServer | None,
    ) -> None:
        self.workers = len(view.workers)
        self.worker = rank
        self.addresses = view.workers
        self.names = view.names
        self.job = settings.job
        self.generation = settings.generation
        self.progress = progress
        self._exchange_timeout = settings.exchange_timeout
        self._client = client
        self._server = server
        self._status: int | None = None  # of a failure of this worker's own
        self._left = False
        self._departed = False  # it has said that it ends now
        self._relay: Relay | None = None
        self._held_back: list[Callable[[], None]] = []
        self._hooks = _exits.ExitHooks(self._failing, self._failed, self._at_exit)

    def __repr__(self) -> str:
        return f"<Membership: {self.names[self.worker]}, {self.worker} of {self.workers}>"

    # Talking to the others.

    def exchange(self, topic: str, payload: object, timeout: float | None = None) -> list[Any]:
        """Gives every worker the payloads of all, in the order of the workers.

        The n-th exchange of a topic meets the n-th of the other workers. May be called in any
        thread; those of different topics do not wait for each other.

        Args:
          topic: What it is about.
          payload: Anything that JSON can express.
          timeout: Seconds; None takes `REPLICAX_EXCHANGE_TIMEOUT`, or half an hour.

        Raises:
          WorkersMissingError: Not all came in time; the text names who did not, and what it does.
          WorkerLostError: Not all can come: one has finished or failed.
        """
        self._hand_out()
        timeout = self._exchange_timeout if timeout is None else timeout
        return self._client.exchange(topic, payload, timeout)

    def before_waiting(self, fn: Callable[[], None]) -> None:
        """Calls `fn` before this worker waits for others: they may wait for what it holds back."""
        self._held_back.append(fn)

    def _hand_out(self) -> None:
        for fn in self._held_back:
            fn()

    def series(self, topic: str, timeout: float | None = None) -> Series:
        """Exchanges that one thread makes, one after the other, and another one may end."""
        timeout = self._exchange_timeout if timeout is None else timeout
        return Series(self._client, topic, timeout, self._hand_out)

    def publish(self, topic: str, payload: object) -> None:
        """Sends a message to every worker, this one too; all get all messages in the same order."""
        self._client.publish(topic, payload)

    def subscribe(self, topic: str, fn: Callable[[Any, int], None]) -> None:
        """Calls `fn(payload, worker)` for each message of a topic, in the client's thread.

        It must be short, and may not exchange. Messages that came before the first subscriber are
        kept for it.
        """
        self._client.subscribe(topic, fn)

    # Telling what this worker does.

    def phase(
        self, phase: str, busy: bool | None = None
    ) -> contextlib.AbstractContextManager[None]:
        """Says inside `with` what this worker is doing.

        Args:
          phase: In a few words. "starting ..." and "compiling ..." may take as long as they like.
          busy: Whether the watchdog should leave this worker alone meanwhile; None: as above.
        """
        return self.progress.in_phase(phase, busy)

    def before_call(self, what: str = "a program") -> None:
        """Counts a collective program, which needs all workers; call it before each.

        Args:
          what: What it is, the same on all workers.

        Raises:
          WorkerLostError: A worker has finished without it, and can never take part.
        """
        progress = self.progress
        number = progress.called(what)
        self._departed = False
        if not progress.busy:
            progress.phase = f"running {what}"
        if number > self._client.last_call:
            raise WorkerLostError(
                f"{self._client.finished_first} finished after {self._client.last_call} calls; "
                f"{self.names[self.worker]} would be in call {number}, which needs all "
                "workers. Give every worker the same number of steps."
            )

    # Ending.

    def fail(self, error: BaseException | str, status: int = 1) -> None:
        """Tells all workers that this one has failed; they leave. This one goes on to its end.

        Args:
          error: Why.
          status: The exit status with which this process will end.
        """
        if self._status is not None or self._left:
            return
        self._status = status
        doubtful = False
        if isinstance(error, BaseException):
            kind, text = type(error).__qualname__, _exits.text_of(error)
            trace = "".join(traceback.format_exception(error))
            doubtful = _exits.is_echo(error)
        else:
            kind, text, trace = error, "", ""
        self._client.fail(kind, text, trace, status, doubtful)

    def depart(self) -> None:
        """Says that this worker is about to end on purpose, with whatever exit status.

        The others then do not follow it. It is forgotten if this worker goes on.
        """
        self._departed = True
        self._client.depart()

    def leave(self, status: int = 0) -> None:
        """Waits at the end of the program until every worker has come to its end."""
        if self._left:
            return
        self.progress.phase = "finished"
        self._client.finish(status)
        waited = 0.0
        while not self._client.is_released.wait(_NOTICE_SECONDS):
            waited += _NOTICE_SECONDS
            if waited == _NOTICE_SECONDS:
                _exits.say(
                    f"{self.names[self.worker]} has finished, and waits for the other workers to "
                    "finish."
                )
        self._left = True
        if self._server is not None:
            self._server.drain()

    def _failing(self, error: BaseException) -> bool:
        """Returns whether to print an exception that ends the program."""
        if self._left or not _exits.is_echo(error):
            return True
        self.fail(error)
        self._client.is_down.wait(2.0)
        cause = self._client.cause
        if cause is None or cause.worker == self.worker:
            return True
        time.sleep(5.0)  # the client's thread prints the true cause and ends the process
        return False

    def _failed(self, error: BaseException) -> None:
        status = _exits.status_of(error)
        self.fail(error, status)
        _exits.quit_later(status)

    def _at_exit(self) -> None:
        if self._left:
            return
        try:
            status = _exits.Exit.status
            if self._status is None and (error := self._hooks.missed()) is not None:
                self.fail(error, _exits.status_of(error))
            if self._status is None and status not in (0, RESTART_STATUS):
                self._status = status
                self._client.fail(f"sys.exit({status})", "", _exits.Exit.where, status, False)
            if self._status is None:
                self.leave(status)
                return
            if self._server is not None and not self._departed:
                # The server in this process may not have read that this worker has failed.
                self._client.is_down.wait(4.0)
        except BaseException:
            self._status = self._status or _exits.INTERRUPTED_STATUS
            raise
        finally:
            if self._status is not None:
                self._quit(self._status)

    def _quit(self, status: int) -> None:
        if self._server is not None:
            self._server.drain()
        _exits.quit_now(status)

    def _job_is_over(self, cause: Cause) -> None:
        """Ends this worker, in the client's thread: the main thread may be blocked forever."""
        if self._left or self._departed:
            return
        if self._status is not None and cause.worker == self.worker:
            return  # its own failure: it prints its traceback and ends by itself
        me = self.names[self.worker]
        if cause.worker == self.worker:
            _exits.say(f"{me} {cause.text}; it leaves.")
        else:
            _exits.say(f"{cause.line}; {me} leaves.")
        self._quit(LEFT_STATUS)

    def _forget(self) -> None:
        """Gives up everything in a forked child, which is no worker."""
        global _current
        self._left = True
        self._client.forget()
        if self._server is not None:
            self._server.forget()
        if self._relay is not None:
            self._relay.forget()
        if _current is self:
            _current = None


def _join(view: WorkerView, rank: int, settings: Settings, device_count: int | None) -> Membership:
    progress = WorkerProgress()
    progress.busy = 1
    server, holder = None, None
    members: list[Membership] = []  # it is made after the client, which needs it
    try:
        if settings.control is not None:
            host, port = _sockets.split(settings.control)
            server_name, server_rank = f"The launcher at {settings.control}", None
        else:
            first, port = _sockets.split(view.workers[0])
            host = _reached(view, first)
            server_name, server_rank = f"{view.names[0]} ({view.workers[0]})", 0
            if rank == 0:
                server = _meeting_place.host_server(view.names, view.workers, host, settings)
                host, port = _meeting_place.own_address(server)
        coordinator = None
        if rank == 0 and len(view.workers) > 1:
            first, _ = _sockets.split(view.workers[0])
            holder = _meeting_place.hold_coordinator_port(
                _reached(view, first), settings.coordinator_port
            )
            coordinator = _sockets.joined(first, holder.getsockname()[1])
        # Made first: a client that has connected and says nothing may have to make room for others.
        hello = _hello(view, rank, settings, device_count, coordinator)
        link = _meeting_place.dial_server(host, port, server_name, settings)
        client = ControlClient(
            link,
            settings.job,
            server_name,
            server_rank,
            progress,
            lambda cause: members[0]._job_is_over(cause),
        )
        try:
            verdict = client.meet(hello, settings.join_timeout + _VERDICT_SECONDS)
        except BaseException:
            client.stop()
            raise
    except BaseException:
        if holder is not None:
            holder.close()
        if server is not None:
            server.stop()
        raise
    membership = Membership(view, rank, settings, progress, client, server)
    members.append(membership)
    client.start()
    membership._hooks.install()
    os.register_at_fork(after_in_child=membership._forget)
    if len(view.workers) > 1:
        try:
            known_as, _ = _sockets.split(view.workers[rank])
            address = own_address(known_as, link.local_address)
            _start_runtime(membership, _called(view, verdict.coordinator), holder, address)
        except BaseException as error:
            membership.fail(error)  # also if somebody catches it: the others wait in there
            raise
    progress.phase, progress.busy = "idle", 0
    return membership


def _reached(view: WorkerView, host: str) -> str:
    """Returns where a host of the cluster listens, and is called."""
    others = [each for each, _ in map(_sockets.split, view.workers) if each != host]
    return reachable_host(host, others) if others else host


def _called(view: WorkerView, address: str | None) -> str:
    if address is None:
        raise ClusterConfigError("Worker 0 has not said where JAX's coordinator is.")
    host, port = _sockets.split(address)
    return _sockets.joined(_reached(view, host), port)


def _check_same(membership: Membership, view: WorkerView) -> None:
    if (membership.addresses, membership.worker) != (view.workers, view.rank):
        raise ClusterConfigError(
            f"This process is {membership.names[membership.worker]} of the cluster "
            f"{', '.join(membership.addresses)}, and cannot also be {view.name} of "
            f"{', '.join(view.workers)} ({view.source}). A process joins one cluster: use the same "
            "resolver for all strategies."
        )


def _check_fresh(view: WorkerView) -> None:
    if _runtime.backends_started():
        raise RuntimeError(
            f"{view.name} cannot join the other workers any more, because JAX has been used in "
            "this process, and the number of its devices is fixed from then on. Make the strategy "
            "at the top of the program, before anything calls JAX (jax.devices(), jnp.zeros(...), "
            "a variable)."
        )
    if _runtime.is_started():
        raise RuntimeError(
            "jax.distributed.initialize() has been called in this process. Remove that call: the "
            "strategy does it, with the addresses of the cluster."
        )


def _hello(
    view: WorkerView,
    rank: int,
    settings: Settings,
    device_count: int | None,
    coordinator: str | None,
) -> Hello:
    return Hello(
        worker=rank,
        addresses=view.workers,
        names=view.names,
        generation=settings.generation,
        pid=os.getpid(),
        host=socket.gethostname(),
        device_count=device_count,
        versions=_runtime.versions(),
        coordinator=coordinator,
    )


def _start_runtime(
    membership: Membership,
    coordinator: str,
    holder: socket.socket | None,
    address: str | None,
) -> None:
    bind_address = None
    if holder is not None:
        bind_address = _sockets.joined(*holder.getsockname()[:2])
    else:
        names = membership.names
        host, port = _meeting_place.wait_for_coordinator(
            coordinator, names[membership.worker], names[0]
        )
        membership._relay = Relay(host, port)
        coordinator = membership._relay.address
    try:
        _runtime.start(coordinator, bind_address, membership.workers, membership.worker, address)
    finally:
        if holder is not None:
            holder.close()
