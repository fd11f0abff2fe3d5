"""`MessageLoop`: strangers, full tables and mistakes of its owner do not end the service."""

import contextlib
import errno
import gc
import json
import queue
import select
import socket
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replicax._src.cluster.control import Connection, ControlServer, MessageLoop, _loop, dial
from replicax._src.cluster.control._framing import GREETING

WAIT = 60.0
HELLO = {
    "op": "hello",
    "worker": 0,
    "addresses": ["host0:1", "host1:1"],
    "names": ["worker 0", "worker 1"],
    "generation": 0,
    "pid": 1,
    "host": "host",
    "device_count": 1,
    "versions": {"jax": "1"},
    "coordinator": None,
    "challenge": "mine",
    "proof": "made up",
}


class Echo:
    """A loop that says everything back, trusts who asks for it, and fails at `fail`."""

    def __init__(self) -> None:
        self.closed: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.refused: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.loop = MessageLoop(
            "127.0.0.1", 0, peers=1, name="echo", on_message=self._message, on_close=self._close
        )
        self.loop.start()

    def _message(self, connection: Connection, message: dict[str, Any]) -> None:
        if message["op"] == "fail":
            raise ZeroDivisionError("a mistake")
        if message["op"] == "trust":
            connection.trust()
        if message["op"] == "refuse":  # with more than the kernel takes
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            connection.send_last({"op": "x" * (1 << 20)})
            self.refused.put(None)
        connection.send(message)

    def _close(self, connection: Connection, reason: str | None) -> None:
        self.closed.put(reason)
        raise KeyError("another mistake")

    def expect_it_serves(self) -> None:
        link = dial(*self.loop.bound_address, WAIT)
        try:
            link.send({"op": "x"})
            assert link.receive(WAIT) == {"op": "x"}
        finally:
            link.close()


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> Iterator[Echo]:
    monkeypatch.setattr(_loop, "_STRANGER_SECONDS", 10 * WAIT)  # on a busy machine none is too slow
    echo = Echo()
    try:
        yield echo
    finally:
        echo.loop.stop()


@pytest.mark.parametrize("said", [b"", GREETING + b"\n", GREETING + b'\n{"op": "x"}\n'])
def test_strangers_may_not_stay(echo: Echo, monkeypatch: pytest.MonkeyPatch, said: bytes):
    monkeypatch.setattr(_loop, "_STRANGER_SECONDS", 0.1)
    with socket.create_connection(echo.loop.bound_address, WAIT) as stranger:
        with contextlib.suppress(ConnectionError):  # it may be sent away before it has said it
            stranger.sendall(said)
            while stranger.recv(100):
                pass
    assert echo.closed.get(timeout=WAIT) == "it did not say who it is"


def test_who_is_known_stays(echo: Echo, monkeypatch: pytest.MonkeyPatch):
    with contextlib.closing(dial(*echo.loop.bound_address, WAIT)) as known:
        known.send({"op": "trust"})
        assert known.receive(WAIT) == {"op": "trust"}
        (connection,) = echo.loop._connections
        assert connection._limit is None
        monkeypatch.setattr(_loop, "_STRANGER_SECONDS", 0.05)
        with socket.create_connection(echo.loop.bound_address, WAIT) as stranger:
            while stranger.recv(100):  # it is sent away
                pass
        known.send({"op": "still here"})
        assert known.receive(WAIT) == {"op": "still here"}


def strangers(echo: Echo, stack: contextlib.ExitStack, number: int) -> list[socket.socket]:
    """Connects as often, each time waiting to be greeted."""
    found = []
    for _ in range(number):
        found.append(stack.enter_context(socket.create_connection(echo.loop.bound_address, WAIT)))
        assert found[-1].recv(100).startswith(GREETING)
    return found


def test_the_oldest_of_too_many_strangers_goes(echo: Echo):
    with contextlib.ExitStack() as stack:
        known = stack.enter_context(contextlib.closing(dial(*echo.loop.bound_address, WAIT)))
        known.send({"op": "trust"})
        assert known.receive(WAIT) == {"op": "trust"}
        first, *_, last = strangers(echo, stack, 1 + 32)  # one peer is expected, and known
        assert first.recv(100) == b""
        assert echo.closed.get(timeout=WAIT) == "too many have not said who they are"
        last.sendall(GREETING + b'\n{"op": "x"}\n')
        assert last.recv(100) == b'{"op":"x"}\n'
        known.send({"op": "still here"})
        assert known.receive(WAIT) == {"op": "still here"}


def test_who_has_greeted_goes_after_those_who_have_not(echo: Echo):
    with contextlib.closing(dial(*echo.loop.bound_address, WAIT)) as greeted:
        greeted.send({"op": "x"})
        assert greeted.receive(WAIT) == {"op": "x"}
        with contextlib.ExitStack() as stack:
            first, *_ = strangers(echo, stack, 40)
            assert first.recv(100) == b""
            greeted.send({"op": "x"})
            assert greeted.receive(WAIT) == {"op": "x"}


def test_who_does_not_read_that_it_is_refused_makes_room(echo: Echo):
    with contextlib.ExitStack() as stack:
        for _ in range(1 + 32 + 7):
            stranger = stack.enter_context(socket.socket())
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stranger.connect(echo.loop.bound_address)
            stranger.sendall(GREETING + b'\n{"op": "refuse"}\n')
            echo.refused.get(timeout=WAIT)
            assert len(echo.loop._connections) <= 1 + 32
        echo.expect_it_serves()


@pytest.mark.parametrize("said", [b"x" * 65, b"x" * (1 << 20), GREETING + b"\n" + b"x" * (1 << 20)])
def test_little_is_read_of_a_stranger(echo: Echo, said: bytes):
    with socket.create_connection(echo.loop.bound_address, WAIT) as stranger:
        with contextlib.suppress(ConnectionError):
            stranger.sendall(said)
        assert "a line of more than" in str(echo.closed.get(timeout=WAIT))


def test_nothing_is_kept_of_a_closed_connection(echo: Echo):
    with contextlib.ExitStack() as stack:
        (stranger,) = strangers(echo, stack, 1)
        (connection,) = echo.loop._connections
        kept = weakref.ref(connection)
        del connection
        stranger.sendall(GREETING + b"\n" + b"x" * 10_000)
    assert echo.closed.get(timeout=WAIT) == "closed"
    echo.expect_it_serves()
    gc.collect()
    assert kept() is None


def test_late_connections_are_taken_slowly(echo: Echo, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_loop, "_LATE_SECONDS", 0.1)
    echo.loop.call(echo.loop.expect_nobody)
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        strangers(echo, stack, 5)
    assert time.monotonic() - began >= 0.3


def test_mistake_of_the_owner_costs_one_connection(echo: Echo, capfd: pytest.CaptureFixture[str]):
    with contextlib.closing(dial(*echo.loop.bound_address, WAIT)) as link:
        link.send({"op": "fail"})
        with pytest.raises((EOFError, OSError)):
            link.receive(WAIT)
    assert echo.closed.get(timeout=WAIT) == "ZeroDivisionError: a mistake"
    echo.expect_it_serves()
    assert "ZeroDivisionError: a mistake" in capfd.readouterr().err


class FullTable(socket.socket):
    """A listener in a process that has no descriptor left, three times."""

    attempts = 0

    def accept(self) -> Any:
        if not select.select([self], [], [], 0)[0]:
            raise BlockingIOError
        FullTable.attempts += 1
        if FullTable.attempts <= 3:
            raise OSError(errno.EMFILE, "too many open files")
        return super().accept()


def test_full_table_of_descriptors_is_waited_out(monkeypatch: pytest.MonkeyPatch):
    bind = _loop.bind
    monkeypatch.setattr(_loop, "bind", lambda *at: FullTable(fileno=bind(*at).detach()))
    monkeypatch.setattr(_loop, "_REST_SECONDS", 0.1)
    monkeypatch.setattr(FullTable, "attempts", 0)
    echo = Echo()
    try:
        began = time.monotonic()
        echo.expect_it_serves()
        # Not again and again in between.
        assert FullTable.attempts == 4 and time.monotonic() - began >= 0.3
    finally:
        echo.loop.stop()


# --- the control server, which says hello to anybody ----------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def server() -> Iterator[ControlServer]:
    server = ControlServer(2, key="key")
    server.start()
    try:
        yield server
    finally:
        server.stop()


def say(server: ControlServer, message: object) -> dict[str, Any] | None:
    """Says one thing as a stranger; returns the answer, or None if the server hangs up."""
    with contextlib.closing(dial(*server.bound_address, WAIT)) as link:
        link._socket.sendall(json.dumps(message).encode() + b"\n")
        try:
            return link.receive(WAIT)
        except (EOFError, OSError):
            return None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("worker", float("inf")),
        ("generation", float("nan")),
        ("pid", "x"),
        ("addresses", 7),
        ("worker", 5),
        ("challenge", "\ud800"),
        ("coordinator", {}),
        ("coordinator", 7),
        ("op", "beat"),
    ],
)
def test_odd_hello_costs_its_connection_only(
    server: ControlServer, field: str, value: object, capfd: pytest.CaptureFixture[str]
):
    assert say(server, {**HELLO, field: value}) is None
    refused = say(server, HELLO)
    assert refused is not None and "another job" in refused["text"]
    assert all(each.state == "expected" for each in server.status())


def test_who_is_refused_is_not_heard_again(server: ControlServer):
    with contextlib.closing(dial(*server.bound_address, WAIT)) as link:
        link._socket.sendall(json.dumps(HELLO).encode() + b"\n")
        refused = link.receive(WAIT)
        assert refused is not None and "another job" in refused["text"]
        with pytest.raises((EOFError, OSError)):
            link.receive(WAIT)


@given(changes=st.dictionaries(st.sampled_from(sorted(HELLO)), JSON, min_size=1))
@settings(deadline=None, max_examples=30)
def test_whatever_a_stranger_says_the_server_lives(server: ControlServer, changes: dict[str, Any]):
    say(server, {**HELLO, **changes})
    assert say(server, HELLO) is not None
