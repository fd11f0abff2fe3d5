"""`Checkpoint`: named things of a program, saved and restored together."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from replicax._src._errors import CheckpointError
from replicax._src.checkpoints import _job
from replicax._src.checkpoints._background import finish_all
from replicax._src.checkpoints._graph import (
    OURS,
    GraphNode,
    Kind,
    Spelling,
    is_trackable,
    kind_of,
    require_no_arrays,
    walk,
)
from replicax._src.checkpoints._names import MANIFEST
from replicax._src.checkpoints._opening import open_saved
from replicax._src.checkpoints._paths import as_path, as_target, require_below
from replicax._src.checkpoints._saved import Progress
from replicax._src.checkpoints._saving import Save
from replicax._src.checkpoints._status import CheckpointLoadStatus, InitializationOnlyStatus
from replicax._src.checkpoints._together import Restoring, restore_needs_all
from replicax._src.context import require_between_steps, require_threads
from replicax._src.variable import Variable, catch_up, own_storage


class Checkpoint:
    """Saves and restores named things: models, optimizers, iterators, metrics, counters.

    Variables are found in whatever holds them: attributes of objects, dictionaries, lists, tuples,
    dataclasses, other checkpoints. Also saved are
    the state of an `rx.Optimizer` (restored even if the optimizer makes it later), the exact
    position of iterators over data sets, and the state of `rx.random.Generator` and of metrics.
    Arrays and Python numbers are saved if they are given to the checkpoint itself, or are in
    dictionaries and lists that are; restored numbers are set there.

    What is saved does not depend on the strategy: a checkpoint of four replicas can be restored on
    two, or without a strategy.

    >>> import tempfile, replicax as rx
    >>> directory = tempfile.mkdtemp()
    >>> w = rx.Variable([1.0, 2.0])
    >>> checkpoint = rx.train.Checkpoint(model={"w": w}, step=7)
    >>> path = checkpoint.save(directory + "/ckpt")
    >>> _ = w.assign([0.0, 0.0])
    >>> checkpoint.step = 0
    >>> status = checkpoint.restore(path).assert_consumed()
    >>> w.numpy(), checkpoint.step
    (array([1., 2.], dtype=float32), 7)

    Args:
      root: an object whose attributes are saved as if they were the checkpoint's own.
      **kwargs: the things to save, by name. They are attributes of the checkpoint.
    """

    _is_checkpoint = True

    def __init__(self, root: object = None, **kwargs: object):
        object.__setattr__(self, "_tracked", {})
        object.__setattr__(self, "_status", None)
        object.__setattr__(self, "_counter", None)
        object.__setattr__(self, "_unfinished", None)
        object.__setattr__(self, "_last_on_disk", (0, None))
        object.__setattr__(self, "_storages_on_disk", [])
        object.__setattr__(self, "_is_ours_on_disk", False)
        object.__setattr__(self, "_turns", contextlib.nullcontext())
        if root is not None and kind_of(root, True) != Kind.OBJECT:
            raise ValueError(
                f"`root` must be an object with attributes, a dictionary or a list; got {root!r}. "
                "Give anything else a name: rx.train.Checkpoint(step=...)."
            )
        object.__setattr__(self, "_checkpoint_root", root)
        for name, value in kwargs.items():
            existing = getattr(root, name, value) if root is not None else value
            if existing is not value:
                raise ValueError(
                    f"Checkpoint was given {name}=..., but root.{name} is something else, and both "
                    "would be saved under the same name. Choose another name."
                )
            setattr(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        if name in _OWN_NAMES or hasattr(type(self), name):
            raise ValueError(f"A checkpoint cannot hold something named {name!r}: choose another.")
        if not is_trackable(value):
            raise ValueError(_not_trackable(name, value))
        self._put(name, value)
        if self._status is not None and self._status._awaits(name):
            self._status._update()

    def _put(self, name: str, value: object) -> None:
        self._tracked[name] = value
        object.__setattr__(self, name, value)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __delattr__(self, name: str) -> None:
        self._tracked.pop(name, None)
        object.__delattr__(self, name)

    def _checkpoint_children(self, spelling: Spelling = OURS) -> dict[str, Any]:
        found = {}
        if self._checkpoint_root is not None:
            root = walk(self._checkpoint_root, spelling)
            if not root[0].children:
                require_no_arrays("`root`", self._checkpoint_root)
            found = {name: root[index].value for name, index in root[0].children.items()}
        found |= self._tracked
        return found | ({} if self._counter is None else {"save_counter": self._counter})

    def _checkpoint_put(self, name: str, value: object) -> None:
        """Sets what was restored, here or in the root."""
        root = self._checkpoint_root
        if name in self._tracked or root is None:
            self._put(name, value)
        elif isinstance(root, Checkpoint):
            root._checkpoint_put(name, value)
        elif isinstance(root, dict):
            key = next(key for key in root if str(key) == name)
            root[key] = value
        elif isinstance(root, list):
            root[int(name)] = value
        else:
            setattr(root, name, value)

    @property
    def save_counter(self) -> Variable:
        """A variable that counts the calls of `save`; it is saved too."""
        if self._counter is None:
            # A plain variable wherever it is made: every worker counts by itself.
            counter = type.__call__(
                Variable, 0, name="save_counter", trainable=False, dtype="int32"
            )
            object.__setattr__(self, "_counter", counter)
        return self._counter  # type: ignore[return-value]

    # ------------------------------------------------------------------ saving

    def save(self, file_prefix: str | os.PathLike[str], options: object = None) -> str:
        """Saves to `{file_prefix}-{n}`, where n counts the saves. Returns that path.

        In a job of many workers all call it, and the first one writes. It needs the others only if
        they have something of their own to save, as sync-on-read variables: then all return when
        it is done. A prefix that ends in "/" is a directory, in which the checkpoint is
        `ckpt-{n}`.

        Args:
          file_prefix: the beginning of the path; directories are made as needed.
          options: kept for ported code.
        """
        path = as_path(file_prefix, "file_prefix")
        prefix = as_target(f"{path}ckpt" if path.endswith("/") else path, "file_prefix")
        self.save_counter.assign_add(1)
        return self._written(f"{prefix}-{int(self.save_counter.numpy())}")

    def write(self, file_prefix: str | os.PathLike[str], options: object = None) -> str:
        """Saves to this very path, and does not count. Returns the path.

        Args:
          file_prefix: the path of the checkpoint, which is a directory.
          options: kept for ported code.
        """
        return self._written(as_target(file_prefix, "file_prefix"))

    def _written(self, path: str) -> str:
        save = self._save(path)
        return save.path if save.is_others else self._finish(save)

    def _finish(self, save: Save, committed: Callable[[], None] = lambda: None) -> str:
        """Writes what was taken; returns its path."""
        try:
            with save.phase("saving", True):
                return save.finish(committed)
        except BaseException:
            if self._last_on_disk[1] == save.path:  # nothing is there, or what was there before
                object.__setattr__(self, "_is_ours_on_disk", False)
            raise

    def _save(self, path: str, metrics: dict[str, float] | None = None) -> Save:
        """Takes the values; `finish()` of what it returns writes them."""
        self._require_outside("saved")
        require_below(path)
        self._let_finish()
        with self._turns:  # values of one moment, of which who records knows the step
            nodes = walk(self)
            self._require_restored(nodes)
            save = Save(nodes, path, metrics)
            self._note_on_disk(save.path, nodes, is_ours=True)
        return save

    def _note_on_disk(self, path: str, nodes: list[GraphNode], is_ours: bool) -> None:
        """Notes that its values are now those at `path`, which is TensorFlow's if it is not ours.

        All workers note the same, also where another one still writes the files.
        """
        object.__setattr__(self, "_last_on_disk", (self._last_on_disk[0] + 1, path))
        object.__setattr__(self, "_is_ours_on_disk", is_ours)
        variables = [node.value for node in nodes if node.kind == Kind.VARIABLE]
        found = [(weakref.ref(each), weakref.ref(own_storage(each))) for each in variables]
        object.__setattr__(self, "_storages_on_disk", found)

    def _require_restored(self, nodes: list[GraphNode]) -> None:
        for node in nodes:
            if node.kind == Kind.VARIABLE:
                catch_up(node.value)  # made after restoring, and not used so far
        late = [] if self._status is None else self._status._late(nodes)
        if late:
            raise CheckpointError(
                f"{', '.join(late[:5])}{' and others' if late[5:] else ''} were made after "
                "restore, and have not got their values from the checkpoint. Make the variables "
                "before restoring, or call assert_existing_objects_matched() on what restore "
                "returned once they are made; expect_partial() if new values are meant."
            )

    def sync(self) -> None:
        """Waits for a save of a manager that is still being written."""
        if self._unfinished is not None:
            self._unfinished.wait()

    def _let_finish(self) -> None:
        """Waits for the same; if that has failed, the manager says so when it is asked next."""
        if self._unfinished is not None:
            self._unfinished.finish()

    # ------------------------------------------------------------------ restoring

    def restore(
        self,
        save_path: str | os.PathLike[str] | None,
        options: object = None,
        *,
        partial: bool = False,
        progress: Progress | None = None,
    ) -> CheckpointLoadStatus | InitializationOnlyStatus:
        """Restores what was saved at `save_path`, onto the current strategy.

        Before anything changes, the program and the checkpoint are compared. If the program has
        an object that the checkpoint does not have, or that has another shape or dtype there, the
        error lists all differences. Objects that only the checkpoint contains are restored when
        the program makes them: a variable when it is first used, the state of an optimizer when
        it is built, an attribute of this checkpoint when it is set, other objects when you call
        the status's `assert_existing_objects_matched()`.

        In a job of many workers all restore what the first one restores, or none does.

        Args:
          save_path: what `save` returned, or `rx.train.latest_checkpoint(directory)`. None restores
            nothing.
          options: kept for ported code.
          partial: leaves as it is what the checkpoint has not.
          progress: is given a list of names whenever something is to be checked or read, and yields
            them one by one: `progress=rx.progress` shows a bar, for large checkpoints.

        Returns:
          A status, to be asked for more: `status.assert_consumed()`.

        Raises:
          rx.errors.CheckpointError: it is not there, is damaged (then also
            `rx.errors.DataLossError`), or does not fit.
        """
        path = None if save_path is None else as_path(save_path, "save_path")
        return self._restore(path, partial, progress, counts=True)

    def read(
        self,
        save_path: str | os.PathLike[str],
        options: object = None,
        *,
        partial: bool = False,
        progress: Progress | None = None,
    ) -> CheckpointLoadStatus | InitializationOnlyStatus:
        """Returns what `restore` does, for what `write` has written: without the counter."""
        return self._restore(as_path(save_path, "save_path"), partial, progress)

    def _restore(
        self, path: str | None, partial: bool, progress: Progress | None, counts: bool = False
    ) -> CheckpointLoadStatus | InitializationOnlyStatus:
        self._require_outside("restored")
        self.sync()
        finish_all()  # it may be another's save
        job = _job.current_job()
        if job.workers == 1 or not restore_needs_all(walk(self)):
            job = _job.ALONE
        together = Restoring(job)
        with _job.current_job().phase("restoring", True):
            path = together.chosen(path)
            if path is None:
                return InitializationOnlyStatus()
            if counts:
                _ = self.save_counter  # so that it is restored
            return self._restored(path, partial, together, progress=progress)

    def _restored(
        self,
        path: str,
        partial: bool,
        together: Restoring,
        verified: bool = False,
        progress: Progress | None = None,
    ) -> CheckpointLoadStatus:
        status, saved, error = None, None, None
        try:
            saved = open_saved(path, verified)
            if progress is not None:
                saved.progress = progress
            status = CheckpointLoadStatus(self, saved, partial)
        except Exception as failure:
            error = failure
        try:
            together.agree(error, saved and saved.mark)
        except BaseException:
            if status is not None:
                status._undo()
            raise
        assert status is not None
        before = self._status and self._status._late_values
        if before is not None:
            before.leave(status._restored_values())  # the files of before may have been removed
        status._commit()
        if before is not None:
            before.close()
        object.__setattr__(self, "_status", status)
        is_ours = os.path.isfile(os.path.join(path, MANIFEST))
        self._note_on_disk(path, walk(self), is_ours)
        return status

    def _require_outside(self, what: str) -> None:
        require_threads("A checkpoint")  # TensorStore would abort the child of a fork
        require_between_steps(
            f"A checkpoint is {what}",
            "It holds the values of all replicas: save and restore between the steps, outside of "
            "strategy.run and rx.function.",
        )

    def __repr__(self) -> str:
        return f"<rx.train.Checkpoint of {', '.join(self._tracked) or 'nothing'}>"


_OWN_NAMES = frozenset({"save", "write", "restore", "read", "sync", "save_counter"})


def _not_trackable(name: str, value: object) -> str:
    return (
        f"`Checkpoint` cannot save {name}={value!r}, of type {type(value).__name__}. It takes "
        "variables, optimizers, iterators, metrics, random generators, arrays and numbers, and "
        "objects, dictionaries, lists and tuples that hold such things."
    )
