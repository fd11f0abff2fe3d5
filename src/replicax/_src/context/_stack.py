"""Which context this thread is in: a stack of frames, one stack per thread.

There are four contexts: *default* (the stack is empty: one replica under the default strategy),
*cross-replica* (`strategy.scope()`, or inside a `merge_call`), *replica* (inside `strategy.run`)
and *update* (inside `extended.update`). A new thread inherits nothing: the code that starts one
hands it its frames.

The default strategy and the eager world are defined in rooms above. `strategies/_default.py` fills
the two slots for them when it is imported.
"""

from __future__ import annotations

import contextvars
import dataclasses
import enum
import threading
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from replicax._src._typing import override

if TYPE_CHECKING:
    from replicax._src.context._replica import ReplicaContext
    from replicax._src.context._world import World


@final
class Each(enum.Enum):
    """The type of `EACH`."""

    EACH = "each replica"

    @override
    def __repr__(self) -> str:
        return self.value

    __str__ = __repr__


EACH: Final = Each.EACH
"""Stands for a replica's number where one traced program speaks for all replicas at once."""

ReplicaId: TypeAlias = "int | Each"
"""The number of a replica, or `EACH`."""


def copy_for(replica_id: ReplicaId, copies: int) -> ReplicaId:
    """Returns which of so many copies a replica has: the last one serves all replicas after it."""
    return EACH if replica_id is EACH else min(replica_id, copies - 1)


def first_of(replica_id: ReplicaId) -> int:
    """Returns the number of the replica, or that of the first of `EACH`."""
    return 0 if replica_id is EACH else replica_id


@dataclasses.dataclass(frozen=True, slots=True)
class Frame:
    """One context: the strategy, and the replica if there is a single one to speak of."""

    strategy: Any
    replica_context: ReplicaContext | None = None
    update_replica_id: Any = None
    # The scope that was entered in an asyncio task, which only this task and those made in it see.
    task_scope: object = None


class ThreadState(threading.local):
    """Everything that replicax keeps per thread."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.creators: list[Any] = []  # rx.variable_creator_scope and colocate_vars_with
        self.set_strategy: Any = None  # the scope entered by experimental_set_strategy
        self.world: World | None = None  # None for the eager world, as it is by itself


thread_state = ThreadState()
_default_frame: list[Frame] = []


def fill_default_slot(frame: Frame) -> None:
    """Called once, by `strategies/_default.py`."""
    _default_frame[:] = [frame]


scopes_of_task: contextvars.ContextVar[tuple[object, ...]] = contextvars.ContextVar(
    "scopes_of_task", default=()
)
"""The scopes that were entered in this asyncio task, and in those that it was made in."""


def current_frame() -> Frame:
    """Returns the current context of this thread, as this asyncio task sees it."""
    frames = thread_state.frames
    if frames and frames[-1].task_scope is None:
        return frames[-1]
    for frame in reversed(frames):
        if frame.task_scope is None or frame.task_scope in scopes_of_task.get():
            return frame
    return _default_frame[0]


def is_default(frame: Frame) -> bool:
    """Returns whether this is the default context, of the default strategy's only replica."""
    return frame is _default_frame[0]


def default_strategy() -> Any:
    return _default_frame[0].strategy


_eager_world: list[World] = []


def fill_world_slot(world: World) -> None:
    """Called once, by `strategies/_default.py`."""
    _eager_world[:] = [world]


def world() -> World:
    """Returns the world of this thread: how things are done here, now."""
    return thread_state.world or _eager_world[0]


def is_compiling() -> bool:
    """Returns whether an `rx.function` is traced on this thread. Prefer a method of `world()`."""
    return world().is_program


def depth() -> int:
    """Returns how many contexts are entered on this thread; 0 in the default context."""
    return len(thread_state.frames)


class entered:
    """Context manager: makes `frame` the current context of this thread."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def __enter__(self) -> None:
        thread_state.frames.append(self._frame)

    def __exit__(self, *_: object) -> None:
        thread_state.frames.pop()


class entered_world:
    """Context manager: makes `world` that of this thread; None for the eager world by itself."""

    def __init__(self, world: World | None) -> None:
        self._world = world

    def __enter__(self) -> None:
        self._outer, thread_state.world = thread_state.world, self._world

    def __exit__(self, *_: object) -> None:
        thread_state.world = self._outer
