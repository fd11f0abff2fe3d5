"""`Reception`: from the first hello to the verdict, which is one for all who have come.

Everything here runs in the thread of the server's loop. Whoever is left over from another run, or
comes when the job is running already, is turned away alone and disturbs nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from replicax._src.cluster.control._attendance import Attendance, Hello
from replicax._src.cluster.control._loop import Connection, MessageLoop
from replicax._src.cluster.control._proof import is_proof, server_proof, worker_proof
from replicax._src.cluster.control._records import WorkerRecord
from replicax._src.cluster.control._types import Message, sentence

# When workers disagree, the others may still come and be told, and their mistakes collected.
_LATECOMERS_SECONDS = 2.0
# As many processes too many are told what the others are told.
_MOST_VISITORS = 32


@final
class Reception:
    """Receives the workers of a job.

    Args:
      workers: Those who are expected.
      names: How to call them before they have said it themselves.
      key: What every worker must show that it has.
      generation: And which attempt it must belong to.
      join_timeout: Seconds from the first arrival until all must be there.
      on_arrived: Called with each worker that has come.
      on_complete: Called when all are there and agree.
      on_refused: Called with the kind of the mistake and the reason for which nobody may start.
    """

    def __init__(
        self,
        workers: Sequence[WorkerRecord],
        names: Sequence[str],
        key: str,
        generation: int,
        join_timeout: float,
        on_arrived: Callable[[Hello], None],
        on_complete: Callable[[], None],
        on_refused: Callable[[str, str], None],
    ) -> None:
        self.attendance = Attendance(len(workers), list(names))
        self._workers = workers
        self._key = key
        self._generation = generation
        self._join_timeout = join_timeout
        self._on_arrived = on_arrived
        self._on_complete = on_complete
        self._on_refused = on_refused
        self._visitors: list[Connection] = []  # processes too many, to be told as well
        self._visits = 0
        self._refusal: Message | None = None
        self._started = False
        self._counting_down = False
        self._deciding = False

    def hello(self, loop: MessageLoop, connection: Connection, message: Message) -> None:
        """Receives somebody who says who it is; ValueError if it does not."""
        hello = Hello.of(message)
        challenges = connection.challenge, str(message["challenge"])
        where = f"{loop.bound_address[0]}:{loop.port}"
        shown = is_proof(str(message["proof"]), worker_proof(self._key, hello.worker, *challenges))
        if not shown or hello.generation != self._generation:
            connection.send_last(
                _refusal(
                    "config",
                    f"{hello.process} says that it is worker {hello.worker} of another job or of "
                    f"generation {hello.generation}; at {where} is generation {self._generation}. "
                    "It may be left over from an earlier run: end it, give all workers of a job "
                    "the same REPLICAX_JOB, and every job a port of its own",
                )
            )
        elif self._refusal is not None:  # it comes late, and hears what the others heard
            connection.send_last(self._refusal)
        elif self._started:
            connection.send_last(_refusal("config", self._one_too_many(hello, where)))
        else:
            connection.send({"op": "welcome", "proof": server_proof(self._key, *challenges)})
            self._receive(loop, hello, connection)

    def left(self, connection: Connection) -> None:
        """Notes that a connection has closed, which may be one of those too many."""
        if connection in self._visitors:
            self._visitors.remove(connection)

    def forget(self, worker: WorkerRecord) -> None:
        """Forgets a worker that has gone before the verdict: it may be started again."""
        worker.pid = worker.host = None
        self.attendance.leave(worker.rank)

    def refuse(self, kind: str, text: str) -> None:
        """Lets nobody start: one verdict for all who are there, and who come later."""
        if self._started or self._refusal is not None:
            return
        self._refusal = _refusal(kind, text)
        for worker in self._workers:
            if worker.connection is not None:
                worker.connection.send_last(self._refusal)
        for visitor in list(self._visitors):
            visitor.send_last(self._refusal)

    def _receive(self, loop: MessageLoop, hello: Hello, connection: Connection) -> None:
        if not self._counting_down:
            self._counting_down = True
            loop.call_later(self._join_timeout, self._too_late)
        is_new = hello.worker not in self.attendance.hellos
        is_expected = is_new and hello.worker < len(self._workers)
        if not is_expected:
            self._visits += 1
            if self._visits > _MOST_VISITORS:
                connection.close()
                return
        self.attendance.arrive(hello)
        if is_expected:
            connection.trust()
            worker = self._workers[hello.worker]
            worker.arrive(hello, connection)
            connection.data = worker
            self._on_arrived(hello)
        else:  # it stays a stranger, and is told within seconds
            self._visitors.append(connection)
        problems = self.attendance.problems()
        if problems and not self.attendance.complete:
            if not self._deciding:
                self._deciding = True
                loop.call_later(_LATECOMERS_SECONDS, self._decide)
        elif problems:
            self._decide()
        elif self.attendance.complete and self._refusal is None:
            self._started = True
            self._on_complete()

    def _decide(self) -> None:
        self._deciding = False
        problems = self.attendance.problems()
        if problems and not self._started and self._refusal is None:
            text = " ".join(sentence(each) for each in problems)
            self.refuse("config", text)
            self._on_refused("config", text)

    def _too_late(self) -> None:
        self._counting_down = False
        if self._started or not self.attendance.hellos:
            return
        self._decide()
        if self._refusal is None:
            text = self.attendance.absent_text(self._join_timeout)
            self.refuse("missing", text)
            self._on_refused("missing", text)

    def _one_too_many(self, hello: Hello, where: str) -> str:
        there = self.attendance.hellos.get(hello.worker)
        return (
            f"the job at {where} is running already"
            + (f", and its worker {hello.worker} is {there.process}" if there else "")
            + f"; {hello.process} is one too many. Give every process its own task index and every "
            "job a port of its own"
        )


def _refusal(kind: str, text: str) -> Message:
    return {"op": "verdict", "ok": False, "kind": kind, "text": sentence(text)}
