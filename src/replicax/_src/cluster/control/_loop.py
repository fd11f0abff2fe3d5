"""`MessageLoop`: a listener and all its connections, served by one thread.

It knows sockets, the greeting, messages and timers, and nothing of what the messages mean. All
callbacks run in the loop's thread; `call`, `stop` and `drain` may be used from any thread.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import itertools
import selectors
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

from replicax._src.cluster.control import _framing
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


class Connection:
    """One peer of a `MessageLoop`. `data` is for whoever runs the loop. Used in its thread only."""

    def __init__(self, loop: MessageLoop, sock: socket.socket, peer: str) -> None:
        self.peer = peer
        self.data: Any = None
        self.challenge = new_challenge()
        """What this end has chosen for the connection, for proofs of a key."""
        self._loop = loop
        self._socket = sock
        self._greeted = False
        self._last_words = False
        self._lines = _framing.LineBuffer(_framing.GREETING_LIMIT)
        self._unsent = bytearray()
        self.open = True

    def send(self, message: Message) -> None:
        """Sends now what goes out without waiting; the loop sends the rest when there is room."""
        self.send_line(_framing.encode(message))

    def send_line(self, line: bytes) -> None:
        """Sends a message that is encoded already: one encoding serves many receivers."""
        if not self.open or self._last_words:
            return
        if not self._unsent:
            try:
                line = line[self._socket.send(line) :]
            except BlockingIOError:
                pass
            except OSError as error:
                self._loop._close_soon(self, str(error))
                return
        if line:
            self._unsent += line
            if len(self._unsent) > _MOST_UNSENT:
                self._loop._close_soon(self, "it does not read what it is sent")
            else:
                self._loop._watch(self, writing=True)

    def send_last(self, message: Message) -> None:
        """Sends a message, closes when it has gone out, and listens to nothing more."""
        self.send(message)
        self._last_words = True
        if self._unsent:
            self._loop._strangers.setdefault(self, time.monotonic() + _STRANGER_SECONDS)
        else:
            self.close()

    def close(self) -> None:
        """Closes it; what was sent before and has gone out still arrives."""
        self._loop._close(self, None)

    def trust(self) -> None:
        """Lets it stay, and takes long messages from now on: the peer has shown who it is."""
        self._loop._strangers.pop(self, None)
        self._lines.limit = _framing.MESSAGE_LIMIT


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
        self._name = name
        self._on_message = on_message
        self._on_close = on_close
        self._listener = bind(listening_host(host), port)
        self._listener.listen(128)
        self._listener.setblocking(False)
        self.bound_address: tuple[str, int] = self._listener.getsockname()[:2]
        self.port = self.bound_address[1]
        self._waker, self._wakes = socket.socketpair()
        for end in (self._waker, self._wakes):
            end.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._selector.register(self._wakes, selectors.EVENT_READ, None)
        self._most_connections = peers + _MORE_THAN_EXPECTED
        self._first_message_limit = _FIRST_MESSAGE + _FOR_EACH_PEER * peers
        self._connections: set[Connection] = set()
        # Those whom nobody trusts yet, the oldest first, and until when they may stay.
        self._strangers: dict[Connection, float] = {}
        self._nobody_expected = False
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._calls: deque[Callable[[], None]] = deque()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts the thread."""
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Sends what is unsent if that goes quickly, closes everything and ends the thread."""
        if self._thread is None:
            self._close_all()
            return
        self.drain(min(timeout, 0.5))
        self._stopping = True
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    def call(self, fn: Callable[[], None]) -> None:
        """Runs `fn` in the loop's thread, soon."""
        self._calls.append(fn)
        self._wake()

    def call_later(self, seconds: float, fn: Callable[[], None]) -> None:
        """Runs `fn` after a while. In the loop's thread, or before it is started."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), fn))

    def expect_nobody(self) -> None:
        """Takes its time from now on for whoever connects: all peers are here."""
        self._nobody_expected = True

    def drain(self, timeout: float) -> bool:
        """Waits until everything asked for and sent so far has gone out; whether it has."""
        if self._thread is None or not self._thread.is_alive():
            return True
        if threading.current_thread() is self._thread:
            return not any(each._unsent for each in self._connections)
        gone = threading.Event()
        end = time.monotonic() + timeout

        def look() -> None:
            if not any(each._unsent for each in self._connections):
                gone.set()
            elif time.monotonic() < end:
                self.call_later(0.01, look)

        self.call(look)
        return gone.wait(timeout)

    def forget(self) -> None:
        """In a forked child: gives up the descriptors; the parent's end must be seen as its end."""
        self._close_all()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it will wake anyway; closed: it has ended
            self._waker.send(b"x")

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
        finally:
            self._close_all()

    def _turn(self) -> None:
        for key, mask in self._selector.select(self._longest_wait()):
            connection: Connection | None = key.data
            if connection is not None:
                if mask & selectors.EVENT_WRITE:
                    self._write(connection)
                if mask & selectors.EVENT_READ and connection.open:
                    self._read(connection)
            elif key.fileobj is self._listener:
                self._accept()
            else:
                with contextlib.suppress(OSError):
                    self._wakes.recv(4096)
        while self._calls:
            _guarded(self._calls.popleft())
        while self._timers and self._timers[0][0] <= time.monotonic():
            _guarded(heapq.heappop(self._timers)[2])
        while self._strangers and next(iter(self._strangers.values())) <= time.monotonic():
            self._close(next(iter(self._strangers)), "it did not say who it is")

    def _longest_wait(self) -> float | None:
        """Returns the seconds until a timer or the time of a stranger runs out."""
        ends = [timer[0] for timer in self._timers[:1]]
        ends += itertools.islice(self._strangers.values(), 1)
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def _accept(self) -> None:
        try:
            sock, address = self._listener.accept()
        except OSError as error:  # most often gone again: the next one may fare better
            if error.errno in _USED_UP:
                self._rest(_REST_SECONDS)
            return
        if self._nobody_expected:
            self._rest(_LATE_SECONDS)
        if len(self._connections) >= self._most_connections and not self._make_room():
            sock.close()
            return
        sock.setblocking(False)
        tune(sock)
        connection = Connection(self, sock, f"{address[0]}:{address[1]}")
        self._connections.add(connection)
        self._strangers[connection] = time.monotonic() + _STRANGER_SECONDS
        self._selector.register(sock, selectors.EVENT_READ, connection)
        connection.send_line(_framing.GREETING + b" " + connection.challenge.encode() + b"\n")

    def _make_room(self) -> bool:
        """Drops the oldest of those who have not even greeted, or else of all strangers."""
        silent = (each for each in self._strangers if not each._greeted)
        oldest = next(silent, None) or next(iter(self._strangers), None)
        if oldest is not None:
            self._close(oldest, "too many have not said who they are")
        return oldest is not None

    def _rest(self, seconds: float) -> None:
        self._selector.unregister(self._listener)
        self.call_later(seconds, self._listen_again)

    def _listen_again(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ, None)

    def _read(self, connection: Connection) -> None:
        try:
            data = connection._socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError as error:
            self._close(connection, str(error))
            return
        if not data:
            self._close(connection, "closed")
        if not data or connection._last_words:
            return
        try:
            for line in connection._lines.add(data):
                if not connection._greeted:
                    if line != _framing.GREETING:
                        raise _framing.FramingError(f"greeted with {line[:60]!r}")
                    connection._greeted = True
                    connection._lines.limit = self._first_message_limit
                else:
                    self._on_message(connection, _framing.decode(line))
                if not connection.open or connection._last_words:
                    return
        except _framing.FramingError as error:
            self._close(connection, str(error))
        except Exception as error:  # ours, and everybody else still counts on this thread
            traceback.print_exc(file=sys.stderr)
            self._close(connection, f"{type(error).__name__}: {error}")

    def _write(self, connection: Connection) -> None:
        try:
            sent = connection._socket.send(connection._unsent)
        except BlockingIOError:
            return
        except OSError as error:
            self._close(connection, str(error))
            return
        del connection._unsent[:sent]
        if connection._unsent:
            return
        if connection._last_words:
            connection.close()
        else:
            self._watch(connection, writing=False)

    def _watch(self, connection: Connection, writing: bool) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writing else 0)
        self._selector.modify(connection._socket, events, connection)

    def _close_soon(self, connection: Connection, reason: str) -> None:
        # Not at once: the caller may be going through the connections.
        self.call(lambda: self._close(connection, reason))

    def _close(self, connection: Connection, reason: str | None) -> None:
        if not connection.open:
            return
        connection.open = False
        self._connections.discard(connection)
        self._strangers.pop(connection, None)
        self._selector.unregister(connection._socket)
        connection._socket.close()
        _guarded(lambda: self._on_close(connection, reason))

    def _close_all(self) -> None:
        for connection in self._connections:
            connection.open = False
            connection._socket.close()
        self._connections.clear()
        for each in (self._listener, self._waker, self._wakes):
            each.close()
        self._selector.close()


def _guarded(fn: Callable[[], None]) -> None:
    try:
        fn()
    except Exception:  # everybody else still counts on this thread
        traceback.print_exc(file=sys.stderr)
