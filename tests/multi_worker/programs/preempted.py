"""A `PreemptionCheckpointHandler` in a process of its own: what can be configured, and SIGTERM."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import replicax as rx
from replicax._src.checkpoints import _preemption

PreemptionCheckpointHandler = rx.distribute.experimental.PreemptionCheckpointHandler
TerminationConfig = rx.distribute.experimental.TerminationConfig


def checkpoint_of_two() -> rx.train.Checkpoint:
    """A counter and a data set."""
    step = rx.Variable(0)
    return rx.train.Checkpoint(step=step, iterator=iter(rx.data.Dataset.range(10**9)))


def steps_until(
    handler: PreemptionCheckpointHandler, checkpoint: rx.train.Checkpoint, happened: list[str]
) -> int:
    """Trains until something is in the list; returns how many steps were made in all."""
    deadline = time.monotonic() + 120
    while not happened:
        assert time.monotonic() < deadline, "the notice was not heard"
        handler.run(lambda batch: checkpoint.step.assign_add(1), next(checkpoint.iterator))
    return int(checkpoint.step.numpy())


def watcher_and_functions(folder: Path) -> None:
    """The watcher says that the end is near; our own functions save and do not leave."""
    checkpoint = checkpoint_of_two()
    events: list[str] = []
    manager = rx.train.CheckpointManager(checkpoint, folder)
    config = TerminationConfig(
        termination_watcher_fn=lambda: handler.total_run_calls >= 3 and not events,
        exit_fn=lambda: events.append("left"),
        save_fn=lambda: (events.append("saved"), manager.save()),
    )
    handler = PreemptionCheckpointHandler(None, manager, termination_config=config)
    made = steps_until(handler, checkpoint, events)
    assert events == ["saved", "left"], events  # and the step after it was made
    other = checkpoint_of_two()
    again = PreemptionCheckpointHandler(None, other, folder)
    assert again.total_run_calls == int(other.step.numpy()) == made - 1
    assert next(other.iterator) == made - 1  # the batch that was taken and not used


def grace_period(folder: Path) -> None:
    """With time left, it saves at once, goes on, and saves again before the end."""
    checkpoint = checkpoint_of_two()
    left: list[str] = []
    first = iter([True])
    config = TerminationConfig(
        termination_watcher_fn=lambda: next(first, False),
        exit_fn=lambda: left.append("left"),
        grace_period=_preemption._TO_SPARE_SECONDS + 0.3,
    )
    manager = rx.train.CheckpointManager(checkpoint, folder)
    handler = PreemptionCheckpointHandler(None, manager, termination_config=config)
    made = steps_until(handler, checkpoint, left)
    saved = [int(path.rpartition("-")[2]) for path in manager.checkpoints]
    assert saved == [1, 2], saved
    other = checkpoint_of_two()
    other.restore(manager.checkpoints[1])
    assert int(other.step.numpy()) == made - 1
    other.restore(manager.checkpoints[0])
    assert int(other.step.numpy()) < made - 1


def checkpoint_without_a_count(folder: Path) -> None:
    """A checkpoint that was saved without a handler can be restored by one."""
    checkpoint = checkpoint_of_two()
    checkpoint.step.assign(7)
    rx.train.CheckpointManager(checkpoint, folder, asynchronous=False).save()
    other = checkpoint_of_two()
    handler = PreemptionCheckpointHandler(None, other, folder)
    assert int(other.step.numpy()) == 7 and handler.total_run_calls == 0


def new_iterator_for_each_epoch(folder: Path) -> None:
    """The batch of a new epoch's iterator, taken and not used, is not lost either."""
    checkpoint = checkpoint_of_two()
    saved: list[str] = []
    config = TerminationConfig(
        termination_watcher_fn=lambda: handler.total_run_calls > 0,
        exit_fn=lambda: saved.append("left"),
    )
    handler = PreemptionCheckpointHandler(None, checkpoint, folder, config)
    handler.run(lambda: None)
    deadline = time.monotonic() + 120
    while not handler._agreement._asked:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    checkpoint.iterator = iter(rx.data.Dataset.range(10**9))
    handler.run(lambda batch: None, next(checkpoint.iterator))
    assert saved == ["left"]
    other = checkpoint_of_two()
    other.restore(rx.train.latest_checkpoint(folder))
    assert next(other.iterator) == 0


def mistakes(folder: Path) -> None:
    """Said where they are made."""
    with expected(ValueError, "a checkpoint_dir must be passed as well"):
        PreemptionCheckpointHandler(None, checkpoint_of_two())
    with expected(TypeError, "rx.train.CheckpointManager; got 'here'"):
        PreemptionCheckpointHandler(None, "here")  # pyright: ignore[reportArgumentType]


@contextlib.contextmanager
def expected(kind: type[Exception], words: str) -> Iterator[None]:
    """An error of that kind, with these words."""
    try:
        yield
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__}")


def sigterm(folder: Path) -> None:
    """By default SIGTERM is the notice, also when it comes twice, and 42 the exit status."""
    checkpoint = checkpoint_of_two()
    handler = PreemptionCheckpointHandler(None, checkpoint, folder)
    try:
        with handler.watch_preemption_scope():
            for number in itertools.count(1):
                handler.run(lambda batch: checkpoint.step.assign_add(1), next(checkpoint.iterator))
                if number in (5, 6):
                    os.kill(os.getpid(), signal.SIGTERM)
                assert number < 1_000_000, "SIGTERM was not heard"
    except SystemExit as leaving:
        assert leaving.code == 42, leaving.code
    step = int(checkpoint.step.numpy())
    assert step >= 5
    other = checkpoint_of_two()
    other.restore(rx.train.latest_checkpoint(folder)).assert_existing_objects_matched()
    assert int(other.step.numpy()) == step and next(other.iterator) == step


def main() -> None:
    """All of them, each with a folder of its own."""
    for each in (
        watcher_and_functions,
        grace_period,
        checkpoint_without_a_count,
        new_iterator_for_each_epoch,
        mistakes,
        sigterm,
    ):
        each(Path(sys.argv[1]) / each.__name__)


if __name__ == "__main__":
    main()
