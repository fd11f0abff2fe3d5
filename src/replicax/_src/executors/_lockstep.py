"""The eager executor: a thread per replica, in lock-step, in replica order.

Replica 0 runs until it returns or wants to meet the others; then replica 1; and so on. When all
have arrived, the calling thread handles the meeting in cross-replica context, and the next round
begins. Real Python: prints, debuggers and side effects work, once per replica.

A new thread inherits no context. `_Replica._run` hands each one what it needs, in one place.
"""

from __future__ import annotations

import contextvars
import enum
import functools
import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax

from replicax._src import _jax_internals
from replicax._src._errors import (
    ReplicaMismatchError,
    WrongContextError,
    add_note,
    show_users_part,
)
from replicax._src._typing import Device, PyTree
from replicax._src.context import (
    Frame,
    Handler,
    ReplicaContext,
    StrategyLike,
    entered,
    entered_world,
    leave_meetings,
    replica_number_of,
    thread_state,
    world,
)
from replicax._src.devices import refuse_planned, replicas_on, short_name
from replicax._src.executors._threads import Task, pool
from replicax._src.values import (
    as_one_of_many,
    drop_gathered,
    regroup,
    regroup_alone,
    released,
    select_replica,
)

ReplicaCall = tuple[tuple[Any, ...], dict[str, Any]]


class _State(enum.Enum):
    READY = enum.auto()
    MEETING = enum.auto()
    DONE = enum.auto()
    FAILED = enum.auto()


class _Replica:
    """One replica's run: its task, where it stands, and what it brought to a meeting."""

    def __init__(
        self,
        fn: Callable[..., Any],
        call: ReplicaCall,
        inherited: _Inherited,
        strategy: StrategyLike,
        device: Device,
        replica_id: int,
        shared: dict[Any, Any],
    ):
        self.task = Task(pool, functools.partial(self._run, fn, call, inherited))
        self.device = device
        self.replica_id = replica_id
        self.state = _State.READY
        self.result: Any = None
        self.error: BaseException | None = None
        self.key: Hashable = None
        self.what = ""
        self.payload: Any = None
        self.handler: Handler | None = None
        self.keep_same = False
        self.context = ReplicaContext(strategy, replica_id, meet=self._meet, shared=shared)

    def _run(self, fn: Callable[..., Any], call: ReplicaCall, inherited: _Inherited) -> None:
        args, kwargs = call
        frame = Frame(self.context.strategy, self.context)
        try:
            with (
                _jax_internals.with_thread_settings(inherited.jax_settings),
                jax.default_device(self.device),
                entered(frame),
                entered_world(inherited.world),
            ):
                thread_state.creators = list(inherited.creators)
                self.result = inherited.variables.copy().run(fn, *args, **kwargs)
            self.state = _State.DONE
        except BaseException as error:  # handed to the calling thread, whatever it is
            self.error = error
            self.state = _State.FAILED
        leave_meetings(self.context)  # no cycle

    def _meet(
        self, key: Hashable, what: str, payload: PyTree, handler: Handler, keep_same: bool
    ) -> Any:
        if _jax_internals.is_staging():
            world().leave_to_python(f"eager replicas meet in it: {what}")
            raise WrongContextError(
                f"{what} was called inside a function that JAX compiles (jax.jit, lax.scan, "
                "...). Eager replicas meet in Python, which a compiled function cannot do. Compile "
                "the whole step, with rx.function around strategy.run; or run the inner function "
                "as plain Python, without jax.jit."
            )
        self.key, self.what, self.payload, self.handler = key, what, payload, handler
        self.keep_same = keep_same
        self.state = _State.MEETING
        self.task.pause()
        result, self.result = self.result, None
        return result

    def describe(self) -> str:
        doing = {
            _State.READY: "has not started",
            _State.MEETING: f"called {self.what}",
            _State.DONE: "returned",
            _State.FAILED: f"raised {type(self.error).__name__}",
        }
        number = replica_number_of(self.context)
        return f"  replica {number} ({short_name(self.device)}): {doing[self.state]}"


class _Inherited:
    """What replica threads take over from the thread that called `run`."""

    def __init__(self) -> None:
        self.jax_settings = _jax_internals.thread_settings()
        self.variables = contextvars.copy_context()
        self.creators = list(thread_state.creators)
        self.world = world()


def run_in_lockstep(
    strategy: StrategyLike,
    devices: tuple[Device, ...],
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Returns what `fn(*args, **kwargs)` returns on the replicas, merged into one structure."""
    refuse_planned(devices[0], f"a run of {fn!r} as plain Python, which cannot be one program,")
    calls = [select_replica(index, (args, kwargs)) for index in range(len(devices))]
    if replicas_on(devices) == 1:
        return _run_alone(strategy, devices, fn, calls[0])
    if _jax_internals.is_tracing():
        raise RuntimeError(
            "strategy.run with several replicas was called while JAX traces the function around "
            "it (jax.jit, jax.grad, lax.fori_loop, ...). Eager replicas are Python threads, which "
            "a traced function cannot start. Use rx.function in place of jax.jit, and around "
            "lax.fori_loop; or call strategy.run outside, and jax.jit or rx.value_and_grad in the "
            "replica function."
        )
    if sys.is_finalizing():
        raise RuntimeError(
            "strategy.run with several replicas was called while Python shuts down, when threads "
            "no longer run. Call it before the program ends, or from atexit."
        )
    shared: dict[Any, Any] = {}
    inherited = _Inherited()
    replicas = [
        _Replica(fn, call, inherited, strategy, device, index, shared)
        for index, (call, device) in enumerate(zip(calls, devices, strict=True))
    ]
    try:
        for replica in replicas:
            replica.task.take_thread()
        for replica in replicas:
            replica.task.resume()
            _raise_if_failed(replica, strategy.num_replicas_in_sync)
        # A list: Python drops a Ctrl-C that arrives while a generator of `all` is closed.
        while [each for each in replicas if each.state is not _State.DONE]:
            _hold_meeting(strategy, replicas)
        return released(_merged([replica.result for replica in replicas]), devices)
    finally:
        try:
            _end_all(replicas)
        finally:
            _abandon_all(replicas)
            drop_gathered()


def _run_alone(
    strategy: StrategyLike, devices: tuple[Device, ...], fn: Callable[..., Any], call: ReplicaCall
) -> Any:
    """Runs the only replica on the calling thread; returns its result."""
    args, kwargs = call
    context = ReplicaContext(strategy, 0)
    with jax.default_device(devices[0]), entered(Frame(strategy, context)):
        return released(regroup_alone(fn(*args, **kwargs)), devices)


def _hold_meeting(strategy: StrategyLike, replicas: Sequence[_Replica]) -> None:
    """Does once what all replicas wait for, and lets each of them move on with its result."""
    _require_agreement(replicas)
    handler = replicas[0].handler
    assert handler is not None
    payloads = [replica.payload for replica in replicas]
    merged = _merged(
        payloads, always_wrap=not replicas[0].keep_same, what=f"met in {replicas[0].what} with"
    )
    with entered(Frame(strategy)):
        result = handler(merged)
    del payloads, merged, handler
    for index, replica in enumerate(replicas):
        replica.payload = replica.handler = None
        replica.result = select_replica(index, result)
        replica.task.resume()
        _raise_if_failed(replica, strategy.num_replicas_in_sync)


def _merged(per_replica: list[Any], **how: Any) -> Any:
    # Alone here, but not in the whole: other workers have replicas too.
    return as_one_of_many(per_replica[0]) if len(per_replica) == 1 else regroup(per_replica, **how)


def _require_agreement(replicas: Sequence[_Replica]) -> None:
    if all(r.state is _State.MEETING and r.key == replicas[0].key for r in replicas):
        return
    listing = "\n".join(replica.describe() for replica in replicas)
    if len({(replica.state, replica.what) for replica in replicas}) == 1:
        listing += (
            "\nThey did it with different objects: make optimizers and variables once, before "
            "strategy.run, and not in the replica function."
        )
    raise ReplicaMismatchError(
        f"The replicas did not do the same thing:\n{listing}\nEvery replica must make the same "
        "merge_call, all_reduce, all_gather and aggregated variable updates, in the same order. "
        "Look for an `if`, a loop or an early return that depends on the replica or its data; make "
        "all replicas take part, for example with a zero."
    )


def _raise_if_failed(replica: _Replica, count: int) -> None:
    error = replica.error
    if error is None:
        return
    number = replica_number_of(replica.context)
    note = f"(raised in replica {number} of {count}, on {short_name(replica.device)})"
    add_note(error, note)
    show_users_part(error)
    raise error


def _end_all(replicas: Sequence[_Replica]) -> None:
    """Brings every replica that still waits at a meeting to its end, running its `finally`s."""
    interruption: BaseException | None = None
    for replica in replicas:
        try:
            replica.task.end()
        except BaseException as error:  # Ctrl-C in here: the others must end nevertheless
            interruption = error
    if interruption is not None:
        raise interruption


def _abandon_all(replicas: Sequence[_Replica]) -> None:
    """Does not wait: after a Ctrl-C, replicas may still be at work."""
    for replica in replicas:
        replica.task.abandon()
        # No cycles: results must go when the user drops them, not when Python collects garbage.
        replica.error = replica.result = None
