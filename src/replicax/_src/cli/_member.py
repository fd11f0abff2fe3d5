"""A launcher that does not lead: it starts and ends workers as the leader says.

The leader is the launcher of node 0, or another that took its place (`_succession.py`).
"""

import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import final

from replicax._src._typing import override
from replicax._src.cli._event_loop import EventLoop
from replicax._src.cli._log import Log
from replicax._src.cli._node import Launcher, NodePlan, OwnNode
from replicax._src.cli._node_messages import (
    LEADER,
    Arrival,
    BadMessage,
    End,
    Exit,
    NodeMessage,
    Ready,
    Refused,
    Say,
    Signal,
    Start,
    Welcome,
    parsed,
)
from replicax._src.cli._options import HOW_TO_GIVE_A_KEY, LaunchOptions
from replicax._src.cluster.control import (
    RESTART_STATUS,
    Link,
    Message,
    NobodyThere,
    WrongProgram,
    dial,
    is_proof,
    launcher_proof,
    new_challenge,
)


class _ToldToEnd(Exception):
    """The launcher was told to end while it waited, or another leads the job by now."""


@final
class Member(Launcher):
    """Takes part in a job: joins its leader, and does what it says until the job ends.

    Args:
      options: As `Launcher`; `coordinator` is where the leader listens.
      log, environment, loop: As `Launcher`.
      leader: The node that leads.
      still_leads: Asked all the time whether that node still leads; None: nobody else can.
      took_part: Whether this launcher has been in the job before.
    """

    def __init__(
        self,
        options: LaunchOptions,
        log: Log | None = None,
        environment: Mapping[str, str] | None = None,
        loop: EventLoop | None = None,
        leader: int = 0,
        still_leads: Callable[[], bool] | None = None,
        took_part: bool = False,
    ) -> None:
        super().__init__(options, log, environment, loop)
        self._leader = f"node {leader}"
        self._still_leads = still_leads
        self._took_part = took_part
        self._generation = 0
        self._status: int | None = None
        self._is_lost = False
        self._exits: dict[int, int] = {}
        self._challenge = new_challenge()
        self.is_in = False
        """Whether the leader has let it in."""
        self.host = ""
        """The address by which the leader knows this host."""

    @override
    def take_part(self, local: OwnNode) -> int | None:
        """Runs until the job ends; returns its exit status, or None if the leader is lost."""
        options = self._options
        self._log.say(
            f"node {options.node_rank}: connecting to the launcher of {self._leader} at "
            f"{options.coordinator} (at most {options.join_timeout:g} s)"
        )
        host, port = options.coordinator_address()
        try:
            link = self._link = dial(host, port, options.join_timeout, self._check_told)
        except NobodyThere as error:
            self._log.say(
                f"{self._leader} does not answer at {options.coordinator} after "
                f"{options.join_timeout:g} s ({error}). {self._how_to_mend_it()}"
            )
            return 1
        except WrongProgram as error:
            self._log.say(f"{error}. Choose another port for --coordinator, on all nodes.")
            return 1 if self._still_leads is None else None
        except _ToldToEnd:
            told = self._loop.told_to_end
            return None if told is None else 128 + told
        self._local = local
        self.host = link.local_address
        local.serve(link.local_address, self._exited, lambda rank, text: None)
        self._send(
            Arrival(
                rank=options.node_rank,
                nodes=str(options.nodes),
                workers=str(options.workers),
                host=link.local_address,
                addresses=self._local.addresses or [],
                challenge=self._challenge,
                proof=self._proof(f"node {options.node_rank}"),
            )
        )
        thread = threading.Thread(target=self._receive, name="replicax-node", daemon=True)
        thread.start()
        try:
            self._obey_until_the_end()
        finally:
            local.end()
            link.hang_up()
            thread.join(5)
            link.close()
        return self._status

    def _how_to_mend_it(self) -> str:
        if self._still_leads is not None:
            return "See that this host can reach it."
        return (
            "Start its launcher with --node-rank 0 and the same --coordinator, see that the port "
            "can be reached from here, or wait longer with --join-timeout."
        )

    def _obey_until_the_end(self) -> None:
        leave_at: float | None = None
        welcome_by = time.monotonic() + self._options.join_timeout
        while self._status is None and not self._is_lost:
            if self._still_leads is not None and not self._still_leads():
                self._lose_leader(f"{self._leader} leads the job no more")
                return
            if not self.is_in and time.monotonic() >= welcome_by:
                self._leave(
                    f"{self._leader} at {self._options.coordinator} has not answered in "
                    f"{self._options.join_timeout:g} s. Is its launcher stopped?",
                    1,
                )
                return
            local = self._local
            self._log.wait_for_room(0.02)
            self._loop.wait(leave_at, often=local.needs_polling)
            local.reap()
            told = self._loop.told_to_end
            if self._log.reader_is_gone:
                told, self._loop.hurry = signal.SIGPIPE, True
            if told is None:
                continue
            if leave_at is None:
                number, seconds = self._how_to_end(told)
                self._log.say(f"{signal.Signals(told).name}: ending the workers of this node")
                local.signal(number)
                leave_at = time.monotonic() + seconds
            if not local.running or self._loop.hurry or time.monotonic() >= leave_at:
                saved = RESTART_STATUS in self._exits.values()
                self._status = RESTART_STATUS if saved else 128 + told

    # --- messages --------------------------------------------------------------------------------

    def _receive(self) -> None:
        """Runs in a thread: hands the messages of the leader to the loop."""
        link: Link = self._link
        try:
            while True:
                message = link.receive(60.0)
                if message is not None:
                    self._loop.call_soon(lambda message=message: self._heard(message))
        except (EOFError, OSError, ValueError):
            self._loop.call_soon(self._lost_connection)

    def _heard(self, message: Message) -> None:
        if self._status is not None:
            return
        try:
            said = parsed(message)
            if isinstance(said, Refused):
                self._refused(said.text)
            elif self.is_in:
                self._obey(said)
            elif isinstance(said, Welcome):
                self._enter(said)
            else:
                raise BadMessage(f"{said.op!r} before a welcome")
        except BadMessage as error:
            self._leave(
                f"what listens at {self._options.coordinator} does not talk like a launcher "
                f"({error}). Install the same version of replicax on all nodes.",
                1,
            )

    def _enter(self, welcome: Welcome) -> None:
        """Goes in where the leader has let this node in, if it has the key as well."""
        if self._options.key is None or is_proof(welcome.proof, self._proof(LEADER)):
            self.is_in = True
            return
        self._leave(
            f"{self._leader} at {self._options.coordinator} has not shown that it has the key that "
            f"this launcher has. {HOW_TO_GIVE_A_KEY}",
            2,
        )

    def _proof(self, who: str) -> str:
        key = self._options.key
        return (
            "" if key is None else launcher_proof(key, who, self._link.challenge, self._challenge)
        )

    def _obey(self, said: NodeMessage) -> None:
        if isinstance(said, Start):
            self._generation = said.generation
            self._exits.clear()
            places, ranks = range(self._options.workers.most), range(len(said.cluster))
            if not all(place in places and rank in ranks for place, rank in said.seats):
                raise BadMessage(f"{said.seats!r:.60} are not workers of this node")
            self._local.start(NodePlan(said.cluster, said.environment, said.seats))
        elif isinstance(said, Signal):
            self._local.signal(said.number)
            # One that was told to end leaves; it is not ready for another generation.
            if said.number == signal.SIGKILL and self._loop.told_to_end is None:
                self._send(Ready(self._generation, self._local.addresses or []))
        elif isinstance(said, Say):
            self._log.say(said.text)
        elif isinstance(said, End):
            self._status = said.status
        else:
            raise BadMessage(f"a leader does not say {said.op!r} to a member")

    def _leave(self, text: str, status: int) -> None:
        self._log.say(text)
        self._status = status

    def _lost_connection(self) -> None:
        gone = f"the launcher of {self._leader} ({self._options.coordinator}) is gone"
        if self._still_leads is not None:
            self._lose_leader(gone)
        elif self._status is None:
            self._leave(f"{gone}; ending the workers of this node", 1)

    def _refused(self, text: str) -> None:
        # One that was lost for a while may be there twice, until the leader has noticed the loss.
        if self._still_leads is not None and (self._took_part or self.is_in):
            self._lose_leader(text)
        else:
            self._leave(text, 2)

    def _lose_leader(self, text: str) -> None:
        if self._status is None and not self._is_lost:
            self._log.say(f"{text}; ending the workers of this node")
            self._is_lost = True

    def _exited(self, rank: int, status: int) -> None:
        self._exits[rank] = status
        self._send(Exit(self._generation, rank, status))

    def _send(self, said: NodeMessage) -> None:
        try:
            self._link.send(said.message)
        except OSError:
            # The thread that receives tells of the end, after all that has come before it: the
            # leader may have said that the job is over.
            self._link.hang_up()

    def _check_told(self) -> None:
        self._loop.run_calls()
        if self._loop.told_to_end is not None:
            raise _ToldToEnd
        if self._still_leads is not None and not self._still_leads():
            raise _ToldToEnd
