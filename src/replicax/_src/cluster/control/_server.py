"""`ControlServer`: the job as its server sees it. The words are in the package's docstring."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import final

from replicax._src.cluster.control import _framing, _watchdog
from replicax._src.cluster.control._attendance import Hello
from replicax._src.cluster.control._loop import Connection, MessageLoop
from replicax._src.cluster.control._reception import Reception
from replicax._src.cluster.control._records import CallLogs, Exchanges, Key, WorkerRecord
from replicax._src.cluster.control._sockets import joined
from replicax._src.cluster.control._types import (
    RESTART_STATUS,
    Cause,
    Event,
    EventKind,
    Message,
    WorkerState,
    WorkerStatus,
    counted,
    how_it_ended,
)

# How long a closed connection waits for the exit status that explains it.
_REAPING_SECONDS = 0.2
# An error of a collective is most often the echo of a death that is about to be noticed.
_ECHO_SECONDS = 0.4


@final
class ControlServer:
    """Serves one job (of one generation) in a thread of its own; see the package's docstring.

    Args:
      workers: How many there are.
      host: The address to listen on.
      port: The port; 0 takes a free one.
      key: What every worker must show that it has.
      generation: And which attempt it must belong to.
      names: How to call the workers before they have said it themselves.
      join_timeout: Seconds from the first arrival until all must be there.
      stall_timeout: Seconds without progress after which the job is stuck; None: never.
      owns_processes: Whether `process_ended` will be called for each worker.
      on_event: Called with each `Event`, in the server's thread.
    """

    def __init__(
        self,
        workers: int,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        key: str = "",
        generation: int = 0,
        names: Sequence[str] | None = None,
        join_timeout: float = 60.0,
        stall_timeout: float | None = None,
        owns_processes: bool = False,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._key = key
        self._generation = generation
        self._stall_timeout = stall_timeout
        self._owns_processes = owns_processes
        self._on_event = on_event
        self._workers = [WorkerRecord(rank) for rank in range(workers)]
        given = [f"worker {rank}" for rank in range(workers)] if names is None else list(names)
        self._reception = Reception(
            self._workers,
            given,
            key,
            generation,
            join_timeout,
            self._arrived,
            self._start_job,
            self._refused,
        )
        self._attendance = self._reception.attendance
        self._exchanges = Exchanges(workers)
        self._call_logs = CallLogs(workers)
        self._started = False
        self._watch: _watchdog.Watch | None = None
        self._cause: Cause | None = None
        self._done = False
        self._loop: MessageLoop | None = None

    # For its owner, in any thread.

    def start(self) -> None:
        """Listens and serves; OSError if the port is not free."""
        loop = MessageLoop(
            self._host,
            self._port,
            peers=len(self._workers),
            name="replicax-control-server",
            on_message=self._message,
            on_close=self._closed,
        )
        self._loop = loop
        loop.start()

    @property
    def address(self) -> str:
        """Where it listens, "host:port"."""
        return joined(self._host, self._running_loop.port)

    @property
    def bound_address(self) -> tuple[str, int]:
        """The address of this machine that it listens on."""
        return self._running_loop.bound_address

    def environment(self) -> dict[str, str]:
        """Returns what a worker's environment must have to find it."""
        return {
            "REPLICAX_CONTROL": self.address,
            "REPLICAX_JOB": self._key,
            "REPLICAX_GENERATION": str(self._generation),
        }

    def process_ended(self, worker: int, status: int) -> None:
        """Says that a worker's process has ended, as soon as it is reaped.

        Args:
          worker: Whose.
          status: As `Popen.returncode`: the exit status, or minus the number of the signal.
        """
        self._running_loop.call(lambda: self._process_ended(self._workers[worker], status))

    def fail(self, text: str) -> None:
        """Ends the job for a reason of the owner's."""
        self._running_loop.call(lambda: self._down("stopped", None, text))

    def status(self) -> list[WorkerStatus]:
        """Returns what is known of each worker now."""
        return [each.public(self._attendance.short_name(each.rank)) for each in self._workers]

    def drain(self, timeout: float = 0.5) -> bool:
        """Waits until everything that was said has gone out."""
        return self._running_loop.drain(timeout)

    def stop(self) -> None:
        """Ends the thread and closes all connections."""
        if self._loop is not None:
            self._loop.stop()

    def forget(self) -> None:
        """Gives up the descriptors in a forked child."""
        if self._loop is not None:
            self._loop.forget()

    @property
    def _running_loop(self) -> MessageLoop:
        if self._loop is None:
            raise RuntimeError("The control server has not been started: call start() first.")
        return self._loop

    # From here on, everything runs in the loop's thread.

    @property
    def _is_over(self) -> bool:
        return self._done or self._cause is not None

    def _event(
        self, kind: EventKind, worker: int | None = None, text: str = "", **details: object
    ) -> None:
        if self._on_event is not None:
            try:
                self._on_event(Event(kind, worker, text, details))
            except Exception:  # a mistake of the owner's must not end the service
                traceback.print_exc(file=sys.stderr)

    def _message(self, connection: Connection, message: Message) -> None:
        worker: WorkerRecord | None = connection.data
        op = message["op"]
        try:
            if worker is None:
                if op != "hello":
                    raise ValueError(f"{op!r} before hello")
                self._reception.hello(self._running_loop, connection, message)
                return
            worker.heard = time.monotonic()
            if op != "beat":
                _HANDLERS[op](self, worker, message)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise _framing.FramingError(f"{type(error).__name__}: {error}") from error

    def _closed(self, connection: Connection, reason: str | None) -> None:
        self._reception.left(connection)
        worker: WorkerRecord | None = connection.data
        if worker is None or worker.connection is not connection:
            return
        worker.connection = None
        if worker.state is WorkerState.ARRIVED:  # before the verdict: it may be started again
            worker.state = WorkerState.EXPECTED
            self._reception.forget(worker)
        elif worker.in_job and not self._is_over:
            text = "was killed or crashed: its connection closed"
            if worker.state is WorkerState.FINISHED:
                text = "was killed or crashed while it waited for the others to finish"
            if reason and reason != "closed":
                text += f" ({reason})"
            if self._owns_processes:
                self._running_loop.call_later(_REAPING_SECONDS, lambda: self._lost(worker, text))
            else:
                self._lost(worker, text)

    def _broadcast(self, message: Message) -> None:
        line = _framing.encode(message)
        for worker in self._workers:
            if worker.connection is not None:
                worker.connection.send_line(line)

    # Meeting.

    def _arrived(self, hello: Hello) -> None:
        self._event(
            EventKind.ARRIVED,
            hello.worker,
            pid=hello.pid,
            host=hello.host,
            device_count=hello.device_count,
            versions=hello.versions,
        )
        self._check_ended()

    def _refused(self, kind: str, text: str) -> None:
        self._cause = Cause(EventKind.REFUSED, None, "", text)
        self._event(EventKind.REFUSED, None, text, reason=kind)
        self._event(EventKind.DOWN, None, text)

    def _start_job(self) -> None:
        self._started = True
        self._running_loop.expect_nobody()
        self._broadcast(
            {
                "op": "verdict",
                "ok": True,
                "coordinator": self._attendance.hellos[0].coordinator,
                "stall": self._stall_timeout,
                "names": self._attendance.names,
            }
        )
        for worker in self._workers:
            worker.run(self._attendance.name(worker.rank))
        self._event(EventKind.STARTED)
        # One worker waits for nobody, and tells of nothing that it calls.
        if self._stall_timeout is not None and len(self._workers) > 1:
            self._watch = _watchdog.Watch(
                self._stall_timeout,
                self._workers,
                self._running_loop,
                self._broadcast,
                self._stalled,
            )

    # Life.

    def _status(self, worker: WorkerRecord, message: Message) -> None:
        if int(message["calls"]) > worker.calls:
            worker.departing = False  # it has gone on
        worker.calls, worker.phase = int(message["calls"]), str(message["phase"])
        worker.step, worker.busy = int(message["step"]), bool(message["busy"])
        worker.moved = worker.heard
        self._compare_calls(worker, message)
        self._event(
            EventKind.STATUS,
            worker.rank,
            calls=worker.calls,
            phase=worker.phase,
            step=worker.step,
            busy=worker.busy,
        )
        self._check_finished()
        self._check_waiting()

    def _publish(self, worker: WorkerRecord, message: Message) -> None:
        self._broadcast(
            {
                "op": "message",
                "topic": str(message["topic"]),
                "payload": message["payload"],
                "worker": worker.rank,
            }
        )

    def _exchange(self, worker: WorkerRecord, message: Message) -> None:
        key = (str(message["topic"]), int(message["n"]))
        parts = self._exchanges.put(key, worker.rank, message["payload"])
        if message.get("calls") is not None:
            worker.calls, worker.waits_in = int(message["calls"]), key
        if parts is not None:
            for each in self._workers:
                if each.waits_in == key:
                    each.waits_in = None
            self._broadcast({"op": "exchanged", "topic": key[0], "n": key[1], "parts": parts})
        elif gone := self._exchanges.never_completed(key):
            self._unanswered(worker, key, gone, gone=True)
        else:
            self._check_waiting()

    def _missing(self, worker: WorkerRecord, message: Message) -> None:
        key = (str(message["topic"]), int(message["n"]))
        worker.waits_in = None
        self._unanswered(worker, key, self._exchanges.missing(key), gone=False)

    def _unanswered(self, worker: WorkerRecord, key: Key, missing: list[int], gone: bool) -> None:
        if worker.connection is not None:
            worker.connection.send(
                {
                    "op": "unanswered",
                    "topic": key[0],
                    "n": key[1],
                    "gone": gone,
                    "text": "; ".join(
                        f"{self._attendance.name(each)}: {self._workers[each].place}"
                        for each in missing
                    ),
                }
            )

    # Ends.

    def _failed(self, worker: WorkerRecord, message: Message) -> None:
        text = f"{message['type']}: {message['message']}" if message["message"] else message["type"]
        text = (str(text).splitlines() or [""])[0][:500]
        if self._is_over or worker.state is WorkerState.FAILED:
            return
        if worker.departing:
            self._departed(worker, int(message["status"]))
            return
        worker.state, worker.status = WorkerState.FAILED, int(message["status"])

        def tell() -> None:
            if self._cause is None:
                self._event(
                    EventKind.FAILED,
                    worker.rank,
                    text,
                    type=message["type"],
                    message=message["message"],
                    traceback=message["traceback"],
                    status=worker.status,
                )
                self._down(EventKind.FAILED, worker, f"failed: {text}")

        if message.get("doubtful"):
            self._running_loop.call_later(_ECHO_SECONDS, tell)
        else:
            tell()

    def _finished(self, worker: WorkerRecord, message: Message) -> None:
        worker.calls, worker.status = int(message["calls"]), int(message["status"])
        worker.state, worker.phase, worker.busy = WorkerState.FINISHED, "finished", False
        worker.moved = worker.heard
        self._compare_calls(worker, message)
        self._event(EventKind.FINISHED, worker.rank, calls=worker.calls, status=worker.status)
        self._broadcast(
            {
                "op": "finished",
                "worker": worker.rank,
                "calls": worker.calls,
                "name": worker.name,
            }
        )
        for key, waiting in self._exchanges.leave(worker.rank):
            for each in waiting:
                self._unanswered(self._workers[each], key, [worker.rank], gone=True)
        self._check_finished()
        if self._cause is None and all(
            each.state is WorkerState.FINISHED for each in self._workers
        ):
            self._all_done()

    def _check_finished(self) -> None:
        """Fails the job if a worker is in a call that needs one which has finished."""
        finished = [each for each in self._workers if each.state is WorkerState.FINISHED]
        if not finished or self._cause is not None:
            return
        first = min(finished, key=lambda each: each.calls)
        ahead = max(self._workers, key=lambda each: each.calls)
        if ahead.calls > first.calls:
            text = (
                f"finished after {counted(first.calls, 'call')}, but "
                f"{ahead.name} is in call {ahead.calls}, which needs all "
                "workers (give every worker the same number of steps)"
            )
            self._fail_job("EarlyExit", first, text)

    def _compare_calls(self, worker: WorkerRecord, message: Message) -> None:
        found = self._call_logs.add(worker.rank, message["called"])
        if found is None or self._is_over:
            return
        listing = "; ".join(
            f"{each.name}: {what}" for each, what in zip(self._workers, found.called)
        )
        text = (
            f"Call {found.number} is not the same on all workers: {listing}. The n-th call of a "
            "worker meets the n-th of the others, so what they compute is wrong from there on. "
            "Look for an `if` that depends on the worker around a step, a reduction or the reading "
            "of a metric, and for exceptions that are caught"
        )
        self._fail_job("Mismatch", None, text)

    def _check_waiting(self) -> None:
        """Fails the job if a worker waits in an exchange for one that is in a later call."""
        for waiting in self._workers:
            if waiting.waits_in is None or self._is_over:
                continue
            for rank in self._exchanges.missing(waiting.waits_in):
                other = self._workers[rank]
                if other.calls > waiting.calls:
                    text = (
                        f"waits for all workers ({waiting.waits_in[0]}) after "
                        f"{counted(waiting.calls, 'call')}, but {other.name} is in "
                        f"call {other.calls} ({other.phase}), which needs all workers as well. "
                        "Every worker must run the same program, `save` and the making of "
                        "variables included: look for an `if` that depends on the worker"
                    )
                    self._fail_job("Mismatch", waiting, text)
                    return

    def _fail_job(self, kind: str, worker: WorkerRecord | None, text: str) -> None:
        """Ends the job for something that no worker has reported itself."""
        rank = None if worker is None else worker.rank
        self._event(EventKind.FAILED, rank, text, type=kind, message=text, traceback="", status=1)
        self._down(EventKind.FAILED, worker, text)

    def _all_done(self) -> None:
        self._done = True
        if self._watch is not None:
            self._watch.stop()
        self._broadcast({"op": "released"})
        preempted = any(each.status == RESTART_STATUS for each in self._workers)
        self._event(EventKind.DONE, None, status=RESTART_STATUS if preempted else 0)

    def _departing(self, worker: WorkerRecord, message: Message) -> None:
        worker.departing = True

    def _departed(self, worker: WorkerRecord, status: int | None) -> None:
        """Notes that a worker has ended as it had said; the others do not follow."""
        if worker.state is WorkerState.RUNNING:
            worker.state, worker.status = WorkerState.FINISHED, status or 0
            self._event(EventKind.FINISHED, worker.rank, calls=worker.calls, status=worker.status)
            if all(each.state is WorkerState.FINISHED for each in self._workers):
                self._all_done()

    def _lost(self, worker: WorkerRecord, text: str, status: int | None = None) -> None:
        if worker.departing:
            self._departed(worker, status)
        elif worker.in_job and not self._is_over:
            worker.state, worker.status = WorkerState.LOST, status
            self._event(EventKind.LOST, worker.rank, text, status=status)
            self._down(EventKind.LOST, worker, text)

    def _process_ended(self, worker: WorkerRecord, status: int) -> None:
        if self._is_over or worker.state in (WorkerState.FAILED, WorkerState.LOST):
            return
        text = how_it_ended(status)
        if worker.in_job:
            self._lost(worker, text, status)
            return
        worker.state, worker.status = WorkerState.ENDED, status
        self._reception.forget(worker)
        if status != 0:
            worker.state = WorkerState.LOST
            text += " before it joined the others"
            self._event(EventKind.LOST, worker.rank, text, status=status)
            self._down(EventKind.LOST, worker, text)
        self._check_ended()

    def _check_ended(self) -> None:
        """Programs that never join are none of our business, unless others wait for them."""
        ended = [each for each in self._workers if each.state is WorkerState.ENDED]
        if self._cause is not None or not ended:
            return
        if len(ended) == len(self._workers):
            self._done = True
            self._event(EventKind.DONE, None, status=0)
        elif self._attendance.hellos:
            text = "exited with status 0 before it joined the others"
            self._event(EventKind.LOST, ended[0].rank, text, status=0)
            self._down(EventKind.LOST, ended[0], text)

    def _down(self, kind: str, worker: WorkerRecord | None, text: str) -> None:
        """Ends the job: everybody is told once, with the first cause."""
        if self._is_over:
            return
        if self._watch is not None:
            self._watch.stop()
        rank = None if worker is None else worker.rank
        name = "" if worker is None else self._attendance.name(worker.rank)
        self._cause = cause = Cause(kind, rank, name, text)
        if self._started:
            self._broadcast(
                {"op": "down", "kind": kind, "worker": rank, "name": name, "text": text}
            )
        else:
            self._reception.refuse("lost", cause.line)
        self._event(EventKind.DOWN, rank, cause.line)

    # Watching.

    def _stacks(self, worker: WorkerRecord, message: Message) -> None:
        worker.stack = str(message["text"])
        if self._watch is not None:
            self._watch.answered()

    def _stalled(self) -> None:
        timeout, workers = self._stall_timeout or 0.0, self._workers
        worker = next(iter(_watchdog.suspects(workers)), None)
        text = _watchdog.verdict(workers, timeout)
        self._event(
            EventKind.STALLED,
            None if worker is None else worker.rank,
            text if worker is None else f"{worker.name} {text}",
            report=_watchdog.report(workers, timeout),
            stacks={each.rank: each.stack for each in workers},
        )
        self._down(EventKind.STALLED, worker, text)


_HANDLERS: dict[str, Callable[[ControlServer, WorkerRecord, Message], None]] = {
    "status": ControlServer._status,
    "publish": ControlServer._publish,
    "exchange": ControlServer._exchange,
    "missing?": ControlServer._missing,
    "failed": ControlServer._failed,
    "finished": ControlServer._finished,
    "stacks": ControlServer._stacks,
    "departing": ControlServer._departing,
}
