"""`CheckpointManager`: the checkpoints of a training run, in one directory."""

from __future__ import annotations

import contextlib
import operator
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self, SupportsInt

from replicax._src._errors import add_note
from replicax._src._local_path import made_absolute
from replicax._src.checkpoints import _folder, _job
from replicax._src.checkpoints._background import Background
from replicax._src.checkpoints._checkpoint import Checkpoint
from replicax._src.checkpoints._clock import Clock
from replicax._src.checkpoints._latest import latest_whole
from replicax._src.checkpoints._leftovers import remove, remove_leftovers, why_not_ours
from replicax._src.checkpoints._manifest import Manifest
from replicax._src.checkpoints._names import is_numbered
from replicax._src.checkpoints._paths import as_path, require_plain_name
from replicax._src.checkpoints._ranking import Ranking, as_metrics
from replicax._src.checkpoints._saving import Save
from replicax._src.checkpoints._together import Restoring

_HOUR = 3600.0


def _whole_number(given: object, what: str) -> int:
    """Returns the number in an integer, or in a variable or array of one."""
    value: Any = _on_host(given)
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(
            f"`{what}` must be a whole number, or a variable or array of one; got {given!r}."
        ) from None


def _on_host(given: object) -> object:
    """Returns the value of a variable or array; anything else as it is."""
    read = getattr(given, "numpy", None)
    return given if read is None else read()


def _checkpoint_number(given: object) -> int:
    number = _whole_number(given, "checkpoint_number")
    if number < 0:
        raise ValueError(
            f"`checkpoint_number` must be at least 0; got {number}. Leave it out to count the "
            "saves."
        )
    return number


def _the_interval(checkpoint_interval: int | None, save_interval: int | None) -> int | None:
    """Returns the interval, by whichever of its two names it was given."""
    if None not in (checkpoint_interval, save_interval):
        raise ValueError("Give `checkpoint_interval` or `save_interval`: they are the same.")
    interval = save_interval if checkpoint_interval is None else checkpoint_interval
    if interval is not None and _whole_number(interval, "checkpoint_interval") < 1:
        raise ValueError(f"`checkpoint_interval` must be at least 1; got {interval}.")
    return interval


def _require_hours(hours: object) -> None:
    if hours is None:
        return
    if not isinstance(hours, int | float):
        raise TypeError(
            f"`keep_checkpoint_every_n_hours` must be a number of hours or None; got {hours!r}."
        )
    if not hours >= 0:
        raise ValueError(f"`keep_checkpoint_every_n_hours` must be at least 0; got {hours}.")


manager_watchers: list[Callable[[CheckpointManager], None]] = []
"""Called with each manager that is made: a recorder may wait for one."""


class CheckpointManager:
    """Saves a checkpoint again and again, keeps the last few, and finds the latest.

    `save` returns as soon as the values are copied; a thread does the rest. If that fails, the next
    call of `save`, `wait`, `close` or `latest_checkpoint` raises the error; if there is none, it is
    printed when the program ends. Checkpoints are atomic. The next manager removes what a killed
    program left incomplete; a damaged checkpoint is skipped.

    In a job of many workers all of them make the manager and call `save`; the first one writes,
    to its own directory.

    >>> import tempfile, replicax as rx
    >>> step = rx.Variable(0)
    >>> checkpoint = rx.train.Checkpoint(step=step)
    >>> with rx.train.CheckpointManager(checkpoint, tempfile.mkdtemp(), max_to_keep=2) as manager:
    ...     path = manager.restore_or_initialize()  # None: there is nothing yet
    ...     for _ in range(3):
    ...         _ = step.assign_add(1)
    ...         path = manager.save()
    >>> [path.rpartition("/")[2] for path in manager.checkpoints]
    ['ckpt-2', 'ckpt-3']

    Args:
      checkpoint: what to save.
      directory: where; the same for all workers.
      max_to_keep: how many to keep; None for all.
      keep_checkpoint_every_n_hours: of those that would be removed, keep one in so many hours. The
        hours are counted from one manager of the directory to the next.
      checkpoint_name: the checkpoints are `{checkpoint_name}-{number}`.
      step_counter: a variable with the number of steps, for `checkpoint_interval`; by default the
        checkpoint's `step`.
      checkpoint_interval: `save` does nothing until so many steps have passed since the last time.
      init_fn: called by `restore_or_initialize` if there is no checkpoint.
      last_checkpoint_step: the step at which it was last saved, for `checkpoint_interval`, where a
        program goes on that this manager has not restored.
      save_interval: a shorter name of `checkpoint_interval`.
      best_metric: keep the `max_to_keep` best by this one of the `metrics` that `save` is given,
        and the latest; without it, the latest `max_to_keep`.
      best_mode: "min" if less is better, "max" if more is.
      asynchronous: whether `save` writes in the background.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        directory: str | os.PathLike[str],
        max_to_keep: int | None = 5,
        keep_checkpoint_every_n_hours: float | None = None,
        checkpoint_name: str = "ckpt",
        step_counter: SupportsInt | None = None,
        checkpoint_interval: int | None = None,
        init_fn: Callable[[], Any] | None = None,
        last_checkpoint_step: int | None = None,
        *,
        save_interval: int | None = None,
        best_metric: str | None = None,
        best_mode: Literal["min", "max"] | None = None,
        asynchronous: bool = True,
    ):
        if not isinstance(checkpoint, Checkpoint):
            raise TypeError(
                f"CheckpointManager takes an rx.train.Checkpoint; got {checkpoint!r}. Write "
                "rx.train.CheckpointManager(rx.train.Checkpoint(model=...), directory)."
            )
        require_plain_name(checkpoint_name)
        if max_to_keep is not None and (not isinstance(max_to_keep, int) or max_to_keep < 1):
            raise ValueError(f"`max_to_keep` must be a positive number or None; got {max_to_keep}.")
        _require_hours(keep_checkpoint_every_n_hours)
        interval = _the_interval(checkpoint_interval, save_interval)
        if interval is not None and step_counter is None and not hasattr(checkpoint, "step"):
            raise ValueError(
                "`step_counter` should be passed if `checkpoint_interval` is not None, unless the "
                "checkpoint has a `step`: rx.train.Checkpoint(model=..., step=step)."
            )
        if init_fn is not None and not callable(init_fn):
            raise TypeError(f"`init_fn` must be a function of no arguments; got {init_fn!r}.")
        if last_checkpoint_step is not None:
            _whole_number(last_checkpoint_step, "last_checkpoint_step")
        if step_counter is not None and not hasattr(step_counter, "__int__"):
            raise TypeError(
                "`step_counter` must be a variable that counts steps, such as rx.Variable(0); got "
                f"{step_counter!r}."
            )
        if best_metric is None and best_mode is not None:
            raise ValueError(
                f"`best_mode` is {best_mode!r}, and `best_metric` is not given: name the metric, "
                'such as best_metric="loss".'
            )
        self._ranking = None if best_metric is None else Ranking(best_metric, best_mode)
        self._checkpoint = checkpoint
        self._directory = made_absolute(as_path(directory, "directory"))
        self._max_to_keep = max_to_keep
        self._keep_hours = keep_checkpoint_every_n_hours
        self._name = checkpoint_name
        self._step_counter = step_counter
        self._interval = interval
        self._init_fn = init_fn
        self._asynchronous = asynchronous
        self._background = Background()
        for watcher in manager_watchers:
            watcher(self)
        self._last_step = last_checkpoint_step
        self._clock = Clock(self._directory, self._name)
        self._verified: str | None = None  # the path of the latest one, if it is known to be whole
        self._written_to = self._directory  # by the first worker
        with contextlib.suppress(OSError):  # who saves will be told
            os.makedirs(self._directory, exist_ok=True)
        if _job.current_job().worker == 0:
            remove_leftovers(self._directory, self._name)

    # ------------------------------------------------------------------ what there is

    @property
    def directory(self) -> str:
        """Where the checkpoints are."""
        return self._directory

    @property
    def checkpoint(self) -> Checkpoint:
        """What is saved."""
        return self._checkpoint

    @property
    def checkpoint_interval(self) -> int | None:
        """How many steps lie between two saves."""
        return self._interval

    @property
    def checkpoints(self) -> list[str]:
        """The paths of the checkpoints that it manages, earliest first."""
        self.wait()
        return self._managed()

    def _managed(self) -> list[str]:
        found = [path for path, _ in _folder.checkpoints_in(self._written_to)]
        mine = [path for path in found if is_numbered(os.path.basename(path), self._name)]
        return [path for path in mine if not _folder.is_kept(path)]

    @property
    def latest_checkpoint(self) -> str | None:
        """The path of the latest checkpoint that is whole; None if there is none.

        Where there is none of this manager's name, as TensorFlow's does: the latest in the
        directory, such as one that `Checkpoint.save` wrote. It is never removed.
        """
        self.wait()
        if self._verified is not None and os.path.isdir(self._verified):
            return self._verified
        own = latest_whole(self._written_to, self._name)
        self._verified = latest_whole(self._written_to, "") if own is None else own
        return self._verified

    @property
    def best_checkpoint(self) -> str | None:
        """The path of the best checkpoint by `best_metric`; None if none has a value of it.

        >>> import tempfile, replicax as rx
        >>> checkpoint = rx.train.Checkpoint(weight=rx.Variable(0.0))
        >>> manager = rx.train.CheckpointManager(
        ...     checkpoint, tempfile.mkdtemp(), max_to_keep=1, best_metric="loss", best_mode="min"
        ... )
        >>> for loss in (0.5, 0.1, 0.3):
        ...     path = manager.save(metrics={"loss": loss})
        >>> [path.rpartition("/")[2] for path in manager.checkpoints]  # the best, and the latest
        ['ckpt-2', 'ckpt-3']
        >>> manager.best_checkpoint.rpartition("/")[2]
        'ckpt-2'
        """
        self.wait()
        ranking = self._ranking
        if ranking is None:
            raise ValueError(
                "There is no best checkpoint without a metric: make the manager with "
                'best_metric="loss", best_mode="min", and save with metrics={"loss": ...}.'
            )
        manifests = self._manifests()
        ranked = [path for path in self._managed() if ranking.is_ranked(manifests[path])]
        return max(ranked, key=lambda path: ranking.key(manifests[path]), default=None)

    # ------------------------------------------------------------------ saving

    def save(
        self,
        checkpoint_number: object = None,
        check_interval: bool = True,
        options: object = None,
        *,
        metrics: Mapping[str, Any] | None = None,
    ) -> str | None:
        """Saves, and returns the path; None if it is too early by `checkpoint_interval`.

        Returns when no later update can reach what is saved. If the save before is still being
        written, it is waited for first.

        Args:
          checkpoint_number: for the name; by default the number of saves so far.
          check_interval: whether `checkpoint_interval` counts.
          options: kept for ported code.
          metrics: how good what is saved is, by name; see `best_metric`. In a job of many workers
            those of the first one count. A checkpoint without, or with NaN, is worse than all that
            have a number.
        """
        measured = as_metrics(metrics)
        if self._ranking is not None:
            self._ranking.require(measured)
        number = None if checkpoint_number is None else _checkpoint_number(checkpoint_number)
        if self._interval is not None:
            step = self._step()
            early = self._last_step is not None and step - self._last_step < self._interval
            if check_interval and early:
                return None
            self._last_step = step
        self.wait()
        counter = self._checkpoint.save_counter
        counter.assign_add(1)
        number = int(counter.numpy()) if number is None else number
        path = os.path.join(self._directory, f"{self._name}-{number}")
        save = self._checkpoint._save(path, measured)
        object.__setattr__(self._checkpoint, "_unfinished", self._background)
        self._written_to = os.path.dirname(save.path)
        if save.is_others:
            self._verified = None
            return save.path
        if self._asynchronous:
            self._background.start(lambda: self._finish(save), f"rx.checkpoint {number}")
        else:
            self._finish(save)
        return save.path

    def _finish(self, save: Save) -> None:
        self._checkpoint._finish(save, self._sweep)
        self._verified = save.path

    def _step(self) -> int:
        given = self._step_counter
        if given is None:
            given = getattr(self._checkpoint, "step")  # noqa: B009  # named by the user
        step: Any = _on_host(given)
        return int(step)

    def _sweep(self) -> None:
        if self._max_to_keep is not None:
            if self._keep_hours is not None:
                self._clock.start()
            with contextlib.suppress(OSError):  # that old ones are left is no failure of the new
                self._remove_all_but(self._max_to_keep)

    def _remove_all_but(self, count: int) -> None:
        manifests = self._manifests()
        for path in self._superfluous(count, manifests):
            hours, saved_at = self._keep_hours, manifests[path].time
            if hours is not None and saved_at - self._clock.last_kept >= hours * _HOUR:
                _folder.keep(path)
                self._clock.set(saved_at)
            elif why_not_ours(path) is None:  # else users have put something of theirs into it
                remove(path)

    def _superfluous(self, count: int, manifests: Mapping[str, Manifest]) -> list[str]:
        """Returns those that are not among the last, or not among the best and not the last."""
        managed, ranking = self._managed(), self._ranking
        if ranking is None:
            return managed[:-count]
        best = sorted(managed, key=lambda path: ranking.key(manifests[path]))[-count:]
        return [path for path in managed[:-1] if path not in best]

    def _manifests(self) -> dict[str, Manifest]:
        return dict(_folder.checkpoints_in(self._written_to))

    def wait(self) -> None:
        """Waits until the last save is on the disk; raises its error if it failed."""
        self._background.wait()

    sync = wait

    def close(self) -> None:
        """Waits for the last save. The manager can be used again afterwards."""
        self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except BaseException as failure:
            if error is None:
                raise
            add_note(error, f"A checkpoint could not be saved either: {failure}")

    # ------------------------------------------------------------------ restoring

    def restore_or_initialize(self) -> str | None:
        """Restores the latest checkpoint that is whole; without one, calls `init_fn`.

        In a job of many workers the first one says which checkpoint it is.

        Returns:
          The path of what was restored, or None.
        """
        self.wait()
        job = _job.current_job()
        with job.phase("restoring", True):
            path = _job.told_by_first(job, "latest", lambda: self.latest_checkpoint)
            if path is not None:
                self._checkpoint._require_outside("restored")
                _ = self._checkpoint.save_counter
                self._checkpoint._restored(path, False, Restoring(job), verified=True)
                self._written_to = os.path.dirname(path)
                if self._interval is not None:
                    self._last_step = self._step()
                return path
        if self._init_fn is not None:
            self._init_fn()
        return None
