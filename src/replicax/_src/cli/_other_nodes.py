"""The other nodes, as the launcher that leads sees them: a connection to each of their launchers.

What is said is in `_node_messages.py`; the other side is `_member.py`. The sockets have a thread of
their own (`MessageLoop`). There, a `_Visitor` checks what comes, and that a launcher has the key: a
stranger is turned away without a word to anybody else. What a member says is handed to the
launcher's loop; so everything else runs in the launcher's thread.
"""

import time
from collections.abc import Callable
from typing import Protocol, final

from replicax._src._typing import override
from replicax._src.cli._event_loop import EventLoop
from replicax._src.cli._node import JobNode, NodePlan
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
from replicax._src.cli._options import HOW_TO_GIVE_A_KEY, LaunchOptions, Usage
from replicax._src.cluster.control import (
    Connection,
    FramingError,
    Message,
    MessageLoop,
    is_proof,
    launcher_proof,
    process_at_port,
)

_SECONDS_TO_HANG_UP = 5.0  # for one that is told of the end


class NodeEvents(Protocol):
    """Who is told what happens on other nodes: the `Launch`."""

    def note_exit(self, rank: int, status: int) -> None:
        """Notes that a worker has ended."""
        ...

    def lose_node(self, rank: int, text: str) -> None:
        """Notes that a launcher is gone, and its workers with it."""
        ...

    def say(self, text: str) -> None:
        """Adds a line to the log."""
        ...


@final
class OtherNode(JobNode):
    """A node elsewhere."""

    def __init__(self, arrival: Arrival, send: Callable[[NodeMessage], None]) -> None:
        self.rank = arrival.rank
        self.host = arrival.host
        self.addresses: list[str] | None = arrival.addresses
        self.generation = 0
        """How many times it was told to start; what it says about an earlier time is old news."""
        self.ranks: frozenset[int] = frozenset()
        """Of its workers, in this generation."""
        self.send = send

    @override
    def start(self, plan: NodePlan) -> None:
        """Has its launcher start its workers."""
        self.addresses = None
        self.generation += 1
        self.ranks = frozenset(rank for _, rank in plan.seats)
        self.send(Start(self.generation, plan.cluster, plan.environment, plan.seats))

    @override
    def signal(self, number: int) -> None:
        """Has its launcher send a signal to its workers."""
        self.send(Signal(int(number)))


@final
class _Visitor:
    """A connection before and after its launcher is let in. Lives in the thread of the sockets."""

    def __init__(self, options: LaunchOptions, connection: Connection) -> None:
        self.node: OtherNode | None = None
        """Set in the launcher's thread, once it takes part."""
        self.welcome = Welcome("")
        """What shows the member that this is the leader: it has the key too, if there is one."""
        self._options = options
        self._connection = connection
        self._is_in = False

    def heard(self, message: Message) -> NodeMessage | None:
        """Returns what the launcher has to know of; BadMessage closes the connection."""
        if not self._is_in:
            return self._introduced(Arrival.of(message))
        said = parsed(message)
        if not isinstance(said, Ready | Exit):
            raise BadMessage(f"a node does not say {said.op!r}")
        self._check_addresses(said)
        return said

    def _introduced(self, arrival: Arrival) -> NodeMessage | None:
        """Lets a launcher in that has the key, if there is one."""
        ours, who = self._options, f"node {arrival.rank}"
        if ours.key is not None:
            challenges = self._connection.challenge, arrival.challenge
            if not is_proof(arrival.proof, launcher_proof(ours.key, who, *challenges)):
                us = f"node {ours.node_rank}"
                problem = f"{us} at {ours.coordinator} asks for a key"
                if arrival.proof:
                    problem = f"{who} has another key than {us}"
                refusal = Refused(f"{problem}. {HOW_TO_GIVE_A_KEY}")
                self._connection.send_last(refusal.message)
                return refusal if arrival.proof else None
            self.welcome = Welcome(launcher_proof(ours.key, LEADER, *challenges))
        self._check_addresses(arrival)
        self._is_in = True
        return arrival

    def _check_addresses(self, said: NodeMessage) -> None:
        if isinstance(said, Arrival) and said.workers != str(self._options.workers):
            return  # which the launcher explains
        if isinstance(said, Arrival | Ready) and (
            len(said.addresses) != self._options.workers.most
        ):
            raise BadMessage(f"{len(said.addresses)} addresses")


@final
class OtherNodes:
    """Takes in the launchers of other nodes, as they come and go."""

    def __init__(
        self,
        options: LaunchOptions,
        loop: EventLoop,
        nodes: dict[int, JobNode],
        events: NodeEvents,
    ) -> None:
        self._options = options
        self._loop = loop
        self._nodes = nodes
        self._events = events
        self._turned_away: set[str] = set()
        self._is_closing = False
        host, port = options.coordinator_address()
        try:
            self._messages = MessageLoop(
                host,
                port,
                peers=options.nodes.most,
                name="replicax-nodes",
                on_message=self._received,
                on_close=lambda connection, reason: loop.call_soon(
                    lambda: self._lost(connection, reason)
                ),
            )
        except OSError as error:
            holder = process_at_port(port)
            raise Usage(
                f"--coordinator {options.coordinator}: this launcher leads the job and cannot "
                f"listen there ({error.strerror or error}{f'; {holder} does' if holder else ''}). "
                "Choose a free port of this host, the same on all nodes."
            ) from error
        self._messages.start()

    def say(self, text: str) -> None:
        """Adds a line to the logs of the other nodes."""
        self._send_all(Say(text))

    def drop_those_not_ready(self, seconds: float) -> None:
        """Gives up the nodes that have not ended their workers in time."""
        for rank, node in list(self._nodes.items()):
            if isinstance(node, OtherNode) and node.addresses is None:
                del self._nodes[rank]
                text = f"node {rank} ({node.host}) has not ended its workers in {seconds:g} s"
                node.send(Refused(f"{text}; the others go on without it"))
                self._events.say(text)

    def close(self, status: int | None) -> None:
        """Tells the other launchers how the job ended, if it did, and ends all connections."""
        self._is_closing = True
        if status is not None:
            self._send_all(End(status))
            # They hang up. Whoever closes first, with a message of theirs on its way, takes back
            # what has not arrived yet.
            deadline = time.monotonic() + _SECONDS_TO_HANG_UP
            while self._has_members() and time.monotonic() < deadline and not self._loop.hurry:
                self._loop.wait(deadline)
        self._messages.stop()

    def _has_members(self) -> bool:
        return any(isinstance(node, OtherNode) for node in self._nodes.values())

    def _send_all(self, said: NodeMessage) -> None:
        for node in self._nodes.values():
            if isinstance(node, OtherNode):
                node.send(said)

    # --- in the thread of the sockets ------------------------------------------------------------

    def _received(self, connection: Connection, message: Message) -> None:
        if connection.data is None:
            connection.data = _Visitor(self._options, connection)
        visitor: _Visitor = connection.data
        try:
            said = visitor.heard(message)
        except ValueError as error:
            raise FramingError(str(error)) from error
        if said is not None:
            self._loop.call_soon(lambda: self._heard(connection, visitor, said))

    # --- in the launcher's thread ----------------------------------------------------------------

    def _send(self, connection: Connection, said: NodeMessage) -> None:
        self._messages.call(lambda: connection.send(said.message))

    def _heard(self, connection: Connection, visitor: _Visitor, said: NodeMessage) -> None:
        node = visitor.node
        if isinstance(said, Arrival):
            self._take_in(connection, visitor, said)
        elif isinstance(said, Refused):
            self._tell_of_a_stranger(connection, said)
        elif node is None:
            pass  # it was refused, and talks on
        elif isinstance(said, Ready):
            if said.generation == node.generation:
                node.addresses = said.addresses
        elif isinstance(said, Exit):
            if said.generation == node.generation and said.rank in node.ranks:
                self._events.note_exit(said.rank, said.status)

    def _take_in(self, connection: Connection, visitor: _Visitor, arrival: Arrival) -> None:
        problem = self._problem_with(arrival)
        if problem:
            self._messages.call(lambda: connection.send_last(Refused(problem).message))
            return
        self._messages.call(connection.trust)
        node = OtherNode(arrival, lambda said: self._send(connection, said))
        visitor.node = self._nodes[node.rank] = node
        node.send(visitor.welcome)
        self._events.say(f"node {node.rank} ({node.host}) has joined")

    def _tell_of_a_stranger(self, connection: Connection, refusal: Refused) -> None:
        host = connection.peer.rpartition(":")[0]
        if host not in self._turned_away:  # one that tries again and again must not fill the log
            self._turned_away.add(host)
            self._events.say(f"turned away {host}: {refusal.text}")

    def _problem_with(self, arrival: Arrival) -> str | None:
        """Returns why a launcher cannot take part, or None."""
        rank, ours = arrival.rank, self._options
        there = self._nodes.get(rank)
        if there is not None:
            at = there.host if isinstance(there, OtherNode) else ours.coordinator
            return (
                f"there is a node {rank} already, at {at}. Give each launcher a --node-rank of its "
                f"own: 0 to {ours.nodes.most - 1}."
            )
        for option, here, theirs in (
            ("--nodes", str(ours.nodes), arrival.nodes),
            ("--workers", str(ours.workers), arrival.workers),
        ):
            if here != theirs:
                return (
                    f"node {rank} was started with {option} {theirs}, node {ours.node_rank} with "
                    f"{option} {here}. Start all launchers with the same options."
                )
        if rank >= ours.nodes.most:  # its own options do not allow it: somebody made it up
            return f"there is no node {rank}: the nodes are 0 to {ours.nodes.most - 1}."
        return None

    def _lost(self, connection: Connection, reason: str | None) -> None:
        visitor: _Visitor | None = connection.data
        node = None if visitor is None else visitor.node
        if node is not None and self._nodes.get(node.rank) is node:
            del self._nodes[node.rank]
            if self._is_closing:
                return
            text = f"the launcher of node {node.rank} ({node.host}) is gone"
            self._events.lose_node(node.rank, text)
            self._events.say(text)
