"""A relay between this worker's JAX and the coordinator in worker 0: it hides that worker 0 died.

JAX's client aborts the process (a C++ log line and SIGABRT) in the moment in which its connection
to the coordinator closes. The control plane notices the same end in the same moment and says in
Python which worker it was, but would lose that race as often as win it. So JAX is given an address
in this process, and when the far end closes, the near end stays open for a while: long enough to
leave in good order. Hardly anything goes through here: addresses when JAX starts, then heartbeats.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time

# How long JAX does not hear that its coordinator is gone. The control plane takes milliseconds.
_HOLD_SECONDS = 10.0
_CHUNK = 1 << 16
# JAX needs one connection, and perhaps another after it. Whoever else finds the port may not use up
# the descriptors and memory of this worker, nor of worker 0.
_MOST_CONNECTIONS = 8
_MOST_WAITING = 16 << 20
# When descriptors are used up, the listener stays readable.
_REST_SECONDS = 0.1


class _Pipe:
    """One direction of one connection."""

    def __init__(self, source: socket.socket, target: socket.socket, near: bool) -> None:
        self.source = source
        self.target = target
        self.from_near = near
        self.twin: _Pipe
        self.waiting = bytearray()
        self.ended = False


class Relay:
    """Listens on a free port of 127.0.0.1 and passes on to `host:port`, in a thread of its own."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._held: list[tuple[float, socket.socket]] = []
        self._passing = 0
        self._waker, self._wakes = socket.socketpair()
        self._selector.register(self._wakes, selectors.EVENT_READ, None)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="replicax-relay", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread and all connections."""
        self._stopping = True
        self._waker.send(b"x")
        self._thread.join(5.0)
        self.forget()

    def forget(self) -> None:
        """Gives up the descriptors: at the end, and in a forked child."""
        with contextlib.suppress(OSError, KeyError, RuntimeError, ValueError, AttributeError):
            for key in list(self._selector.get_map().values()):
                key.fileobj.close()  # pyright: ignore[reportAttributeAccessIssue]
            for _, near in self._held:
                near.close()
            self._waker.close()
            self._selector.close()

    def _run(self) -> None:
        while not self._stopping:
            wait = max(0.0, self._held[0][0] - time.monotonic()) if self._held else None
            for key, mask in self._selector.select(wait):
                pipe: _Pipe | None = key.data
                if pipe is None:
                    if key.fileobj is self._listener:
                        self._accept()
                    continue
                if mask & selectors.EVENT_WRITE and not pipe.ended:
                    self._write(pipe.twin)
                if mask & selectors.EVENT_READ and not pipe.ended:
                    self._read(pipe)
            while self._held and self._held[0][0] <= time.monotonic():
                self._held.pop(0)[1].close()

    def _accept(self) -> None:
        try:
            near, _ = self._listener.accept()
        except OSError:
            time.sleep(_REST_SECONDS)
            return
        if self._passing + len(self._held) >= _MOST_CONNECTIONS:
            near.close()
            return
        try:
            far = socket.create_connection(self._target, 5.0)
        except OSError:
            self._hold(near)
            return
        outward, inward = _Pipe(near, far, near=True), _Pipe(far, near, near=False)
        outward.twin, inward.twin = inward, outward
        self._passing += 1
        for pipe in (outward, inward):
            pipe.source.setblocking(False)
            pipe.source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(pipe.source, selectors.EVENT_READ, pipe)

    def _read(self, pipe: _Pipe) -> None:
        try:
            data = pipe.source.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end(pipe)
            return
        pipe.waiting += data
        if len(pipe.waiting) > _MOST_WAITING:
            self._end(pipe)
        else:
            self._write(pipe)

    def _write(self, pipe: _Pipe) -> None:
        """Passes on what it can, and the rest when there is room."""
        try:
            sent = pipe.target.send(pipe.waiting)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._end(pipe.twin)
            return
        del pipe.waiting[:sent]
        room = selectors.EVENT_WRITE if pipe.waiting else 0
        self._selector.modify(pipe.target, selectors.EVENT_READ | room, pipe.twin)

    def _end(self, pipe: _Pipe) -> None:
        """The source has closed: JAX itself, or the coordinator, which JAX is not to know yet."""
        pipe.ended = pipe.twin.ended = True
        self._passing -= 1
        for each in (pipe.source, pipe.target):
            self._selector.unregister(each)
        pipe.source.close()
        if pipe.from_near:
            pipe.target.close()
        else:
            self._hold(pipe.target)

    def _hold(self, near: socket.socket) -> None:
        self._held.append((time.monotonic() + _HOLD_SECONDS, near))
