"""`rx.profile`: what the devices and the program do in a step, for TensorBoard or Perfetto."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import jax

from replicax._src._errors import WrongContextError
from replicax._src._local_path import absolute_path, is_address
from replicax._src.context import default_strategy, get_replica_context, get_strategy, world
from replicax._src.watching._held_values import number_of_workers, worker_number

_HOW_TO_OPEN = """\
rx.profile: the profile is in {folder}
  in TensorBoard: pip install tensorboard xprof; tensorboard --logdir {logdir} (then "Profile")
  in Perfetto: open {trace} at https://ui.perfetto.dev"""

_running: list[Profile] = []
_lock = threading.Lock()


def profile(
    logdir: str | os.PathLike[str], *, steps: range | None = None, all_workers: bool = False
) -> Profile:
    """Context manager: writes a profile of what happens inside, and says where it is.

        with rx.profile("run/profile"):
            train_step(batch)

    Run the step once before; otherwise the profile shows mostly compilation. The profile contains
    all the work that was started in the block, and none from before.

    With `steps` the block is the whole loop, and the profile is that of some of its steps:

        with rx.profile("run/profile", steps=range(10, 12)) as profile:
            for batch in batches:
                with profile.step():
                    train_step(batch)

    Args:
      logdir: the folder to write to; it is made if need be.
      steps: which steps to profile, counted from 0.
      all_workers: whether every worker of a job writes one, below `logdir/worker_0` and so on; by
        default the first does.

    Raises:
      RuntimeError: a profile is being made already; JAX makes one at a time.
    """
    if steps is not None and (
        not isinstance(steps, range) or steps.step != 1 or not len(steps) or steps.start < 0
    ):
        example = f"range({steps}, {steps + 1})" if isinstance(steps, int) else "range(10, 12)"
        raise ValueError(
            f"rx.profile: `steps` must be a range of following steps, such as {example}; got "
            f"{steps!r}."
        )
    return Profile(_checked_folder(logdir), steps, all_workers)


class Profile:
    """A profile that is to be made; see `rx.profile`."""

    def __init__(self, logdir: Path, steps: range | None, all_workers: bool) -> None:
        self._given = self._logdir = logdir
        self._steps = steps
        self._all_workers = all_workers
        self._next_step = 0
        self._entered = False
        self._writes = False
        self._whole: Any = None  # the mark of the block, if that is the step
        self.folder: Path | None = None
        """Where the profile is, once it is written; None on workers that write none."""

    def __enter__(self) -> Self:
        _check_place()
        self.folder, self._next_step, self._entered = None, 0, True
        self._writes = self._all_workers or worker_number() == 0
        if self._all_workers and number_of_workers() > 1:
            self._logdir = _checked_folder(self._given / f"worker_{worker_number()}")
        if self._steps is None:
            self._start()
            self._whole = jax.profiler.StepTraceAnnotation("step", step_num=0)
            self._whole.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._entered = False
        whole, self._whole = self._whole, None
        if whole is not None:
            if error is None:
                _wait_for_devices()
            whole.__exit__(kind, error, trace)
        self._stop(wait=error is None)
        if error is None and self._writes and self.folder is None:
            print(
                f"rx.profile: nothing was written: there were {self._next_step} steps, and the "
                f"profile was to be of {self._steps}.",
                flush=True,
            )

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Marks a step of a loop, and profiles it if it is one of `steps`."""
        if self._steps is None:
            raise RuntimeError(
                "Profile.step: this profile is of its whole block. To profile some steps of a "
                "loop, write rx.profile(logdir, steps=range(10, 12))."
            )
        if not self._entered:
            raise RuntimeError(
                "Profile.step was called outside of the profile's block. Put the loop inside of "
                "`with rx.profile(logdir, steps=range(10, 12)) as profile:`."
            )
        number, self._next_step = self._next_step, self._next_step + 1
        if number == self._steps.start:
            self._start()
        with jax.profiler.StepTraceAnnotation("step", step_num=number):
            yield
            if number == self._steps[-1]:
                _wait_for_devices()
        if number == self._steps[-1]:
            self._stop(wait=True)

    def _start(self) -> None:
        if not self._writes:
            return
        _wait_for_devices()
        with _lock:
            if _running:
                raise _one_at_a_time(f"one for {_running[0]._logdir}")
            try:
                jax.profiler.start_trace(self._logdir, create_perfetto_trace=True)
            except RuntimeError as failure:
                raise _one_at_a_time("one that jax.profiler has started") from failure
            _running.append(self)

    def _stop(self, wait: bool) -> None:
        if self not in _running:
            return
        try:
            if wait:
                _wait_for_devices()
            before = _folders_below(self._logdir)
            jax.profiler.stop_trace()
        finally:
            _running.remove(self)
        written = _folders_below(self._logdir)
        new = written - before or written
        self.folder = max(new, key=lambda folder: folder.stat().st_mtime)
        trace = self.folder / "perfetto_trace.json.gz"
        said = _HOW_TO_OPEN.format(folder=self.folder, logdir=self._logdir, trace=trace)
        print(said, flush=True)


def _one_at_a_time(other: str) -> RuntimeError:
    return RuntimeError(
        f"rx.profile: a profile is being made already, {other}, and JAX makes one at a time. Leave "
        "that one's block first."
    )


def _check_place() -> None:
    world().refuse_in_program(
        lambda: RuntimeError(
            "rx.profile was entered inside an rx.function, which is compiled. Put it around the "
            "call of the function."
        )
    )
    if get_replica_context() is not None and get_strategy() is not default_strategy():
        raise WrongContextError(
            "rx.profile was entered in replica context. It profiles all replicas of this process "
            "at once: put it around strategy.run."
        )


def _checked_folder(logdir: str | os.PathLike[str]) -> Path:
    try:
        name = os.fspath(logdir)
    except TypeError:
        name = None
    if not isinstance(name, str) or not name or is_address(name):
        raise ValueError(
            f"rx.profile: `logdir` must be a folder of this machine; got {logdir!r}. From there it "
            "can be copied to where you look at it."
        )
    folder = Path(absolute_path(name, "logdir"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise NotADirectoryError(
            f"rx.profile: {folder} cannot be a folder, since a file has that name or is above it."
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"rx.profile: {folder} may not be written to by this process.")
    return folder


def _folders_below(logdir: Path) -> set[Path]:
    return set((logdir / "plugins" / "profile").glob("*/"))


def _wait_for_devices() -> None:
    """Waits for everything that has been asked of the devices and that is still referenced."""
    for array in jax.live_arrays():
        with contextlib.suppress(RuntimeError):  # failed or donated meanwhile: not our business
            array.block_until_ready()
