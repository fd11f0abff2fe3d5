"""`dial`: the client's end of a connection, made sure to lead to one of ours.

What is at the other end may be nothing yet (try again), one of ours (its greeting comes first), or
another program that happens to use the port (say so at once, and what it said).
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar, final

from replicax._src.cluster.control import _framing
from replicax._src.cluster.control._sockets import joined, tune, unresolved
from replicax._src.cluster.control._types import Message

# Whoever listens there and is ours greets at once; a stopped machine or another program does not.
_GREETING_SECONDS = 3.0
# Between two attempts while nobody listens. The first ones come sooner.
_FIRST_PAUSE_SECONDS = 0.005
_RETRY_SECONDS = 0.25
_SEND_SECONDS = 10

Returned = TypeVar("Returned")


class NobodyThere(Exception):
    """Nobody was listening until the deadline; the text has the last reason.

    Attributes:
      unresolved: Whether the host has no address at all.
    """

    def __init__(self, reason: str, unresolved: bool = False) -> None:
        super().__init__(reason)
        self.unresolved = unresolved


class WrongProgram(Exception):
    """Something listens there, but it is not one of ours; the text has what it said."""


@final
class Link:
    """A connection: any thread may send, one thread receives."""

    def __init__(
        self,
        sock: socket.socket,
        challenge: str,
        lines: _framing.LineBuffer,
        early: list[bytes],
    ) -> None:
        self.challenge = challenge
        """What the other end has chosen for this connection, for proofs of a key; or nothing."""
        self._socket = sock
        self._lines = lines
        self._lines.limit = _framing.ANSWER_LIMIT
        self._ready: deque[bytes] = deque(early)
        self._sending = threading.RLock()  # a finalizer may send in the middle of anything
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def send(self, message: Message) -> None:
        """Sends a message; OSError if the connection is gone."""
        line = _framing.encode(message)
        if len(line) > _framing.MESSAGE_LIMIT:
            raise ValueError(
                f"A message to the other workers has {len(line):,} bytes ({message['op']} "
                f"{message.get('topic', '')!r}); up to {_framing.MESSAGE_LIMIT:,} can be sent. Put "
                "what is large into variables, or into files."
            )
        with self._sending:
            self._socket.sendall(line)

    def receive(self, timeout: float) -> Message | None:
        """Returns the next message; None if none comes in time. EOFError or OSError at the end."""
        end = time.monotonic() + timeout
        while not self._ready:
            if not self._poll.poll(max(0.0, end - time.monotonic()) * 1000):
                return None
            data = self._socket.recv(1 << 16)
            if not data:
                raise EOFError("the connection was closed")
            self._ready.extend(self._lines.add(data))
        return _framing.decode(self._ready.popleft())

    def hang_up(self) -> None:
        """Ends the connection; a thread that receives gets EOFError."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Gives up the descriptor."""
        self._socket.close()

    @property
    def local_address(self) -> str:
        """The address of this end: the one under which the other end sees this machine."""
        return str(self._socket.getsockname()[0])


def dial(host: str, port: int, timeout: float, check: Callable[[], None] | None = None) -> Link:
    """Connects to a `MessageLoop`, trying again until somebody listens.

    Args:
      host: Where.
      port: And its port.
      timeout: Seconds in all.
      check: Called between attempts; may raise to give up.

    Raises:
      NobodyThere: Until the deadline nobody listened, or the host had no address.
      WrongProgram: Somebody listens who is not one of ours.
    """
    return _repeat(lambda seconds: _attempt(host, port, seconds), host, timeout, check)


def wait_until_listening(host: str, port: int, timeout: float) -> None:
    """Returns as soon as anybody accepts connections there; `NobodyThere` if nobody does."""

    def attempt(seconds: float) -> None:
        socket.create_connection((host, port), max(0.1, seconds)).close()

    _repeat(attempt, host, timeout, None)


def _repeat(
    attempt: Callable[[float], Returned],
    host: str,
    timeout: float,
    check: Callable[[], None] | None,
) -> Returned:
    """Calls `attempt` with the seconds that are left until it does not fail; returns its result."""
    end = time.monotonic() + timeout
    pause = _FIRST_PAUSE_SECONDS
    while True:
        if check is not None:
            check()
        is_unresolved = False
        try:
            return attempt(end - time.monotonic())
        except (socket.gaierror, UnicodeError) as error:
            is_unresolved = True
            reason = unresolved(host, error)
        except TimeoutError:
            reason = "no answer"
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            if error.errno == errno.ENETUNREACH and host.startswith("127."):
                reason = "the loopback device of this host is down (`ip link set lo up`)"
                raise NobodyThere(reason) from None
        if time.monotonic() + pause >= end:
            raise NobodyThere(reason, is_unresolved)
        time.sleep(pause)
        pause = min(1.5 * pause, _RETRY_SECONDS)


def _attempt(host: str, port: int, timeout: float) -> Link:
    """Connects once and greets; OSError if it may be tried again."""
    timeout = max(0.1, min(timeout, _GREETING_SECONDS))
    sock = socket.create_connection((host, port), timeout)
    try:
        # Linux connects a socket to itself if it happens to pick the very port that nobody holds.
        if sock.getsockname() == sock.getpeername():
            raise ConnectionRefusedError("connection refused")
        if len(peer := sock.getpeername()) > 3 and peer[3]:  # the number of a network device
            raise OSError(
                f"its name leads to a link-local address here ({peer[0]}), which only holds for "
                "one cable. Use an address of the network"
            )
        tune(sock)
        lines = _framing.LineBuffer(_framing.MESSAGE_LIMIT)
        sock.sendall(_framing.GREETING + b"\n")
        challenge, early = _greeting(sock, lines, joined(host, port))
        sock.settimeout(None)
        with contextlib.suppress(OSError):  # a server that does not read may not hold us forever
            seconds = struct.pack("ll", _SEND_SECONDS, 0)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)
    except BaseException:
        sock.close()
        raise
    return Link(sock, challenge, lines, early)


def _greeting(
    sock: socket.socket, lines: _framing.LineBuffer, where: str
) -> tuple[str, list[bytes]]:
    """Takes the greeting off the connection; returns its challenge, and what came after it."""
    seconds = sock.gettimeout() or _GREETING_SECONDS
    end = time.monotonic() + seconds
    while True:
        try:
            sock.settimeout(max(0.001, end - time.monotonic()))
            data = sock.recv(4096)
        except TimeoutError:
            said = f"no more than {lines.rest[:60]!r}" if lines.rest else "nothing"
            raise WrongProgram(
                f"something listens at {where} but has said {said} in {seconds:.0f} s"
            ) from None
        if not data:
            if lines.rest:
                raise WrongProgram(_said(where, lines.rest))
            # A forwarder with nobody behind it does that: try again.
            raise ConnectionResetError("the connection was closed at once")
        try:
            first, *early = list(lines.add(data)) or [b""]
        except _framing.FramingError:
            raise WrongProgram(_said(where, data)) from None
        begun, greeting = first or lines.rest, _framing.GREETING + b" "
        if (first + b" ").startswith(greeting):
            return first[len(greeting) :].decode("latin-1"), early
        if first or begun[: len(greeting)] != greeting[: len(begun)]:
            raise WrongProgram(_said(where, begun))


def _said(where: str, data: bytes) -> str:
    return f"something else listens at {where}: it said {data[:60]!r}"
