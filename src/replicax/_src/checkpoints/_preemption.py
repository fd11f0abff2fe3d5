"""`PreemptionCheckpointHandler`: when a worker is told to go, all save the same step and leave.

A notice (SIGTERM, or what a watcher function sees) comes to one worker, at any time. It goes to all
workers over the control plane. From then on nobody begins another call of `run`; each tells how
many it has begun, and the largest of these numbers is the step: workers that have begun fewer go
on until there. A worker may be in the middle of a call, waiting for the others in a collective, so
that the answer is given by another thread.
"""

from __future__ import annotations

import contextlib
import enum
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, ParamSpec, TypeVar, final

from replicax._src._errors import WorkersMissingError
from replicax._src.checkpoints._checkpoint import Checkpoint
from replicax._src.checkpoints._graph import walk
from replicax._src.checkpoints._manager import CheckpointManager
from replicax._src.checkpoints._restoring import CALL_COUNTER
from replicax._src.cluster import Membership, current_membership
from replicax._src.cluster.control import RESTART_STATUS
from replicax._src.data import PositionedIterator, positions_now

_POLL_SECONDS = 1.0  # how often a watcher function is asked
_PATIENCE_SECONDS = 600.0  # for the other workers' answers
_TO_SPARE_SECONDS = 5.0  # of a grace period

P = ParamSpec("P")
R = TypeVar("R")


@final
class _Notice(enum.IntEnum):
    """What a worker is told, the later ones larger; the numbers travel to the other workers."""

    NONE = 0
    END_IS_NEAR = 1
    GRACE_PERIOD_IS_OVER = 2


@final
class _Event(enum.Enum):
    """What the thread that watches for notices is woken for."""

    SIGNAL = enum.auto()  # a notice has come
    NEW_TIME = enum.auto()  # there is another time to look at
    NEW_ROUND = enum.auto()  # all have saved and go on


class TerminationConfig:
    """How a `PreemptionCheckpointHandler` learns that the end is near, and how it leaves.

    Args:
      termination_watcher_fn: called again and again, about once a second; says whether this worker
        is to end. By default SIGTERM says so.
      exit_fn: called when the checkpoint is saved; by default `sys.exit(42)`, which
        `replicax launch` takes as "start again". A function that returns lets the training go on.
      grace_period: seconds from the notice to the end. If there are any, a checkpoint is saved at
        once, the training goes on, and another one is saved in time.
      save_fn: saves the checkpoint, in the place of the manager's `save`.
    """

    def __init__(
        self,
        termination_watcher_fn: Callable[[], bool] | None = None,
        exit_fn: Callable[[], Any] | None = None,
        grace_period: float | None = None,
        save_fn: Callable[[], Any] | None = None,
    ):
        self.termination_watcher_fn = termination_watcher_fn
        self.exit_fn = exit_fn
        self.grace_period = grace_period
        self.save_fn = save_fn


class PreemptionCheckpointHandler:
    """Saves a checkpoint of one step on all workers when one of them is to be preempted.

    Made at the beginning, it restores the latest checkpoint. `run` calls the training function, and
    saves before a call if a notice has come: then all workers leave, with exit status 42, after
    which `replicax launch` starts them again.

    Where the checkpoint holds an iterator and a batch is taken from it as an argument of `run`,
    what is saved is its position before that batch: the batch is not lost.

        handler = rx.distribute.experimental.PreemptionCheckpointHandler(
            strategy.cluster_resolver, manager
        )
        while int(step.numpy()) < steps:
            loss = handler.run(train_step, next(iterator))

    Args:
      cluster_resolver: kept for ported code: the strategy has joined the cluster already.
      checkpoint_or_checkpoint_manager: what to save, or the manager that saves it.
      checkpoint_dir: for a checkpoint without a manager, where.
      termination_config: `TerminationConfig`.
    """

    def __init__(
        self,
        cluster_resolver: object,
        checkpoint_or_checkpoint_manager: Checkpoint | CheckpointManager,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        termination_config: TerminationConfig | None = None,
    ):
        self._manager = _as_manager(checkpoint_or_checkpoint_manager, checkpoint_dir)
        config = termination_config or TerminationConfig()
        self._exit = config.exit_fn or (lambda: sys.exit(RESTART_STATUS))
        self._save_fn = config.save_fn
        self._grace_period = config.grace_period or 0.0
        self._membership = current_membership()
        self._calls = 0  # in this process
        self._earlier_calls = 0
        setattr(self._manager.checkpoint, CALL_COUNTER, 0)
        self._manager.restore_or_initialize()
        self._earlier_calls = int(getattr(self._manager.checkpoint, CALL_COUNTER))
        self._agreement = _Agreement(self._membership)
        self._positions = positions_now()
        self._watch = _Watch(config.termination_watcher_fn, self._agreement.ask_all)

    @property
    def total_run_calls(self) -> int:
        """How many calls of `run` have ended, with those before the restored checkpoint."""
        return self._earlier_calls + self._calls

    def run(
        self, distributed_train_function: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Calls the function, after saving and leaving if a notice has come.

        Args:
          distributed_train_function: typically makes one step. Every worker calls `run` as often.
          *args: its arguments.
          **kwargs: its keyword arguments.

        Returns:
          What the function returns.
        """
        while notice := self._notice_to_save_for():
            self._save_and_leave(notice)
        result = distributed_train_function(*args, **kwargs)
        self._count_call()
        return result

    def save_checkpoint_if_preempted(self, *args: Any, **kwargs: Any) -> None:
        """Saves and leaves if a notice has come: for loops without `run`, after every step.

        Args:
          *args: for the manager's `save`.
          **kwargs: likewise.
        """
        self._count_call()
        while notice := self._notice_to_save_for():
            self._save_and_leave(notice, *args, **kwargs)

    @contextlib.contextmanager
    def watch_preemption_scope(self) -> Iterator[None]:
        """Context manager around a training loop: saves at its end if a notice came meanwhile."""
        yield
        while notice := self._notice_to_save_for():
            self._save_and_leave(notice)

    def _notice_to_save_for(self) -> _Notice:
        return self._agreement.notice_to_save_for(self._calls, self._watch.is_told)

    def _count_call(self) -> None:
        self._calls += 1
        setattr(self._manager.checkpoint, CALL_COUNTER, self.total_run_calls)
        self._agreement.ended(self._calls)
        self._positions = positions_now()
        if self._membership is not None:
            self._membership.progress.step = self.total_run_calls

    def _save_and_leave(self, notice: _Notice, *args: Any, **kwargs: Any) -> None:
        with contextlib.ExitStack() as stack:
            for node in walk(self._manager.checkpoint):
                if isinstance(node.value, PositionedIterator):
                    # One that is new since the last call has given the batch of the next one.
                    position = self._positions.get(node.value, node.value.started_at)
                    stack.enter_context(node.value.as_of(position))
            if self._save_fn is not None:
                self._save_fn(*args, **kwargs)
            else:
                self._manager.save(*args, **{"check_interval": False, **kwargs})
        self._manager.wait()
        if self._membership is None or self._membership.worker == 0:
            print(
                f"replicax: told to end; saved {self._manager.latest_checkpoint or 'a checkpoint'} "
                f"after {self.total_run_calls} calls.",
                file=sys.stderr,
            )
        if notice == _Notice.END_IS_NEAR and self._grace_period > 0:  # there is time to go on
            self._agreement.saved(notice)
            self._watch.ask_again_in(self._grace_period - _TO_SPARE_SECONDS)
            return
        # Further notices, which schedulers send, change nothing: they may not end the process
        # while the others save.
        if (membership := current_membership()) is not None:
            membership.depart()  # whatever status the function ends with, nobody follows
        self._exit()
        self._agreement.begin_round()
        self._watch.begin_round()


def _as_manager(given: object, directory: str | os.PathLike[str] | None) -> CheckpointManager:
    if isinstance(given, CheckpointManager):
        return given
    if not isinstance(given, Checkpoint):
        raise TypeError(
            "PreemptionCheckpointHandler takes an rx.train.Checkpoint or an "
            f"rx.train.CheckpointManager; got {given!r}."
        )
    if directory is None:
        raise ValueError("When a checkpoint is passed, a checkpoint_dir must be passed as well.")
    return CheckpointManager(given, directory, max_to_keep=1)


@final
class _Agreement:
    """On which step to save. Without other workers, on the next one."""

    def __init__(self, membership: Membership | None):
        self._membership = membership
        self._changed = threading.Condition()
        self._begun = 0  # calls of `run` that this worker has begun
        self._round = 0  # how many times all have saved and the exit function came back
        self._asked = _Notice.NONE  # the latest notice of this round
        self._saved = _Notice.NONE  # the latest that a checkpoint was saved for
        self._answers: dict[int, int] = {}
        if membership is not None:
            membership.subscribe("preemption", self._hear_of_notice)
            membership.subscribe("preemption answer", self._hear_answer)

    def ask_all(self, notice: _Notice) -> None:
        """Called when a notice has come to this worker."""
        if self._membership is not None:
            self._membership.publish("preemption", [self._round, notice])
            return
        with self._changed:
            self._asked = notice
            self._answers = {0: self._begun}
            self._changed.notify_all()

    def _hear_of_notice(self, said: list[int], worker: int) -> None:
        number, notice = said[0], _Notice(said[1])
        with self._changed:
            if number != self._round or notice <= self._asked:
                return  # several workers have noticed, or the same one has several times
            self._asked = notice
            self._answers = {}
            begun = self._begun
            self._changed.notify_all()
        assert self._membership is not None
        self._membership.publish("preemption answer", begun)

    def _hear_answer(self, begun: int, worker: int) -> None:
        with self._changed:
            self._answers[worker] = begun
            self._changed.notify_all()

    def notice_to_save_for(self, calls: int, is_told: bool) -> _Notice:
        """Before a call: the notice to save for now; NONE if there is none, and the call has begun.

        `is_told`: this worker itself has a notice, which is on its way to all: no call before it.
        """
        with self._changed:
            if is_told:
                self._changed.wait_for(lambda: self._asked, _PATIENCE_SECONDS)
            if self._asked > self._saved:
                self._wait_for_answers()
                if calls >= max(self._answers.values()):
                    return self._asked
            self._begun = calls + 1
            return _Notice.NONE

    def ended(self, calls: int) -> None:
        """Called when a call has ended: a program without `run` has begun none."""
        with self._changed:
            self._begun = max(self._begun, calls)

    def _wait_for_answers(self) -> None:
        if self._membership is None:
            return
        workers = self._membership.workers
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while len(self._answers) < workers:
            if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                missing = [
                    name
                    for worker, name in enumerate(self._membership.names)
                    if worker not in self._answers
                ]
                raise WorkersMissingError(
                    f"{', '.join(missing)} did not say in {_PATIENCE_SECONDS:.0f} s at which step "
                    "to save, after a notice of preemption. Every worker needs a "
                    "PreemptionCheckpointHandler."
                )

    def saved(self, notice: _Notice) -> None:
        """Called when a checkpoint was saved for a notice."""
        with self._changed:
            self._saved = notice

    def begin_round(self) -> None:
        """Called when the training goes on; what was said before is settled."""
        with self._changed:
            self._round += 1
            self._asked = self._saved = _Notice.NONE


@final
class _Watch:
    """A thread that waits for the notice, and passes it on."""

    def __init__(self, watcher_fn: Callable[[], bool] | None, on_notice: Callable[[_Notice], None]):
        self._watcher_fn = watcher_fn
        self._on_notice = on_notice
        # Any lock may be held by what a signal interrupts; putting into this needs none.
        self._told: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._again_at: float | None = None
        self._has_notice = False
        self.is_told = False  # by a signal
        if watcher_fn is None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_sigterm)
        thread = threading.Thread(target=self._loop, name="rx.preemption", daemon=True)
        thread.start()

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        self.is_told = True
        self._told.put(_Event.SIGNAL)

    def ask_again_in(self, seconds: float) -> None:
        """After the first save of a grace period; it counts on the worker that had the notice."""
        self._again_at = time.monotonic() + max(0.0, seconds)
        self._told.put(_Event.NEW_TIME)

    def begin_round(self) -> None:
        """Called when all have saved, and go on: the next notice is a new one."""
        self._again_at = None
        self.is_told = False
        self._told.put(_Event.NEW_ROUND)

    def _loop(self) -> None:
        while True:
            try:
                told = self._told.get(timeout=self._pause())
            except queue.Empty:
                told = None
            if told is _Event.NEW_ROUND:
                self._has_notice = False
            elif self._has_notice:
                if self._again_at is not None and time.monotonic() >= self._again_at:
                    self._again_at = None
                    self._on_notice(_Notice.GRACE_PERIOD_IS_OVER)
            elif told is _Event.SIGNAL or (self._watcher_fn is not None and self._watcher_fn()):
                self._has_notice = True
                self._on_notice(_Notice.END_IS_NEAR)

    def _pause(self) -> float | None:
        if self._has_notice:
            again = self._again_at
            return None if again is None else max(0.0, again - time.monotonic())
        return None if self._watcher_fn is None else _POLL_SECONDS
