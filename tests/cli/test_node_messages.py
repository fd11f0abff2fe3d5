"""What launchers say to each other: nothing that a stranger says ends more than its connection."""

import contextlib
import dataclasses
import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replicax._src.cli._event_loop import EventLoop
from replicax._src.cli._node import JobNode, NodePlan
from replicax._src.cli._node_messages import (
    _KINDS,
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
from replicax._src.cli._options import LaunchOptions, Range
from replicax._src.cli._other_nodes import OtherNodes
from replicax._src.cluster.control import Link, dial, launcher_proof
from tests.cli.launches import TIMEOUT, free_address

ARRIVAL = Arrival(1, "3", "1", "host1", ["host1:1234"], "challenge", "")
MESSAGES = [
    ARRIVAL,
    Ready(2, ["[::1]:65535"]),
    Exit(2, 1, -9),
    Welcome(""),
    Refused("no"),
    Start(1, ["host1:1234"], {"REPLICAX_JOB": "key"}, [(0, 0)]),
    Signal(15),
    Say("two\nlines"),
    End(42),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


def on_the_wire(words: NodeMessage) -> dict[str, Any]:
    return json.loads(json.dumps(words.message))


@pytest.mark.parametrize("words", MESSAGES, ids=lambda words: words.op)
def test_words_come_back_as_they_were(words: NodeMessage):
    assert parsed(on_the_wire(words)) == words


def test_all_kinds_are_tried():
    assert {words.op for words in MESSAGES} == set(_KINDS)


@given(data=st.data())
@settings(deadline=None)
def test_whatever_comes_is_understood_or_refused(data: st.DataObject):
    message = on_the_wire(data.draw(st.sampled_from(MESSAGES)))
    for name in data.draw(st.lists(st.sampled_from(sorted(message)))):
        if data.draw(st.booleans()):
            message[name] = data.draw(JSON)
        else:
            message.pop(name, None)
    try:
        words = parsed(message)
    except BadMessage:
        return
    # What was taken is what can be sent on.
    assert parsed(on_the_wire(words)) == words


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (ARRIVAL, "rank", True),
        (ARRIVAL, "rank", "1"),
        (ARRIVAL, "rank", -1),
        (ARRIVAL, "host", "a\x1b[2Jb"),
        (ARRIVAL, "host", "x" * 1000),
        (ARRIVAL, "host", "\ud800"),
        (ARRIVAL, "addresses", "host:1"),
        (ARRIVAL, "addresses", ["host"]),
        (ARRIVAL, "addresses", ["host:0"]),
        (ARRIVAL, "addresses", ["host:65536"]),
        (ARRIVAL, "addresses", ["host:²"]),
        (Exit(1, 1, 0), "status", 256),
        (Exit(1, 1, 0), "status", float("inf")),
        (Signal(15), "number", 19),
        (End(0), "status", None),
        (Start(1, [], {}, []), "seats", [[0]]),
        (Start(1, [], {}, []), "environment", [["REPLICAX_JOB", "x"]]),
        (Start(1, [], {}, []), "environment", {"REPLICAX_JOB": 1}),
    ],
)
def test_odd_values_are_refused(words: NodeMessage, field: str, value: object):
    with pytest.raises(BadMessage):
        parsed({**on_the_wire(words), field: value})


def test_only_variables_of_replicax_are_taken_from_node_0():
    environment = {"REPLICAX_JOB": "key", "PYTHONPATH": "/evil", "LD_PRELOAD": "evil.so", "A": 1}
    words = parsed({**on_the_wire(MESSAGES[5]), "environment": environment})
    assert isinstance(words, Start)
    assert words.environment == {"REPLICAX_JOB": "key"}


# --- the launcher of node 0 -----------------------------------------------------------------------


class OwnNode:
    """The node of that launcher, which has no workers; at the end nobody waits for it."""

    rank = 0
    addresses: list[str] | None = ["host0:1234"]

    def start(self, plan: NodePlan) -> None:
        raise AssertionError("it has no workers")

    def signal(self, number: int) -> None:
        raise AssertionError("it has no workers")


class Node0:
    """The part of a launcher that meets the others."""

    def __init__(self, loop: EventLoop, key: str | None = None) -> None:
        self.address = free_address()
        self.options = LaunchOptions(
            ("train.py",), nodes=Range(3, 3), coordinator=self.address, key=key
        )
        self.loop = loop
        self.said: list[str] = []
        self.exits: list[tuple[int, int]] = []
        self.lost: list[int] = []
        self.nodes: dict[int, JobNode] = {0: OwnNode()}
        self.others = OtherNodes(self.options, loop, self.nodes, self)

    def note_exit(self, rank: int, status: int) -> None:
        self.exits.append((rank, status))

    def lose_node(self, rank: int, text: str) -> None:
        self.lost.append(rank)

    def say(self, text: str) -> None:
        self.said.append(text)

    def wait_until(self, happened: Callable[[], object]) -> None:
        end = time.monotonic() + TIMEOUT
        while not happened():
            assert time.monotonic() < end, self.said
            self.loop.wait(end)

    def connect(self) -> Link:
        return dial(*self.options.coordinator_address(), TIMEOUT)

    def hear(self, link: Link) -> NodeMessage | None:
        """Returns what node 0 says next; None if it hangs up."""
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end:
            self.loop.wait(time.monotonic() + 0.01)
            try:
                message = link.receive(0.01)
            except (EOFError, OSError):
                return None
            if message is not None:
                return parsed(message)
        raise AssertionError("node 0 says nothing")


@contextlib.contextmanager
def node_0(key: str | None = None) -> Iterator[Node0]:
    with EventLoop() as loop:
        node = Node0(loop, key)
        try:
            yield node
        finally:
            node.others.close(0)


def expect_it_lives(node: Node0) -> None:
    """A node that does all as it should still joins, works and leaves."""
    link = node.connect()
    link.send(ARRIVAL.message)
    assert isinstance(node.hear(link), Welcome)
    assert node.said[-1] == "node 1 (host1) has joined"
    node.nodes[1].start(NodePlan(["h:1", "h:2", "h:3"], {"REPLICAX_JOB": "k"}, [(0, 2)]))
    assert isinstance(node.hear(link), Start)
    link.send(Exit(1, 2, 5).message)
    node.wait_until(lambda: node.exits)
    assert node.exits == [(2, 5)]
    link.close()
    node.wait_until(lambda: node.lost)
    assert node.lost == [1] and list(node.nodes) == [0]


STRANGERS: list[object] = [
    {"op": "node", "rank": 1, "nodes": "3", "workers": "1"},
    {**ARRIVAL.message, "rank": {}},
    {**ARRIVAL.message, "addresses": ["a:1", "b:1"]},
    {**ARRIVAL.message, "addresses": []},
    {**ARRIVAL.message, "rank": float("inf")},
    Ready(0, ["host1:1"]).message,
    {"op": "proof", "proof": "x"},
    Start(1, [], {}, []).message,
    {"op": "launch the rockets"},
    [1, 2],
    "GET / HTTP/1.1",
]


def test_strangers_end_their_own_connection_only():
    with node_0() as node:
        for message in STRANGERS:
            with contextlib.closing(node.connect()) as link:
                link._socket.sendall(json.dumps(message).encode() + b"\n")
                assert node.hear(link) is None, message
        assert node.said == []
        expect_it_lives(node)


MEMBERS: list[dict[str, Any]] = [
    ARRIVAL.message,
    {"op": "exit"},
    {**Exit(1, 1, 0).message, "status": "0"},
    {**Ready(1, ["host1:1"]).message, "addresses": [7]},
    Ready(1, ["host1:1", "host1:2"]).message,
    Start(1, [], {}, []).message,
]


@pytest.mark.parametrize("message", MEMBERS)
def test_member_that_goes_mad_is_lost_like_any_other(message: dict[str, Any]):
    with node_0() as node:
        with contextlib.closing(node.connect()) as link:
            link.send(ARRIVAL.message)
            assert isinstance(node.hear(link), Welcome)
            link.send(message)
            assert node.hear(link) is None
        node.wait_until(lambda: node.lost)
        assert node.said[-1] == "the launcher of node 1 (host1) is gone"


def test_member_speaks_for_its_own_workers_only():
    with node_0() as node:
        with contextlib.closing(node.connect()) as link:
            link.send(ARRIVAL.message)
            assert isinstance(node.hear(link), Welcome)
            node.nodes[1].start(NodePlan(["h:1", "h:2"], {}, [(0, 1)]))
            for other in (Exit(1, 0, 1), Exit(1, 99, 1), Exit(7, 1, 1), Exit(1, 1, 3)):
                link.send(other.message)
            node.wait_until(lambda: node.exits)
            assert node.exits == [(1, 3)]


@pytest.mark.parametrize(
    ("arrival", "words"),
    [
        (dataclasses.replace(ARRIVAL, rank=0), "there is a node 0 already"),
        (dataclasses.replace(ARRIVAL, rank=99), "there is no node 99: the nodes are 0 to 2"),
        (dataclasses.replace(ARRIVAL, nodes="2"), "with --nodes 2, node 0 with --nodes 3"),
        (dataclasses.replace(ARRIVAL, workers="2"), "with --workers 2, node 0 with --workers 1"),
    ],
)
def test_node_with_other_options_is_told(arrival: Arrival, words: str):
    with node_0() as node, contextlib.closing(node.connect()) as link:
        link.send(arrival.message)
        refused = node.hear(link)
        assert isinstance(refused, Refused) and words in refused.text
        assert list(node.nodes) == [0]


# --- keys -----------------------------------------------------------------------------------------


def test_proof_depends_on_all_that_it_is_made_of():
    made = {
        launcher_proof(*words)
        for words in (
            ("key", "node 1", "a", "b"),
            ("kex", "node 1", "a", "b"),
            ("key", "node 0", "a", "b"),
            ("key", "node 1", "b", "a"),
        )
    }
    assert len(made) == 4


def test_key_lets_in_who_has_it_and_says_nothing_of_itself():
    with node_0("secret") as node, contextlib.closing(node.connect()) as link:
        assert node.said == []
        proof = launcher_proof("secret", "node 1", link.challenge, ARRIVAL.challenge)
        link.send(dataclasses.replace(ARRIVAL, proof=proof).message)
        welcome = node.hear(link)
        assert isinstance(welcome, Welcome)
        own = launcher_proof("secret", LEADER, link.challenge, ARRIVAL.challenge)
        assert welcome.proof == own
        assert node.said == ["node 1 (host1) has joined"]


def test_wrong_proof_is_refused_and_there_is_no_second_try():
    with node_0("secret") as node:
        for _ in range(2):
            with contextlib.closing(node.connect()) as link:
                link.send(dataclasses.replace(ARRIVAL, proof="0" * 64).message)
                refused = node.hear(link)
                assert isinstance(refused, Refused)
                assert "another key than node 0" in refused.text and "--key" in refused.text
                with contextlib.suppress(OSError):  # it has hung up
                    proof = launcher_proof("secret", "node 1", link.challenge, ARRIVAL.challenge)
                    link.send(dataclasses.replace(ARRIVAL, proof=proof).message)
                assert node.hear(link) is None
        # Once, however often it tries.
        assert [line.partition(":")[0] for line in node.said] == ["turned away 127.0.0.1"]
        assert list(node.nodes) == [0]


def test_node_without_a_key_is_told_that_it_needs_one():
    with node_0("secret") as node, contextlib.closing(node.connect()) as link:
        link.send(ARRIVAL.message)
        refused = node.hear(link)
        assert isinstance(refused, Refused)
        assert f"node 0 at {node.address} asks for a key" in refused.text
        assert node.hear(link) is None
        assert node.said == [] and list(node.nodes) == [0]


def test_challenges_are_new_each_time_and_no_proof_serves_twice():
    with node_0("secret") as node:
        with contextlib.closing(node.connect()) as link:
            proof = launcher_proof("secret", "node 1", link.challenge, ARRIVAL.challenge)
        challenges = {link.challenge}
        for _ in range(2):
            with contextlib.closing(node.connect()) as link:
                challenges.add(link.challenge)
                link.send(dataclasses.replace(ARRIVAL, proof=proof).message)
                assert isinstance(node.hear(link), Refused)
        assert len(challenges) == 3


def test_half_a_message_disturbs_nobody():
    with node_0() as node:
        with socket.create_connection(node.options.coordinator_address(), TIMEOUT) as half:
            half.sendall(b'replicax-control 1\n{"op": "no')
            expect_it_lives(node)
