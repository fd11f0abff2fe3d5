"""`MessageLoop`: a listener and all its connections, served by one thread.

It knows sockets, the greeting, messages and timers, and nothing of what the messages mean. All
callbacks run in the loop's thread; `call`, `stop` and `drain` may be used from any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, final

from replicax._src._typing import override
from replicax._src.cluster.control import _framing
from replicax._src.cluster.control._loop_thread import LoopThread
from replicax._src.cluster.control._proof import new_challenge
from replicax._src.cluster.control._settings import listening_host
from replicax._src.cluster.control._sockets import bind, tune
from replicax._src.cluster.control._types import Message

# How long a stranger may take to greet and to be trusted, and how many may stay beside the peers
# that are expected.
_STRANGER_SECONDS = 10.0
_MORE_THAN_EXPECTED = 32
# When descriptors or memory are used up, the listener rests: it would stay readable, and the thread
# would do nothing but try again.
_USED_UP = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_REST_SECONDS = 0.5
# Between two connections when nobody is expected any more: a storm of them costs next to nothing.
_LATE_SECONDS = 0.05
# A peer that does not read is cut off rather than kept in memory.
_MOST_UNSENT = 64 << 20
# How long a line of one that is not trusted yet may be, and how much longer for each peer that is
# expected: the first message of a worker has the addresses of all.
_FIRST_MESSAGE = 64 << 10
_FOR_EACH_PEER = 512


@final
class Connection(asyncio.Protocol):
    """One peer of a `MessageLoop`. `data` is for the owner of the loop. Used in its thread only."""

    def __init__(self, loop: MessageLoop, sock: socket.socket, peer: str) -> None:
        self.peer = peer
        self.data: Any = None
        self.challenge = new_challenge()
        """What this end has chosen for the connection, for proofs of a key."""
        self.greeted = False
        self.socket = sock
        self._loop = loop
        self._transport: asyncio.Transport
        self._lines = _framing.LineBuffer(_framing.GREETING_LIMIT)
        self._open = True
        self._reason: str | None = None
        self._limit: asyncio.TimerHandle | None = None
        """Closes a stranger, and one that does not read the last message."""

    @property
    def is_stranger(self) -> bool:
        """Whether nobody has called `trust` on it."""
        return self._limit is not None

    @property
    def has_unsent(self) -> bool:
        """Whether something that was sent has not gone out yet."""
        return self._transport.get_write_buffer_size() > 0

    def send(self, message: Message) -> None:
        """Sends now what goes out without waiting; the loop sends the rest when there is room."""
        self.send_line(_framing.encode(message))

    def send_line(self, line: bytes) -> None:
        """Sends a message that is encoded already: one encoding serves many receivers."""
        if self._open and not self._transport.is_closing():
            self._transport.write(line)
            if self._transport.get_write_buffer_size() > _MOST_UNSENT:
                self.close("it does not read what it is sent")

    def send_last(self, message: Message) -> None:
        """Sends a message, closes when it has gone out, and listens to nothing more."""
        self.send(message)
        if self._open:
            self._open = False
            self._transport.close()
            self._limit = self._limit or self._loop.call_later(_STRANGER_SECONDS, self._too_slow)

    def close(self, reason: str | None = None) -> None:
        """Closes it; what was sent before and has gone out still arrives."""
        if self._open:
            self._open, self._reason = False, reason
        self._transport.abort()  # also one that does not read the last message

    def trust(self) -> None:
        """Lets it stay, and takes long messages from now on: the peer has shown who it is."""
        self._stop_limit()
        self._lines.limit = _framing.MESSAGE_LIMIT

    def _stop_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _too_slow(self) -> None:
        self.close("it did not say who it is")

    # Called by asyncio.

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._limit = self._loop.call_later(_STRANGER_SECONDS, self._too_slow)
        self._loop._connections[self] = None
        self.send_line(_framing.GREETING + b" " + self.challenge.encode() + b"\n")

    @override
    def data_received(self, data: bytes) -> None:
        try:
            for line in self._lines.add(data):
                if self.greeted:
                    self._loop._on_message(self, _framing.decode(line))
                elif line != _framing.GREETING:
                    raise _framing.FramingError(f"greeted with {line[:60]!r}")
                else:
                    self.greeted = True
                    self._lines.limit = self._loop._first_message_limit
                if not self._open:
                    return
        except _framing.FramingError as error:
            self.close(str(error))
        except Exception as error:  # ours, and everybody else still counts on this thread
            traceback.print_exc(file=sys.stderr)
            self.close(f"{type(error).__name__}: {error}")

    @override
    def eof_received(self) -> None:
        self.close("closed")

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_limit()
        if self._open:
            self._open, self._reason = False, str(exc)
        if self in self._loop._connections:  # else the whole loop ends
            del self._loop._connections[self]
            self._loop._on_close(self, self._reason)


@final
class MessageLoop:
    """Listens on an address and serves messages to callbacks.

    Args:
      host: The address that peers call; `listening_host` says where it listens for them.
      port: The port; 0 takes a free one.
      peers: How many are expected. There may be 32 connections more; then the oldest goes that
        nobody has called `trust` on.
      name: Of the thread.
      on_message: Called with a connection and each of its messages. An exception closes this
        connection, as does the time if nobody has called `trust` on it in the first 10 s.
      on_close: Called with a connection that ended and why, or None where `close` did it.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        peers: int,
        name: str,
        on_message: Callable[[Connection, Message], None],
        on_close: Callable[[Connection, str | None], None],
    ) -> None:
        self._on_message = on_message
        self._on_close = on_close
        self._listener = bind(listening_host(host), port)
        self._listener.listen(128)
        self._listener.setblocking(False)
        self.bound_address: tuple[str, int] = self._listener.getsockname()[:2]
        self.port = self.bound_address[1]
        self._most_connections = peers + _MORE_THAN_EXPECTED
        self._first_message_limit = _FIRST_MESSAGE + _FOR_EACH_PEER * peers
        self._connections: dict[Connection, None] = {}  # a set that has an order: the oldest first
        self._nobody_expected = False
        self._thread = LoopThread(name, self._serve)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Sends what is unsent if that goes quickly, closes everything and ends the thread."""
        self.drain(min(timeout, 0.5))
        self._thread.stop(timeout)
        if not self._thread.is_running:
            self._listener.close()

    def call(self, function: Callable[[], None]) -> None:
        """Runs a function in the loop's thread, soon."""
        self._thread.call(function)

    def call_later(self, seconds: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Runs a function after a while; returns what can cancel that. In the loop's thread."""
        return self._thread.loop.call_later(seconds, function)

    def expect_nobody(self) -> None:
        """Accepts connections more slowly from now on: all peers are here."""
        self._nobody_expected = True

    def drain(self, timeout: float) -> bool:
        """Waits until everything asked for and sent so far has gone out; whether it has."""
        if self._thread.is_current:
            return not self._has_unsent()
        if not self._thread.is_running:
            return True
        gone = threading.Event()
        end = time.monotonic() + timeout

        def look() -> None:
            if not self._has_unsent():
                gone.set()
            elif time.monotonic() < end:
                self.call_later(0.01, look)

        self.call(look)
        return gone.wait(timeout)

    def forget(self) -> None:
        """Gives up the descriptors in a forked child: the parent's end must be seen as its end."""
        # Not by asyncio: parent and child share the kernel's list of what the parent waits for.
        for each in (self._listener, *(each.socket for each in list(self._connections))):
            each.close()

    def _has_unsent(self) -> bool:
        return any(each.has_unsent for each in self._connections)

    async def _serve(self) -> None:
        try:
            while True:
                await self._accept()
        finally:
            connections, self._connections = self._connections, {}
            for each in connections:
                each.close()
            self._listener.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            sock, address = await loop.sock_accept(self._listener)
        except OSError as error:  # most often gone again: the next one may fare better
            await asyncio.sleep(_REST_SECONDS if error.errno in _USED_UP else 0)
            return
        if len(self._connections) >= self._most_connections and not self._make_room():
            sock.close()
        else:
            with contextlib.suppress(OSError):  # if it is gone again
                tune(sock)
            connection = Connection(self, sock, f"{address[0]}:{address[1]}")
            await loop.connect_accepted_socket(lambda: connection, sock)
        # At least a turn of the loop: what it has said is read before another may take its place.
        await asyncio.sleep(_LATE_SECONDS if self._nobody_expected else 0)

    def _make_room(self) -> bool:
        """Drops the oldest of those who have not even greeted, or else of all strangers."""
        strangers = [each for each in self._connections if each.is_stranger]
        older = strangers[: len(strangers) // 2]  # the others may have had no time to greet
        oldest = next((each for each in older if not each.greeted), None)
        oldest = oldest or next(iter(strangers), None)
        if oldest is not None:
            oldest.close("too many have not said who they are")
        return oldest is not None
