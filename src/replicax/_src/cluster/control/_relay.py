"""A relay between this worker's JAX and the coordinator in worker 0: it hides that worker 0 died.

JAX's client aborts the process (a C++ log line and SIGABRT) in the moment in which its connection
to the coordinator closes. The control plane notices the same end in the same moment and says in
Python which worker it was, but would lose that race as often as win it. So JAX is given an address
in this process, and when the far end closes, the near end stays open for a while: long enough to
leave in good order. Hardly anything goes through here: addresses when JAX starts, then heartbeats.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import final

from replicax._src.cluster.control._loop_thread import LoopThread

# How long JAX does not hear that its coordinator is gone. The control plane takes milliseconds.
_HOLD_SECONDS = 10.0
_CONNECT_SECONDS = 5.0
_CHUNK = 1 << 16
# JAX needs one connection, and perhaps another after it. Whoever else finds the port may not use up
# the descriptors and memory of this worker, nor of worker 0.
_MOST_CONNECTIONS = 8
# When descriptors are used up, the listener stays readable.
_REST_SECONDS = 0.1


@final
class Relay:
    """Listens on a free port of 127.0.0.1 and passes on to `host:port`, in a thread of its own."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets = {self._listener}
        self._thread = LoopThread("replicax-relay", self._serve)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread and all connections."""
        self._thread.stop()
        self.forget()

    def forget(self) -> None:
        """Gives up the descriptors: at the end, and in a forked child."""
        for each in list(self._sockets):
            each.close()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[None]] = set()
        while True:
            try:
                near, _ = await loop.sock_accept(self._listener)
            except OSError:
                await asyncio.sleep(_REST_SECONDS)
                continue
            if len(tasks) >= _MOST_CONNECTIONS:
                near.close()
                continue
            task = loop.create_task(self._relay(near))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _relay(self, near: socket.socket) -> None:
        """Passes on in both directions until JAX or the coordinator closes its end."""
        with self._kept(near):
            try:
                # It blocks the thread for a moment: JAX has no other connection that waits for it,
                # and asyncio would look up names in further threads.
                far = socket.create_connection(self._target, _CONNECT_SECONDS)
            except OSError:
                closed = set()
            else:
                with self._kept(far):
                    closed = await _pass_on(near, far)
            if near not in closed:  # it is the coordinator, which JAX is not to know yet
                await asyncio.sleep(_HOLD_SECONDS)

    @contextlib.contextmanager
    def _kept(self, sock: socket.socket) -> Iterator[None]:
        """Closes a socket after `with`; in it, `forget` does."""
        self._sockets.add(sock)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield
        finally:
            self._sockets.discard(sock)
            sock.close()


async def _pass_on(near: socket.socket, far: socket.socket) -> set[socket.socket]:
    """Passes on what comes, both ways; returns the ends that have closed."""
    copies = [asyncio.create_task(_copy(*ends)) for ends in ((near, far), (far, near))]
    try:
        done, _ = await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in copies:
            each.cancel()
        await asyncio.wait(copies)  # nobody waits for the sockets any more: they can be closed
    return {each.result() for each in done}


async def _copy(source: socket.socket, target: socket.socket) -> socket.socket:
    """Passes on what comes from `source`; returns the end that has closed."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            data = await loop.sock_recv(source, _CHUNK)
        except OSError:
            data = b""
        if not data:
            return source
        try:
            await loop.sock_sendall(target, data)
        except OSError:
            return target
