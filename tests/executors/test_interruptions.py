"""Ctrl-C at every point of an eager step at which Python may notice it, and again at its end."""

import contextlib
import dis
import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

import pytest

from replicax._src.context import _scope, _stack, thread_state
from replicax._src.executors import _lockstep, _threads
from replicax._src.strategies import _strategy
from tests.replicas import context, mirrored

MODULES = (_lockstep, _threads, _scope, _stack, _strategy, threading, contextlib)
FILES = {module.__file__ for module in MODULES}


@functools.cache
def signal_points(code: CodeType) -> set[int]:
    """The instructions before which a Ctrl-C may be raised.

    Python looks for signals after calls, jumps back and the starts of functions; a call that waits
    is itself interrupted. It does not look before a `with` block calls `__exit__`, with 3 Nones.
    """
    points, before, nones = set(), "", 0
    for each in dis.get_instructions(code):
        name = each.opname
        is_call = name.startswith("CALL") and nones < 3
        if is_call or before.startswith(("CALL", "JUMP_BACKWARD", "RESUME")):
            points.add(each.offset)
        if name != "PRECALL":
            nones = nones + 1 if name == "LOAD_CONST" and each.argval is None else 0
        before = name
    return points


class CtrlC:
    """Raises KeyboardInterrupt at one point of this thread, counted from when it is armed."""

    def __init__(self, point: int) -> None:
        self.left = point
        self.is_armed = False
        self.place: Any = None

    def trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename not in FILES:
            return None
        frame.f_trace_opcodes = True
        is_point = event == "opcode" and frame.f_lasti in signal_points(frame.f_code)
        if self.is_armed and is_point and self.place is None:
            self.left -= 1
            if self.left == 0:
                self.place = frame.f_code.co_qualname, frame.f_lineno
                raise KeyboardInterrupt
        return self.trace

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self.trace)
        try:
            yield
        finally:
            sys.settrace(before)


def wait_until(condition: Callable[[], bool], what: Any) -> None:
    end = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.001)


def interrupted_step(strategy: Any, ctrl_c: CtrlC, at_end: bool) -> list[str]:
    """Runs a step that is interrupted; returns the events of its replicas, when all have ended."""
    events: list[str] = []

    def second(strategy: Any) -> None:
        if at_end:
            ctrl_c.is_armed = True
            raise KeyboardInterrupt

    def step() -> None:
        events.append("begun")
        try:
            context().merge_call(lambda strategy: None)
            context().merge_call(second)
        finally:
            events.append("ended")

    ctrl_c.is_armed = not at_end
    with contextlib.suppress(KeyboardInterrupt), ctrl_c.watching():
        strategy.run(step)
    wait_until(lambda: events.count("begun") == events.count("ended"), (ctrl_c.place, events))
    return events


class Pool(_threads.ThreadPool):
    """A pool that can end its threads, also one that was interrupted as it took a task."""

    def __init__(self) -> None:
        super().__init__()
        self._served: list[Any] = []

    def _serve(self, tasks: Any) -> None:
        self._served.append((tasks, threading.current_thread()))
        super()._serve(tasks)

    def end(self) -> None:
        self._keep = 0
        for tasks, thread in self._served:
            task = _threads.Task(self, lambda: None)
            task.abandon()
            tasks.put(task)
            thread.join(200)
            assert not thread.is_alive()


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What threads would print as they die. Replicas run on threads of the test's own."""
    told: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    pool = Pool()
    monkeypatch.setattr(_lockstep, "pool", pool)
    yield told
    pool.end()


def require_a_good_step(strategy: Any, place: Any) -> None:
    def step() -> Any:
        number = context().replica_id_in_sync_group
        return context().merge_call(lambda strategy, numbers: sum(numbers.values), (number,))

    assert strategy.run(step) == sum(range(strategy.num_replicas_in_sync)), place


@pytest.mark.parametrize("at_end", [False, True], ids=["first", "second"])
def test_ctrl_c_at_every_point_leaves_nothing_for_later_steps(at_end: bool, printed: list[Any]):
    strategy, points = mirrored(2), 0
    while True:
        ctrl_c = CtrlC(points + 1)
        events = interrupted_step(strategy, ctrl_c, at_end)
        before = list(events)
        assert thread_state.frames == [], ctrl_c.place
        for _ in range(2):
            require_a_good_step(strategy, ctrl_c.place)
        assert events == before, ctrl_c.place
        assert printed == [], ctrl_c.place
        if ctrl_c.place is None:  # the step has no more points
            break
        points += 1
    if points == 0 and sys.version_info[:2] == (3, 12):
        pytest.skip("Python 3.12 reports no instructions to a trace function that asks for them")
    assert points > 40
