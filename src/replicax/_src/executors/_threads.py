"""Tasks that run on threads of their own, one at a time, when told to.

A `Task` moves until it pauses or ends; the thread that resumed it waits meanwhile. So replicas are
real Python threads, each with its own JAX trace and context, yet only one moves at a time and their
order is fixed.

Ctrl-C reaches the waiting thread between any two instructions. So threads are not taken back:
a thread that has ended its task becomes free by itself, and a paused one cannot. What the two sides
tell each other belongs to the task, so that nothing of an abandoned one reaches another.
"""

from __future__ import annotations

import collections
import ctypes
import itertools
import os
import queue
import threading
from collections.abc import Callable
from typing import TypeAlias

GRACE_SECONDS = 5.0
NAME_PREFIX = "replicax-replica-"
_numbers = itertools.count()
_Tasks: TypeAlias = "queue.SimpleQueue[Task]"


class TaskEnded(BaseException):
    """Raised by `pause` in a task that is to end.

    A BaseException, so that a user's `except Exception` does not keep the task going.
    """


class Task:
    """Code that moves on a thread of `pool`, from each `resume` until it calls `pause` or ends."""

    def __init__(self, pool: ThreadPool, code: Callable[[], None]) -> None:
        self._pool = pool
        self._code: Callable[[], None] | None = code
        # Each is filled by the other side. Putting never waits and never fails.
        self._turns: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._stops: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # around the next two
        self._thread_id: int | None = None  # while the code may be interrupted
        self._is_interrupted = False
        self._is_awaited = False  # it has a thread, and the one that resumes it waits
        self._ending = False
        self._has_ended = False

    def take_thread(self) -> None:
        """Takes a thread, before the first `resume`."""
        self._pool.give(self)
        self._is_awaited = True

    def resume(self) -> None:
        """Lets the code move on; returns when it pauses or has ended."""
        try:
            self._turns.put(None)
            self._stops.get()
        except BaseException:
            self._stop()
            raise

    def end(self) -> None:
        """Lets the code run to its end; `pause` raises `TaskEnded` in it."""
        try:
            self.abandon()
            if self._is_awaited:
                self._wait_for_end()
        except BaseException:
            self._stop()
            raise

    def _stop(self) -> None:
        """Hands on a Ctrl-C, or another signal's exception, that reached the waiting thread.

        The thread that does the work gets it and has some time to stop; a second Ctrl-C, or the end
        of that time, leaves it alone.
        """
        self._is_awaited = False
        self.abandon()
        with self._lock:
            if self._thread_id is not None and not self._is_interrupted:
                self._is_interrupted = True
                _raise_in(self._thread_id, KeyboardInterrupt)
        self._wait_for_end(GRACE_SECONDS)

    def abandon(self) -> None:
        """Lets the code run to its end, as `end` does, but does not wait for it."""
        self._ending = True
        self._turns.put(None)

    def pause(self) -> None:
        """Called by the code: gives the turn back and waits for the next `resume`."""
        if not self._ending:
            self._stops.put(None)
            self._turns.get()
        if self._ending:
            raise TaskEnded

    def _wait_for_end(self, seconds: float | None = None) -> None:
        while not self._has_ended:
            try:
                self._stops.get(timeout=seconds)
            except queue.Empty:
                return

    def run(self) -> bool:
        """Called by the thread; returns whether it can be used again."""
        self._turns.get()
        try:
            try:
                with self._lock:
                    self._thread_id = threading.get_ident()
                if not self._ending and self._code is not None:
                    self._code()  # catches everything itself
            finally:
                with self._lock:
                    self._thread_id = None
                if self._is_interrupted:
                    # It may be still on its way. This one takes its place, and arrives here.
                    _raise_in(threading.get_ident(), KeyboardInterrupt)
                    while True:
                        pass
        except BaseException:
            pass
        self._code = None
        return not self._is_interrupted

    def tell_end(self) -> None:
        """Called by the thread, when it is free for another task."""
        self._has_ended = True
        self._stops.put(None)


def _raise_in(thread_id: int, error: type[BaseException]) -> None:
    """Raises `error` in another thread, between two of its instructions."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(error))


class ThreadPool:
    """Threads for tasks: as many as are wanted at once, of which at most `keep` stay."""

    def __init__(self, keep: int = 64) -> None:
        self._keep = keep
        self._free: collections.deque[_Tasks] = collections.deque()

    def give(self, task: Task) -> None:
        """Hands the task to a free thread, or to a new one."""
        try:
            tasks = self._free.pop()
        except IndexError:
            self._start_thread(task)
        else:
            tasks.put(task)

    def _start_thread(self, task: Task) -> None:
        tasks: _Tasks = queue.SimpleQueue()
        tasks.put(task)  # first: Ctrl-C may come while the thread starts, and it would have none
        name = f"{NAME_PREFIX}{next(_numbers)}"
        threading.Thread(target=self._serve, args=(tasks,), name=name, daemon=True).start()

    def _serve(self, tasks: _Tasks) -> None:
        stays = True
        while stays:
            task = tasks.get()
            stays = task.run() and len(self._free) < self._keep
            if stays:
                self._free.append(tasks)
            task.tell_end()
            del task

    def forget(self) -> None:
        """After a fork the threads do not exist in the child."""
        self._free.clear()


pool = ThreadPool()
if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=pool.forget)
