"""Frames, dialling and the relay: the lowest layer of the control plane."""

import contextlib
import errno
import itertools
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from replicax._src._errors import ClusterConfigError
from replicax._src.cluster.control import _dial, _framing, _sockets
from replicax._src.cluster.control._dial import (
    NobodyThere,
    WrongProgram,
    dial,
    wait_until_listening,
)
from replicax._src.cluster.control._meeting_place import hold_coordinator_port
from replicax._src.cluster.control._relay import Relay
from replicax._src.cluster.control._settings import listening_host
from tests.processes import free_addresses

WAIT = 60.0


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine nobody is too slow to greet."""
    monkeypatch.setattr(_dial, "_GREETING_SECONDS", WAIT)


def test_messages_come_back_as_they_were():
    message = {"op": "x", "payload": ["ü\n", 1.5, None, {"a": float("inf")}]}
    line = _framing.encode(message)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert _framing.decode(line) == message


@pytest.mark.parametrize("line", [b"", b"{", b"1", b'{"a": 1}', b'{"op": 3}', b"\xff\xfe"])
def test_what_is_no_message_is_refused(line: bytes):
    with pytest.raises(_framing.FramingError):
        _framing.decode(line)


def test_lines_are_cut_wherever_the_pieces_end():
    data = b"one\ntwo\r\n\nthree\n"
    for size in range(1, len(data) + 1):
        lines = _framing.LineBuffer(limit=10)
        pieces = [data[i : i + size] for i in range(0, len(data), size)]
        cut = [line for piece in pieces for line in lines.add(piece)]
        assert cut == [b"one", b"two", b"", b"three"]
        assert lines.rest == b""


@pytest.mark.parametrize("data", [b"x" * 11, b"x" * 11 + b"\n", b"\n" + b"x" * 11])
def test_lines_have_a_limit(data: bytes):
    with pytest.raises(_framing.FramingError, match="more than 10 bytes"):
        list(_framing.LineBuffer(limit=10).add(data))


@contextlib.contextmanager
def answering(*answers: bytes) -> Iterator[tuple[str, int]]:
    """A program that says the next of these to whoever comes, the last one again; and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                for data in itertools.chain(answers, itertools.repeat(answers[-1])):
                    connection, _ = listener.accept()
                    with connection:
                        connection.sendall(data)
                        connection.recv(100)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(WAIT)


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9\r\n",
        b"220 mail",
        b"\x15\x03\x01\x00\x02",
        b"replicax-control 1\n",
        b"replicax-control 25",
    ],
)
def test_dialling_another_program_says_what_it_said(said: bytes):
    with answering(said) as address:
        with pytest.raises(WrongProgram, match="something else listens at 127.0.0.1:"):
            dial(*address, WAIT)


@pytest.mark.parametrize(
    ("said", "challenge"), [(b"", ""), (b" 12ab", "12ab"), (b" 12ab\r", "12ab")]
)
def test_greeting_has_a_challenge(said: bytes, challenge: str):
    with answering(_framing.GREETING + said + b"\n") as address:
        with contextlib.closing(dial(*address, WAIT)) as link:
            assert link.challenge == challenge


def test_a_greeting_that_never_ends_is_given_up():
    given_up = threading.Event()
    ours, theirs = socket.socketpair()

    def speak_slowly() -> None:
        with contextlib.suppress(OSError):
            while not given_up.wait(0.01):
                theirs.sendall(b"x")

    with ours, theirs:
        theirs.sendall(_framing.GREETING + b" x")
        ours.settimeout(0.5)
        thread = threading.Thread(target=speak_slowly)
        thread.start()
        try:
            with pytest.raises(WrongProgram, match="no more than b'replicax-control 2 x"):
                _dial._greeting(ours, _framing.LineBuffer(_framing.MESSAGE_LIMIT), "there")
        finally:
            given_up.set()
            thread.join()


def test_dialling_a_forwarder_with_nobody_behind_tries_again():
    with answering(b"", b"", _framing.GREETING + b" 12ab\n") as address:
        with pytest.raises(ConnectionResetError, match="closed at once"):
            _dial._attempt(*address, WAIT)
        with contextlib.closing(dial(*address, WAIT)) as link:
            assert link.challenge == "12ab"


def test_dialling_nobody_ends():
    host, port = _sockets.split(free_addresses(1)[0])
    with pytest.raises(NobodyThere, match="refused"):
        dial(host, port, 0.3)
    with pytest.raises(NobodyThere, match="cannot be resolved"):
        dial("x" * 64, port, 0.3)
    with pytest.raises(NobodyThere, match="refused"):
        wait_until_listening(host, port, 0.1)


def test_a_loopback_that_is_down_is_told_at_once(monkeypatch: pytest.MonkeyPatch):
    def unreachable(*_: object) -> None:
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr("socket.create_connection", unreachable)
    with pytest.raises(NobodyThere, match="ip link set lo up"):
        dial("127.0.0.1", 1, 600.0)


def test_a_name_that_leads_to_a_link_local_address_is_told(monkeypatch: pytest.MonkeyPatch):
    class Connected(socket.socket):
        def getpeername(self) -> object:
            return "fe80::7", 1, 0, 2

    monkeypatch.setattr("socket.create_connection", lambda *_: Connected())
    with pytest.raises(NobodyThere, match="link-local address here.*address of the network"):
        dial("host", 1, 0.1)


@pytest.mark.parametrize("address", [("host", 1), ("::1", 22)])
def test_addresses_come_apart_and_together(address: tuple[str, int]):
    assert _sockets.split(_sockets.joined(*address)) == address


@pytest.mark.parametrize(
    ("host", "what"),
    [
        ("203.0.113.1", "is not an address"),
        ("no-such.invalid", "cannot be resolved"),
        ("x" * 64, "cannot be resolved"),
    ],
)
def test_address_of_another_machine_is_not_listened_on(host: str, what: str):
    with pytest.raises(_sockets.NotThisMachine, match=f"'{host}' {what}.*REPLICAX_LISTEN_HOST"):
        _sockets.bind(host, 0)


def test_where_to_listen_can_be_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REPLICAX_LISTEN_HOST", "0.0.0.0")
    assert listening_host("203.0.113.1") == "0.0.0.0"
    for own in ("127.0.0.1", "127.0.1.1", "localhost", "::1"):
        assert listening_host(own) == own
    monkeypatch.delenv("REPLICAX_LISTEN_HOST")
    assert listening_host("203.0.113.1") == "203.0.113.1"


def test_one_program_at_a_time_holds_a_port():
    with hold_coordinator_port("127.0.0.1", 0) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(ClusterConfigError, match="already in use"):
            hold_coordinator_port("127.0.0.1", port)
        with socket.socket() as coordinator:  # as gRPC does it
            coordinator.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            coordinator.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            coordinator.bind(("127.0.0.1", port))
            coordinator.listen()
            holder.close()
            wrong = f"PORT={port} .*in use by pid {os.getpid()} .*port of its own, or unset it"
            with pytest.raises(ClusterConfigError, match=wrong):
                hold_coordinator_port("127.0.0.1", port)
            with socket.create_connection(("127.0.0.1", port), WAIT) as near:
                far, _ = coordinator.accept()
                far.close()  # the kernel remembers this end for a minute
                assert near.recv(1) == b""
    hold_coordinator_port("127.0.0.1", port).close()


def test_relay_passes_on_both_ways_and_much_at_once():
    data = bytes(range(256)) * 20_000
    with socket.create_server(("127.0.0.1", 0)) as listener:
        relay = Relay(*listener.getsockname())
        with socket.create_connection(_sockets.split(relay.address), WAIT) as near:
            far, _ = listener.accept()
            with far:
                for source, target in ((near, far), (far, near)):
                    thread = threading.Thread(target=source.sendall, args=(data,))
                    thread.start()
                    got = bytearray()
                    target.settimeout(WAIT)
                    while len(got) < len(data):
                        got += target.recv(1 << 16)
                    thread.join(WAIT)
                    assert got == data
                near.shutdown(socket.SHUT_RDWR)
                assert far.recv(10) == b""  # JAX's own end is passed on
    relay.stop()


def test_relay_has_few_connections():
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as stack:
        relay = Relay(*listener.getsockname())
        try:
            for _ in range(8):
                near = socket.create_connection(_sockets.split(relay.address), WAIT)
                stack.enter_context(near).sendall(b"x")
                far = stack.enter_context(listener.accept()[0])
                assert far.recv(1) == b"x"
            with socket.create_connection(_sockets.split(relay.address), WAIT) as one_too_many:
                assert one_too_many.recv(1) == b""
            far.sendall(b"y")
            assert near.recv(1) == b"y"
            near.close()  # which makes room
            assert far.recv(1) == b""
            with socket.create_connection(_sockets.split(relay.address), WAIT) as another:
                another.sendall(b"x")
                with listener.accept()[0] as far:
                    assert far.recv(1) == b"x"
        finally:
            relay.stop()


def test_relay_hides_the_end_of_the_far_side():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        relay = Relay(*listener.getsockname())
        with socket.create_connection(_sockets.split(relay.address), WAIT) as near:
            far, _ = listener.accept()
            far.sendall(b"x")
            far.close()
            near.settimeout(WAIT)
            assert near.recv(10) == b"x"
            near.settimeout(0.3)
            with pytest.raises(TimeoutError):
                near.recv(10)
    relay.stop()
