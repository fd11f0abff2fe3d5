"""`ControlClient`: a worker's end of the control plane: one connection, one thread.

Any thread may send; the client's own thread receives, and sleeps otherwise. It samples `progress`
four times a second, answers for the stacks of this process, and is the one that notices the end of
the job: then it calls `on_down`, which does not come back in a real worker (the main thread may be
waiting in a collective that will never end, where no exception can reach it).
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any, final

from replicax._src._errors import ClusterConfigError, WorkerLostError, WorkersMissingError
from replicax._src.cluster.control._attendance import Hello
from replicax._src.cluster.control._dial import Link
from replicax._src.cluster.control._framing import FramingError
from replicax._src.cluster.control._progress import WorkerProgress
from replicax._src.cluster.control._proof import is_proof, new_challenge, server_proof, worker_proof
from replicax._src.cluster.control._types import Cause, Message

_SAMPLE_SECONDS = 0.25
_HEARTBEAT_SECONDS = 1.0
# Messages kept for a topic that nobody has subscribed to yet.
_MOST_WAITING = 1000

_OWN_THREADS = ("replicax-control", "replicax-relay")

Subscriber = Callable[[Any, int], None]


@final
class Verdict:
    """The server's go-ahead: where JAX's coordinator is, and the watchdog's patience."""

    def __init__(self, message: Message) -> None:
        self.coordinator: str | None = message["coordinator"]
        self.stall_timeout: float | None = message["stall"]
        self.names: list[str] = list(message["names"])


@final
class _Waiter:
    """A thread that waits in an exchange."""

    __slots__ = ("answer", "done")

    def __init__(self) -> None:
        self.answer: Message | None = None
        self.done = threading.Lock()  # the cheapest thing that a thread can wait for
        self.done.acquire()

    def release(self, answer: Message | None) -> None:
        if self.done.locked():
            self.answer = answer
            with contextlib.suppress(RuntimeError):
                self.done.release()


@final
class ControlClient:
    """Says hello on a link, and serves it after the verdict.

    Args:
      link: To the server.
      key: Of the job; each side shows the other that it has it.
      server: Who that is, for messages: "worker 0 (host:port)" or "the launcher at host:port".
      server_rank: The worker that hosts the server; None for a launcher.
      progress: What to tell of this worker.
      on_down: Called once, in the client's thread, with the reason for which the job is over.
    """

    def __init__(
        self,
        link: Link,
        key: str,
        server: str,
        server_rank: int | None,
        progress: WorkerProgress,
        on_down: Callable[[Cause], None],
    ) -> None:
        self._link = link
        self._key = key
        self._challenge = new_challenge()
        self._server = server
        self._server_rank = server_rank
        self._progress = progress
        self._on_down = on_down
        self._stall_timeout: float | None = None
        self._heartbeat = _HEARTBEAT_SECONDS
        self._lock = threading.Lock()
        self._waiters: dict[tuple[str, int], _Waiter] = {}
        self._counts: dict[str, int] = {}
        self._subscribers: dict[str, list[Subscriber]] = {}
        self._unclaimed: dict[str, deque[tuple[Any, int]]] = {}
        self._thread: threading.Thread | None = None
        self._sent: tuple[Any, ...] = ()
        self._sent_at = 0.0
        self.cause: Cause | None = None
        self.is_down = threading.Event()
        self.is_released = threading.Event()
        # The number of the last call that all workers can take part in, and who finished after it.
        self.last_call: float = math.inf
        self.finished_first = ""

    # Joining, in the thread of the caller.

    def meet(self, hello: Hello, timeout: float) -> Verdict:
        """Says hello and waits for the verdict.

        Raises:
          ClusterConfigError: The workers do not agree.
          WorkersMissingError: Some did not come, or the server went away.
          WorkerLostError: One failed before all were there.
        """
        end = time.monotonic() + timeout
        challenges = self._link.challenge, self._challenge
        has_key = False
        try:
            self._say_hello(hello)
            while (message := self._link.receive(max(0.0, end - time.monotonic()))) is not None:
                if message["op"] == "verdict":
                    break
                if message["op"] == "welcome":
                    expected = server_proof(self._key, *challenges)
                    has_key = is_proof(str(message.get("proof")), expected)
        except (EOFError, OSError, FramingError) as error:
            raise WorkersMissingError(
                f"{self._server} went away while worker {hello.worker} waited there for the other "
                f"workers ({error}). Its own output says why."
            ) from None
        if message is None:
            raise WorkersMissingError(
                f"{self._server} has not said within {timeout:g} s whether the workers may start. "
                "Is its process stopped or very slow?"
            )
        if not message["ok"]:
            kinds = {"config": ClusterConfigError, "missing": WorkersMissingError}
            raise kinds.get(message["kind"], WorkerLostError)(message["text"])
        if not has_key:
            raise ClusterConfigError(
                f"{self._server} has not shown that it has the key of this job. Give all workers "
                "the same REPLICAX_JOB."
            )
        verdict = Verdict(message)
        self._stall_timeout = verdict.stall_timeout
        if verdict.stall_timeout is not None:
            self._heartbeat = min(_HEARTBEAT_SECONDS, verdict.stall_timeout / 3)
        return verdict

    def _say_hello(self, hello: Hello) -> None:
        challenges = self._link.challenge, self._challenge
        proof = worker_proof(self._key, hello.worker, *challenges)
        self._link.send({**hello.message(), "challenge": self._challenge, "proof": proof})

    def start(self) -> None:
        """Starts the thread; after the verdict."""
        self._thread = threading.Thread(target=self._run, name="replicax-control", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Hangs up and ends the thread."""
        self._link.hang_up()
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join(5.0)
        self._link.close()

    def forget(self) -> None:
        """Gives up the descriptor in a forked child: the parent's end must be seen as its end."""
        self._link.close()

    # Talking, in any thread.

    def publish(self, topic: str, payload: object) -> None:
        """Sends a message to all workers, this one too, in one order for all."""
        self._send({"op": "publish", "topic": topic, "payload": payload})

    def subscribe(self, topic: str, fn: Subscriber) -> None:
        """Calls `fn(payload, worker)` in the client's thread for each message of the topic.

        What came before the first subscriber is delivered to it first, in the caller's thread.
        """
        with self._lock:
            for payload, worker in self._unclaimed.pop(topic, ()):
                fn(payload, worker)
            self._subscribers.setdefault(topic, []).append(fn)

    def put(self, topic: str, number: int, payload: object) -> None:
        """Puts a payload into an exchange of the topic, and does not wait for the others."""
        self._send({"op": "exchange", "topic": topic, "n": number, "payload": payload})

    def exchange(
        self, topic: str, payload: object, timeout: float, number: int | None = None
    ) -> list[Any]:
        """Puts in a payload and returns those of all workers, by worker.

        `number`: which exchange of the topic it is; the next one by default.

        Raises:
          WorkersMissingError: Somebody put nothing in within `timeout` seconds.
          WorkerLostError: Somebody never will, because it has finished or failed.
        """
        if threading.current_thread() is not threading.main_thread():
            return self._exchange(topic, payload, timeout, number, None)
        with self._progress.waiting(topic):
            return self._exchange(topic, payload, timeout, number, self._progress.calls)

    def _exchange(
        self, topic: str, payload: object, timeout: float, number: int | None, calls: int | None
    ) -> list[Any]:
        """Exchanges; `calls` is how many it has made, if it makes no more until this is over."""
        waiter = _Waiter()
        with self._lock:
            if number is None:
                number = self._counts.get(topic, 0)
                self._counts[topic] = number + 1
            self._waiters[topic, number] = waiter
        try:
            self._raise_if_down()
            self._send(
                {
                    "op": "exchange",
                    "topic": topic,
                    "n": number,
                    "payload": payload,
                    "calls": calls,
                }
            )
            if not waiter.done.acquire(timeout=timeout):
                # The server knows who is missing; its answer comes the same way.
                self._send({"op": "missing?", "topic": topic, "n": number})
                waiter.done.acquire(timeout=1.0)
        finally:
            with self._lock:
                self._waiters.pop((topic, number), None)
        answer = waiter.answer
        if answer is not None and answer["op"] == "exchanged":
            return answer["parts"]
        self._raise_if_down()
        if answer is not None and answer["gone"]:
            raise WorkerLostError(
                f"The exchange {topic!r} (number {number + 1}) can never be complete, because some "
                f"workers have left: {answer['text']}. All workers must take part in it equally "
                "often."
            )
        missing = answer["text"] if answer is not None else f"no answer from {self._server} either"
        raise WorkersMissingError(
            f"Waited {timeout:g} s for the other workers in the exchange {topic!r} (number "
            f"{number + 1}); missing: {missing}. All workers must take part in it equally often."
        )

    def fail(self, error: str, message: str, trace: str, status: int, doubtful: bool) -> None:
        """Reports that this worker has failed. Doubtful: perhaps because another has."""
        self._send(
            {
                "op": "failed",
                "type": error,
                "message": message[:10_000],
                "traceback": trace[-100_000:],
                "status": status,
                "doubtful": doubtful,
            }
        )

    def depart(self) -> None:
        """Says that this worker ends now, on purpose, with whatever status."""
        self._send({"op": "departing"})

    def finish(self, status: int) -> None:
        """Reports that this worker has come to its end."""
        calls, called = self._progress.calls, self._progress.take_runs()
        self._send({"op": "finished", "calls": calls, "called": called, "status": status})

    def _send(self, message: Message) -> None:
        try:
            self._link.send(message)
        except OSError:
            pass  # the receiving thread notices the same end, and knows what to do

    def _raise_if_down(self) -> None:
        if self.cause is not None:
            raise WorkerLostError(self.cause.line)

    # The thread.

    def _run(self) -> None:
        heard = time.monotonic()
        try:
            while not self.is_down.is_set():
                message = self._link.receive(_SAMPLE_SECONDS)
                now = time.monotonic()
                if message is not None:
                    heard = now
                    self._take(message)
                elif self._stall_timeout is not None and now - heard > self._stall_timeout + 1:
                    # A server that is alive is the first to know, and tells more.
                    self._server_gone(f"has been silent for {now - heard:.0f} s")
                    return
                if now - self._sent_at >= min(_SAMPLE_SECONDS, self._heartbeat):
                    self._tell(now)
        except (EOFError, OSError, FramingError) as error:
            if not self.is_released.is_set():
                reason = "" if isinstance(error, EOFError) else f" ({error})"
                if self._server_rank is None:
                    self._server_gone(f"is gone: its connection closed{reason}")
                else:
                    self._server_gone(f"was killed or crashed: its connection closed{reason}")

    def _tell(self, now: float) -> None:
        sample = self._progress.sample()
        if sample != self._sent:
            calls, phase, step, busy = self._sent = sample
            self._send(
                {
                    "op": "status",
                    "calls": calls,
                    "called": self._progress.take_runs(),
                    "phase": phase,
                    "step": step,
                    "busy": busy,
                }
            )
            self._sent_at = now
        elif now - self._sent_at >= self._heartbeat:
            self._send({"op": "beat"})
            self._sent_at = now

    def _take(self, message: Message) -> None:
        op = message["op"]
        if op in ("exchanged", "unanswered"):
            with self._lock:
                waiter = self._waiters.pop((message["topic"], message["n"]), None)
            if waiter is not None:
                waiter.release(message)
        elif op == "message":
            self._deliver(message["topic"], message["payload"], message["worker"])
        elif op == "finished":
            if message["calls"] < self.last_call:
                self.finished_first = message["name"]
                self.last_call = message["calls"]
            self._tell(time.monotonic())  # it may be too few already
        elif op == "released":
            self.is_released.set()
        elif op == "stacks?":
            self._send({"op": "stacks", "text": stacks()})
        elif op == "down":
            self._down(Cause(message["kind"], message["worker"], message["name"], message["text"]))

    def _deliver(self, topic: str, payload: object, worker: int) -> None:
        with self._lock:
            subscribers = list(self._subscribers.get(topic, ()))
            if not subscribers:
                kept = self._unclaimed.setdefault(topic, deque(maxlen=_MOST_WAITING))
                kept.append((payload, worker))
        for fn in subscribers:
            try:
                fn(payload, worker)
            except Exception:  # this thread must live on
                traceback.print_exc(file=sys.stderr)

    def _server_gone(self, text: str) -> None:
        if self._server_rank is None:
            self._down(Cause("lost", None, "", f"{self._server} {text}"))
        else:
            self._down(Cause("lost", self._server_rank, self._server, text))

    def _down(self, cause: Cause) -> None:
        self.cause = cause
        self.is_down.set()
        with self._lock:
            waiters = list(self._waiters.values())
        for waiter in waiters:
            waiter.release(None)
        self._on_down(cause)


def stacks() -> str:
    """Returns the Python stacks of this process, the main thread first; not of our own threads."""
    threads = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    blocks = []
    frames = sys._current_frames()
    for ident in sorted(frames, key=lambda each: each != main):
        name = threads.get(ident, "unknown")
        if not name.startswith(_OWN_THREADS):
            blocks.append(f"thread {name}:\n{''.join(traceback.format_stack(frames[ident]))}")
    return "\n".join(blocks)
