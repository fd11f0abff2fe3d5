"""Threads that are kept and reused, and that run one at a time when told to.

A `ReplicaThread` runs a task until the task pauses or ends; whoever resumed it waits meanwhile. So
replicas are real Python threads, each with its own JAX trace and context, yet only one moves at a
time and their order is fixed.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

GRACE_SECONDS = 5.0
NAME_PREFIX = "replicax-replica-"
_numbers = itertools.count()


class ReplicaThread:
    """One kept thread; `resume` lets it move until it calls `pause` or its task ends."""

    def __init__(self) -> None:
        # Two locks used as signals, each released by the other side: a third of the cost of
        # threading.Semaphore, and the turn changes hands strictly alternately.
        self._go = threading.Lock()
        self._stopped = threading.Lock()
        self._go.acquire()
        self._stopped.acquire()
        self._task: Callable[[], None] | None = None
        self._moving = False  # between a resume and the next pause
        self.reusable = True  # idle, and never interrupted
        self._thread = threading.Thread(
            target=self._loop, name=f"{NAME_PREFIX}{next(_numbers)}", daemon=True
        )
        self._thread.start()

    def _loop(self) -> None:
        while True:
            self._go.acquire()
            task, self._task = self._task, None
            if task is None:
                return
            task()  # tasks catch everything themselves
            del task
            self._moving = False
            self._stopped.release()

    def start(self, task: Callable[[], None]) -> None:
        """Gives the thread a task and lets it move; returns when it pauses or has ended."""
        self._task = task
        self.resume()

    def resume(self) -> None:
        """Lets the task move on; returns when it pauses or has ended."""
        self._moving = True
        try:
            self._go.release()
            self._stopped.acquire()
        except BaseException:
            # Ctrl-C, or another signal's exception, reaches the waiting thread. Hand it to the
            # one that is doing the work and give it some time to stop; a second Ctrl-C, or the
            # end of that time, abandons it.
            self.reusable = False
            if self._moving:
                self._interrupt()
                self._stopped.acquire(timeout=GRACE_SECONDS)
            else:  # it had stopped; take its signal if that was not taken yet
                self._stopped.acquire(blocking=False)
            raise

    def _interrupt(self) -> None:
        if self._thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread.ident), ctypes.py_object(KeyboardInterrupt)
            )

    def pause(self) -> None:
        """Called by the task: gives the turn back and waits for the next `resume`."""
        self._moving = False
        self._stopped.release()
        self._go.acquire()

    def end(self) -> None:
        """Lets an idle thread finish."""
        self._task = None
        self._go.release()


class ThreadPool:
    """Idle replica threads. A run borrows as many as it has replicas; runs may be nested."""

    def __init__(self, keep: int = 64) -> None:
        self._keep = keep
        self._idle: list[ReplicaThread] = []
        self._lock = threading.Lock()

    @contextmanager
    def borrowed(self, count: int) -> Iterator[list[ReplicaThread]]:
        """`count` idle threads, which must be idle again at the end of the block."""
        with self._lock:
            taken = [self._idle.pop() if self._idle else ReplicaThread() for _ in range(count)]
        try:
            yield taken
        finally:
            with self._lock:
                for thread in taken:
                    if thread.reusable and len(self._idle) < self._keep:
                        self._idle.append(thread)
                    else:
                        thread.end()

    def forget(self) -> None:
        """After a fork the threads do not exist in the child."""
        self._idle = []
        self._lock = threading.Lock()


pool = ThreadPool()
if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=pool.forget)
