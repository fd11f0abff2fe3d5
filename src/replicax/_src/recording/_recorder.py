"""`Recorder`: keeps what is needed to run the last steps of a program again.

The training loop pays for a look at the arguments and a place in a queue. A thread of its own waits
for the results, looks at them, and writes: positions in data, seeds and losses, a few hundred bytes
for each step.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import operator
import os
import platform
import queue
import secrets
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Self, final

import jax

from replicax._src._errors import (
    CheckpointError,
    DataLossError,
    FailedPreconditionError,
    TrappedStepError,
)
from replicax._src._local_path import absolute_path
from replicax._src._warnings import users_line, warn
from replicax._src.checkpoints import (
    Checkpoint,
    CheckpointManager,
    between_saves,
    is_as_on_disk,
    last_on_disk,
)
from replicax._src.cluster import current_membership
from replicax._src.context import replica_devices_of
from replicax._src.data import delivery_watchers
from replicax._src.devices import groups_of
from replicax._src.functions import (
    Function,
    Proceed,
    as_function,
    observe,
    observer_of,
    traces_so_far,
)
from replicax._src.recording._capsule import MANIFEST, write_capsule
from replicax._src.recording._inputs import Elements, describe, structure_of
from replicax._src.recording._others import lines_of_step
from replicax._src.recording._outside import Outside
from replicax._src.recording._probe import Probe, strategy_of, unsaved_among, variables_by_name
from replicax._src.recording._ring import (
    DESCRIPTION,
    Ring,
    head_of,
    make_private_folder,
    segments_in,
    write_description,
)
from replicax._src.recording._session import replaying_now
from replicax._src.recording._traps import Finding, Traps
from replicax._src.recording._writer import RecordedCall, small_results, write_all
from replicax._src.variable import Variable, write_watchers

LIMIT = 256 << 20
_OTHERS_SECONDS = 10.0  # for what other workers write of a step that was trapped
_MOST_CAPSULES = 10  # of traps; each keeps the files of a checkpoint
_PATIENCE_SECONDS = 30.0  # at the end, for results that are still being computed

_ON_TRAP = ("stop", "skip", "continue")


@final
class Recorder:
    """Records the steps of a program, so that each of the last ones can be run again elsewhere.

        manager = rx.train.CheckpointManager(checkpoint, "checkpoints")
        rx.debug.Recorder(manager, train_step)

    From then on each call of `train_step`, an `rx.function`, is recorded: the positions of the
    iterators that its arguments came from, other arguments themselves, and the small arrays that it
    returns. `replicax replay` runs a recorded step again, from the nearest checkpoint. With `traps`
    values are looked at as well, and a step in which something is wrong becomes a capsule: a folder
    with all that a replay needs.

    >>> import tempfile, numpy as np, replicax as rx
    >>> folder = tempfile.mkdtemp()
    >>> w = rx.Variable(1.0)
    >>> @rx.function
    ... def train_step(x):
    ...     w.assign_add(x)
    ...     return w * 2
    >>> manager = rx.train.CheckpointManager(rx.train.Checkpoint(w=w), folder + "/checkpoints")
    >>> with rx.debug.Recorder(manager, train_step, folder + "/recording") as recorder:
    ...     for x in rx.data.Dataset.from_tensor_slices(np.float32([1, 2, 3])):
    ...         loss = train_step(x)
    ...     capsule = recorder.save()
    >>> rx.debug.load(capsule).recorded_results(2)
    [array(8., dtype=float32)]

    In a job of many workers all of them make a recorder, with a folder that they share, as they
    share that of the checkpoints. All files are readable by their owner alone.

    Args:
      manager: the checkpoints of the program, or an `rx.train.Checkpoint`. What it holds is what a
        replay can restore: variables, optimizers, iterators, generators.
      function: the `rx.function` that makes one step, or a method.
      directory: where to write; by default `recording` in the folder of the checkpoints.
      traps: what to look for; by default nothing.
      on_trap: what to do then, once there is a capsule: "stop" raises an
        `rx.errors.TrappedStepError`, "skip" leaves all variables as they were before the step and
        goes on, "continue" goes on.
      rows: whether arrays among the arguments are kept. None keeps those that cannot be read again
        from an iterator of `rx.data`; True keeps all; False none.
      limit: bytes of arrays that are kept on the disk at most. What comes after that is left out
        until the next checkpoint, with a warning.
    """

    def __init__(
        self,
        manager: CheckpointManager | Checkpoint,
        function: Callable[..., Any],
        directory: str | os.PathLike[str] | None = None,
        *,
        traps: Traps | None = None,
        on_trap: str = "stop",
        rows: bool | None = None,
        limit: int = LIMIT,
    ):
        checkpoint = manager.checkpoint if isinstance(manager, CheckpointManager) else manager
        found = as_function(function)
        _check(checkpoint, function, found, traps, on_trap, limit)
        assert found is not None
        self._checkpoint: Checkpoint = checkpoint
        self._function = found
        self._directory = _folder_for(manager, directory)
        self._traps = traps or Traps()
        self._on_trap = on_trap
        self._rows = rows
        self._line = users_line()
        self._step: int | None = None
        self._on_disk: tuple[Any, ...] = ()
        self._capsules = 0
        self._is_closed = False
        self._has_ended = False
        self._is_by_argument = False
        self._has_stopped = False
        self._writer: threading.Thread | None = None
        self._ends: list[weakref.finalize[..., Any]] = []
        replaying = replaying_now()
        self._probe = Probe(
            self._traps,
            self._checkpoint,
            discards=on_trap == "skip",
            is_replay=replaying is not None,
        )
        if replaying is not None:
            self._is_closed = True
            replaying.take_over(checkpoint, found, self._probe)
            return
        membership = current_membership()
        self._worker = 0 if membership is None else membership.worker
        self._workers = 1 if membership is None else membership.workers
        make_private_folder(self._directory)
        self._ring = Ring(os.path.join(self._directory, f"worker-{self._worker}"), limit)
        self._elements = Elements(rows)
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._findings: queue.SimpleQueue[Finding] = queue.SimpleQueue()
        self._structure: Any = ()
        weakref.finalize(self, self._queue.put, None)  # the thread that writes ends with it
        already = observer_of(found)
        if isinstance(already, Recorder) and not already._is_by_argument:
            raise FailedPreconditionError(
                f"The calls of {found!r} are recorded already, in {already.directory}: close that "
                "Recorder first."
            )
        self._before = observe(found, self)
        self._outside = Outside()
        self._watch(delivery_watchers, self._elements.delivered)
        self._watch(write_watchers, self._outside.written)
        method = weakref.WeakMethod(self.close)
        # A function of its own: `unregister` removes all registrations of one.
        self._at_exit = functools.partial(_close, method)
        atexit.register(self._at_exit)

    # ------------------------------------------------------------------ what users ask

    @property
    def directory(self) -> str:
        """Where it writes."""
        return self._directory

    @property
    def step(self) -> int:
        """The number of the last step; the first one is 1."""
        return self._step or 0

    def save(self, step: int | None = None) -> str:
        """Makes a capsule of a recorded step, by default the last one. Returns its path.

        Args:
          step: the number of the step.

        Raises:
          rx.errors.DataLossError: the step cannot be replayed from what is on the disk.
        """
        number = self.step if step is None else operator.index(step)
        if isinstance(step, bool) or not 0 < number <= self.step:
            known = f"the last one is {self.step}" if self.step else "there is none so far"
            raise ValueError(f"save takes the number of a recorded step, and {known}; got {step}.")
        self._drain()
        return self._capsule(number, None)

    def close(self) -> None:
        """Writes what is waiting, and records no more. A trap that is left is raised."""
        if self._is_closed:
            return
        self._is_closed = self._has_ended = True
        observe(self._function, self._before)
        for end in self._ends:
            end()
        atexit.unregister(self._at_exit)
        _, path = on_disk = last_on_disk(self._checkpoint)
        if self._step and path is not None and on_disk != self._on_disk:
            # A program that goes on from there is to know which step it has.
            self._put({"after": self._step, "checkpoint": path})
        try:
            self._drain()
        finally:
            if self._writer is not None:
                self._queue.put(None)
                self._writer.join(_PATIENCE_SECONDS)
                self._writer = None  # nobody answers any more
            self._ring.close()
        self._react()

    def __enter__(self) -> Self:
        if self._has_ended:
            raise RuntimeError("This Recorder is closed, and records no more: make another one.")
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except TrappedStepError as trapped:
            if error is None:
                raise
            error.add_note(str(trapped))  # which may be the reason

    def _recorded_by_argument(self, elements: Elements) -> None:
        """Notes that the program itself makes no recorder; `elements` has seen all of its data."""
        self._is_by_argument = True
        if not self._is_closed:
            self._ends[0]()
            self._ends[0] = weakref.finalize(self, delivery_watchers.remove, elements.delivered)
            self._elements = elements

    def _watch(self, watchers: list[Callable[..., None]], watcher: Callable[..., None]) -> None:
        """Lets a method of what it has be called, until it is closed or gone."""
        watchers.append(watcher)
        self._ends.append(weakref.finalize(self, watchers.remove, watcher))

    # ------------------------------------------------------------------ each call

    def called(
        self,
        proceed: Proceed,
        body: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Calls the function, and records that. Returns its result."""
        with between_saves(self._checkpoint):  # threads take turns, and steps have an order
            return self._called(proceed, body, args, kwargs)

    def _called(
        self,
        proceed: Proceed,
        body: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        self._react()
        traces = traces_so_far()
        if last_on_disk(self._checkpoint) != self._on_disk:
            variables = self._probe.variables(proceed, body, args, kwargs)  # makes those missing
            is_first = self._step is None
            try:
                if is_first:
                    self._first_call(proceed.by_run)
                self._begin_segment(*variables)
            except (OSError, CheckpointError) as error:
                if is_first and not self._is_by_argument:
                    raise
                self._step = self._step or 0
                self._put(error)
        assert self._step is not None
        step = self._step + 1
        inputs = describe(self._elements, args, kwargs)
        structure = structure_of(args, kwargs)
        if structure == self._structure:
            structure = None
        else:
            self._structure = structure
        states, self._elements.new_states = self._elements.new_states, []
        outside = self._outside.values()
        if self._outside.left_out:
            self._tell_of_large_values()
        call = RecordedCall(step, states, structure, inputs, time.perf_counter(), outside=outside)
        try:
            result, call.figures = self._probe.carried_out(proceed, body, args, kwargs)
        except BaseException as error:
            call.error = f"{type(error).__name__}: {error}"[:1000]
            self._put(call)
            raise
        finally:
            self._outside.forget()
        self._step = step
        call.is_first = traces_so_far() != traces
        call.results = small_results(result)
        self._put(call)
        finding = self._probe.copies_at(step)
        if finding is not None:
            self._findings.put(finding)
            self._react()
        return result

    def _tell_of_large_values(self) -> None:
        names, self._outside.left_out = self._outside.left_out, []
        more = f" and {len(names) - 4} more" if names[4:] else ""
        warn(
            f"The variables {', '.join(names[:4])}{more} were changed between two steps, not by "
            "the function that is recorded, and are too large to be recorded with each step: a "
            "replay has their new values only after the next checkpoint. Make one function of "
            "both.",
            self._line,
        )

    def _begin_segment(self, changed: Sequence[Variable], read: Sequence[Variable]) -> None:
        """Notes it where the state of the program is that of a checkpoint."""
        if not is_as_on_disk(self._checkpoint):  # it was changed since, or is of TensorFlow's form
            start = self._ring.place_for(f"start-{self._step}")
            self._ring.forget(start)
            self._checkpoint.write(start)
        _, path = self._on_disk = last_on_disk(self._checkpoint)
        self._structure = ()
        self._elements.forget_states()
        head: dict[str, Any] = {"after": self._step, "checkpoint": path}
        unsaved = unsaved_among(changed, self._checkpoint)
        if unsaved:
            head["unsaved"] = f"unsaved-{self._step}"
            Checkpoint(variables=unsaved).write(self._ring.place_for(head["unsaved"]))
        saved = variables_by_name(self._checkpoint)
        used = [*changed, *read]
        self._outside.begin(saved, used, unsaved, unsaved_among(read, self._checkpoint))
        self._put(head)

    def _first_call(self, by_run: bool) -> None:
        _, path = last_on_disk(self._checkpoint)
        step: Any = getattr(self._checkpoint, "step", None)
        if isinstance(step, int) or hasattr(step, "numpy"):
            self._step = int(step if isinstance(step, int) else step.numpy())
        else:
            # Of the first worker: there may be more of them now than there were.
            first = os.path.join(self._directory, "worker-0")
            self._step = _step_at(first if os.path.isdir(first) else self._ring.folder, path)
        described = _description(self._checkpoint, self._function)
        described |= {"by_argument": self._is_by_argument, "by_run": by_run}
        write_description(self._ring.folder, described)

    # ------------------------------------------------------------------ in the thread that writes

    def _put(self, what: RecordedCall | dict[str, Any] | Exception) -> None:
        if self._writer is None:
            self._writer = threading.Thread(
                target=write_all,
                args=(self._queue, self._ring, self._probe, self._findings, self._rows, self._line),
                name="rx.recorder",
                daemon=True,
            )
            self._writer.start()
        self._queue.put(what)

    def _drain(self) -> None:
        """Waits until all that was recorded is on the disk."""
        if self._writer is None:
            return
        done = threading.Event()
        self._queue.put(done)
        if not done.wait(_PATIENCE_SECONDS):
            warn(
                f"The results of the last recorded steps were not there after "
                f"{_PATIENCE_SECONDS:.0f} seconds; the recording in {self._directory} ends before "
                "them."
            )

    # ------------------------------------------------------------------ traps

    def _react(self) -> None:
        """Does what is to be done about what the traps have found."""
        while not self._findings.empty() and not self._has_stopped:
            finding = self._findings.get()
            self._drain()
            worker = ""
            if self._workers > 1:
                lines = lines_of_step(self._directory, self._workers, finding.step, _OTHERS_SECONDS)
                finding = self._probe.of_all(finding, lines)
                if finding.kind != "copies":  # of which the text says whose they are
                    number = self._worker if finding.worker is None else finding.worker
                    worker = f", worker {number}"
            text = f"Step {finding.step}{worker}: {finding.text}"
            try:
                if self._capsules >= _MOST_CAPSULES:
                    raise DataLossError(f"there are {_MOST_CAPSULES} of this program")
                capsule = self._capsule(finding.step, {"kind": finding.kind, "text": text})
                self._capsules += 1
            except (DataLossError, OSError) as error:
                capsule = None
                text += f" No capsule could be made: {error}"
            else:
                text += (
                    f" What is needed to run it again is in {capsule}: "
                    f"replicax replay {capsule} {os.path.basename(sys.argv[0]) or 'train.py'}"
                )
            if self._on_trap == "stop":
                self._has_stopped = True  # what comes after it, comes of it
                raise TrappedStepError(text, step=finding.step, capsule=capsule)
            warn(text)

    def _capsule(self, step: int, trap: dict[str, Any] | None) -> str:
        wait = getattr(self._checkpoint, "sync")  # noqa: B009  # a save may be on its way
        wait()
        folder = os.path.join(self._directory, "capsules")
        make_private_folder(folder)
        base = os.path.join(folder, f"step-{step}")
        for number in itertools.count(1):
            target = base if number == 1 else f"{base}-{number}"
            if os.path.lexists(target):
                if trap is not None and self._is_of_this_run(target):
                    return target
                continue
            try:
                return write_capsule(self._directory, target, step, trap)
            except FileExistsError:  # another worker was faster
                if trap is not None and self._is_of_this_run(target):
                    return target
        raise AssertionError

    def _is_of_this_run(self, capsule: str) -> bool:
        """Returns whether another worker has made this capsule of this trap; waits for it."""
        if self._workers == 1:
            return False
        folder = f"worker-{self._worker}"
        end = time.monotonic() + _PATIENCE_SECONDS
        while not os.path.exists(os.path.join(capsule, MANIFEST)):
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        try:
            with open(os.path.join(capsule, folder, DESCRIPTION), "rb") as theirs:
                with open(os.path.join(self._directory, folder, DESCRIPTION), "rb") as mine:
                    return theirs.read() == mine.read()
        except OSError:
            return False


def _step_at(folder: str, path: str | None) -> int:
    """Returns the last step that a checkpoint has, as an earlier recording knows; else 0."""
    for segment in reversed(segments_in(folder)):
        after, checkpoint = head_of(folder, segment)
        if after is not None and path is not None and checkpoint == path:
            return after
    return 0


def _description(checkpoint: Checkpoint, function: Function[..., Any]) -> dict[str, Any]:
    membership = current_membership()
    workers = 1 if membership is None else membership.workers
    strategy = strategy_of(checkpoint)
    replicas = 1 if strategy is None else strategy.num_replicas_in_sync
    groups = [] if strategy is None else groups_of(replica_devices_of(strategy))
    devices = sum(map(len, groups))  # of all workers
    devices = devices if len(groups) == replicas else devices * workers
    code = getattr(function.python_function, "__code__", None)
    versions = {"python": platform.python_version(), "jax": jax.__version__}
    for name in ("replicax", "numpy", "optax", "keras", "flax"):
        module = sys.modules.get(name)
        if module is not None:
            versions[name] = str(getattr(module, "__version__", "?"))
    return {
        "run": secrets.token_hex(8),
        "versions": versions,
        "platform": jax.default_backend(),
        "function": {
            "name": getattr(function.python_function, "__name__", "function"),
            "file": "" if code is None else os.path.basename(code.co_filename),
            "line": 0 if code is None else code.co_firstlineno,
        },
        "layout": {
            "strategy": "none" if strategy is None else type(strategy).__name__,
            "workers": workers,
            "worker": 0 if membership is None else membership.worker,
            "replicas": replicas,
            "local_replicas": replicas // workers,
            "devices": max(devices, 1),
        },
    }


def _close(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    """Closes a recorder at the end of the program; a trap that is left makes it a failure."""
    close = method()
    try:
        if close is not None:
            close()
    except TrappedStepError as error:  # nobody can catch it any more
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        _trapped_at_exit.append(error)


_trapped_at_exit: list[TrappedStepError] = []


@atexit.register
def _fail_if_trapped() -> None:
    """Registered early, so that it is called late: the exit status can be set in no other way."""
    if _trapped_at_exit:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or gone
                stream.flush()
        os._exit(1)


def _folder_for(
    manager: CheckpointManager | Checkpoint, directory: str | os.PathLike[str] | None
) -> str:
    """Returns the folder to write to, by default the one beside the checkpoints."""
    if directory is None:
        if not isinstance(manager, CheckpointManager):
            raise ValueError(
                "Recorder was given a Checkpoint and no folder to write to. Pass the "
                "CheckpointManager, or directory=..."
            )
        directory = os.path.join(manager.directory, "recording")
    return absolute_path(directory, "directory")


def _check(
    checkpoint: object,
    given: object,
    function: object,
    traps: object,
    on_trap: object,
    limit: object,
) -> None:
    if not isinstance(checkpoint, Checkpoint):
        raise TypeError(
            f"Recorder takes the rx.train.CheckpointManager of the program first; got "
            f"{checkpoint!r}. Write rx.debug.Recorder(manager, train_step)."
        )
    if function is None:
        raise TypeError(
            f"Recorder takes the function that makes one step, compiled by rx.function; got "
            f"{given!r}. Decorate it with @rx.function."
        )
    if traps is not None and not isinstance(traps, Traps):
        raise TypeError(f"`traps` is an rx.debug.Traps(...); got {traps!r}.")
    if on_trap not in _ON_TRAP:
        raise ValueError(f"`on_trap` is one of {', '.join(map(repr, _ON_TRAP))}; got {on_trap!r}.")
    if type(limit) is not int or limit < 0:
        raise ValueError(f"`limit` is a number of bytes; got {limit!r}.")
