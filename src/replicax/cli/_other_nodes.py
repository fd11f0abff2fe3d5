"""The other nodes, as the launcher of node 0 sees them: a connection to each of their launchers.

Messages of a member: `node` (here I am), `ready` (my workers are gone; new addresses), `exit` (a
worker has ended). To a member: `welcome` or `refused`, `start`, `signal`, `say`, `end`. Its side is
in `_member.py`. The sockets have a thread of their own (`MessageLoop`), which hands
everything to the launcher's loop; so all of this runs in the launcher's thread.
"""

from collections.abc import Callable
from typing import Any, Protocol

from replicax.cli._event_loop import EventLoop
from replicax.cli._node import Node, Plan
from replicax.cli._options import LaunchOptions, Usage
from replicax.cluster.control import Connection, MessageLoop
from replicax.cluster.control._sockets import process_at_port

Message = dict[str, Any]


class NodeEvents(Protocol):
    """Who is told what happens on other nodes: the `Launch`."""

    def note_exit(self, rank: int, status: int) -> None:
        """A worker has ended."""
        ...

    def lose_node(self, rank: int, text: str) -> None:
        """A launcher is gone, and its workers with it."""
        ...

    def say(self, text: str) -> None:
        """Adds a line to the log."""
        ...


class OtherNode:
    """A node elsewhere."""

    def __init__(self, rank: int, host: str, send: Callable[[Message], None]) -> None:
        self.rank = rank
        self.host = host
        self.addresses: list[str] | None = None
        self.generation = 0
        """How many times it was told to start; what it says about an earlier time is old news."""
        self.send = send

    def start(self, plan: Plan) -> None:
        """Has its launcher start its workers."""
        self.addresses = None
        self.generation += 1
        self.send(
            {
                "op": "start",
                "generation": self.generation,
                "cluster": plan.cluster,
                "environment": plan.environment,
                "seats": plan.seats,
            }
        )

    def signal(self, number: int) -> None:
        """Has its launcher send a signal to its workers."""
        self.send({"op": "signal", "number": int(number)})


class OtherNodes:
    """Takes in the launchers of other nodes, as they come and go."""

    def __init__(
        self,
        options: LaunchOptions,
        loop: EventLoop,
        nodes: dict[int, Node],
        events: NodeEvents,
    ) -> None:
        self._options = options
        self._nodes = nodes
        self._events = events
        host, port = options.coordinator_address()
        try:
            self._messages = MessageLoop(
                host,
                port,
                name="replicax-nodes",
                on_message=lambda connection, message: loop.call_soon(
                    lambda: self._heard(connection, message)
                ),
                on_close=lambda connection, reason: loop.call_soon(
                    lambda: self._lost(connection, reason)
                ),
            )
        except OSError as error:
            holder = process_at_port(port)
            raise Usage(
                f"--coordinator {options.coordinator}: this launcher is node 0 and cannot listen "
                f"there ({error.strerror or error}{f'; {holder} does' if holder else ''}). Choose "
                "a free port of this host, the same on all nodes."
            ) from error
        self._messages.start()

    def say(self, text: str) -> None:
        """Adds a line to the logs of the other nodes."""
        self._send_all({"op": "say", "text": text})

    def drop_those_not_ready(self, seconds: float) -> None:
        """Gives up the nodes that have not ended their workers in time."""
        for rank, node in list(self._nodes.items()):
            if isinstance(node, OtherNode) and node.addresses is None:
                del self._nodes[rank]
                text = f"node {rank} ({node.host}) has not ended its workers in {seconds:g} s"
                node.send({"op": "refused", "text": f"{text}; the others go on without it"})
                self._events.say(text)

    def close(self, status: int) -> None:
        """Tells the other launchers how the job ended, and ends all connections."""
        self._send_all({"op": "end", "status": status})
        self._messages.stop()

    def _send_all(self, message: Message) -> None:
        for node in self._nodes.values():
            if isinstance(node, OtherNode):
                node.send(message)

    def _send(self, connection: Connection, message: Message) -> None:
        self._messages.call(lambda: connection.send(message))

    def _heard(self, connection: Connection, message: Message) -> None:
        node: OtherNode | None = connection.data
        if message["op"] == "node":
            self._take_in(connection, message)
        elif node is None:
            self._messages.call(connection.close)
        elif message["op"] == "ready":
            if message["generation"] == node.generation:
                node.addresses = message["addresses"]
        elif message["op"] == "exit":
            if message["generation"] == node.generation:
                self._events.note_exit(message["rank"], message["status"])

    def _take_in(self, connection: Connection, message: Message) -> None:
        problem = self._problem_with(message)
        if problem:
            self._send(connection, {"op": "refused", "text": problem})
            return
        rank = message["rank"]
        node = OtherNode(rank, message["host"], lambda each: self._send(connection, each))
        node.addresses = message["addresses"]
        connection.data = self._nodes[rank] = node
        self._messages.call(connection.trust)
        node.send({"op": "welcome"})
        self._events.say(f"node {rank} ({node.host}) has joined")

    def _problem_with(self, message: Message) -> str | None:
        """Returns why a launcher cannot take part, or None."""
        rank, ours = message.get("rank"), self._options
        there = self._nodes.get(rank) if isinstance(rank, int) else None
        if there is not None or rank == 0:
            at = there.host if isinstance(there, OtherNode) else ours.coordinator
            return (
                f"there is a node {rank} already, at {at}. Give each launcher a --node-rank of its "
                f"own: 0 to {ours.nodes.most - 1}."
            )
        for option, here, theirs in (
            ("--nodes", str(ours.nodes), message.get("nodes")),
            ("--workers", str(ours.workers), message.get("workers")),
        ):
            if here != theirs:
                return (
                    f"node {rank} was started with {option} {theirs}, node 0 with {option} {here}. "
                    "Start all launchers with the same options."
                )
        return None

    def _lost(self, connection: Connection, reason: str | None) -> None:
        node: OtherNode | None = connection.data
        if node is not None and self._nodes.get(node.rank) is node:
            del self._nodes[node.rank]
            text = f"the launcher of node {node.rank} ({node.host}) is gone"
            self._events.lose_node(node.rank, text)
            self._events.say(text)
