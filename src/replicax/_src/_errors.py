"""Error classes that users may want to catch by name; each has a section in docs/errors.md.

All of them derive from the builtin class that TensorFlow raises in the same place, so that ported
`except` clauses keep working. A note below the message, as Python shows it in a traceback, says
where the section is; `str(error)` is the message alone.
"""

from __future__ import annotations

import contextlib

_PACKAGE = __name__.partition(".")[0]
_LISTED = (f"{_PACKAGE}.errors", __name__)  # where its classes are: see `_public.py`

# Where the sections are: a file of the project, and a page of its documentation.
DOCUMENTATION = "docs/errors.md"


class _Documented(Exception):
    """An error with a section in the documentation, which a note names."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        # Of the class, or of the one in `rx.errors` that it is a kind of.
        name = next(kind.__name__ for kind in type(self).__mro__ if kind.__module__ in _LISTED)
        add_note(self, f"More: {DOCUMENTATION}#rxerrors{name.lower()}, or help(rx.errors.{name})")


class ReplicaMismatchError(_Documented, RuntimeError):
    """The replicas did not do the same thing: one skipped a meeting, or they met differently.

    Let every replica take part in every `all_reduce`, `merge_call` and update, in the same order;
    one that has nothing to say gives a neutral value, such as 0 for a sum.
    """


class WrongContextError(_Documented, RuntimeError):
    """A call that needs replica context was made in cross-replica context, or the reverse.

    Inside `strategy.run` ask `rx.distribute.get_replica_context()`; outside of it, the strategy.
    """


class PerReplicaValueError(_Documented, TypeError):
    """A per-replica value was used as if it were one array.

    Make one array of it with `strategy.reduce("SUM", value, axis=None)`, look at the parts with
    `strategy.experimental_local_results(value)`, or pass it to `strategy.run`.
    """


class AggregationError(_Documented, ValueError):
    """A variable was updated in a way that its `aggregation` does not allow.

    Say what to make of the replicas' values when the variable is made:
    `rx.Variable(0.0, aggregation=rx.VariableAggregation.SUM)`.
    """


class OutOfRangeError(_Documented, IndexError):
    """There is no more data where more was asked for.

    Ask for fewer steps, or repeat the data: `dataset.repeat()`.
    """


class DeviceError(_Documented, ValueError):
    """A device was named that does not exist, or named twice.

    `rx.config.list_logical_devices()` has the names of those that there are.
    """


class PlannedValueError(_Documented, RuntimeError):
    """A value was asked for that is not there: the strategy is on planned devices.

    On `rx.config.planned_devices(...)` functions are compiled and not run, and variables, data and
    results have shapes alone. To compute, make the strategy on real devices.
    """


class DataLossError(_Documented, ValueError):
    """A file of records is damaged: cut off, or its bytes are not what was once written.

    Copy or write the file again.

    Attributes:
      path: The file.
      offset: Where the damage is, in bytes from the beginning; in a compressed file, counted in the
        data after decompression. None where that is not known.
    """

    def __init__(self, message: str, path: str | None = None, offset: int | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (*self.args, self.path, self.offset)  # all of it comes through a pickle


class NotFoundError(_Documented, FileNotFoundError):
    """There is no file or folder of this name.

    The text has the name; `rx.io.gfile.listdir` lists what there is.
    """


class AlreadyExistsError(_Documented, FileExistsError):
    """There is a file of this name already, which would be lost.

    Name another, or write `overwrite=True`.
    """


class FailedPreconditionError(_Documented, OSError):
    """What a name stands for is of another kind: a folder where a file is needed, or the reverse.

    `rx.io.gfile.isdir` tells which it is.
    """


class PermissionDeniedError(_Documented, PermissionError):
    """A file may not be read or written: by its owner's rule, or by the mode that it was opened in.

    Open it with the mode "r", "w" or "a" that fits.
    """


class ClusterConfigError(_Documented, ValueError):
    """The description of the cluster, or of this worker's place in it, cannot be right.

    `replicax doctor` shows the cluster as it is understood.
    """


class WorkersMissingError(_Documented, TimeoutError):
    """Other workers were waited for and did not come in time; the text names them.

    Start them all, with the same cluster; `REPLICAX_JOIN_TIMEOUT` gives them more seconds.
    """


class WorkerLostError(_Documented, RuntimeError):
    """Another worker has failed, was killed or left, and cannot be waited for.

    Look for its own error in the log. `replicax launch --max-restarts` goes on from the checkpoint.
    """


class UnavailableError(_Documented, ConnectionError):
    """A parameter server was lost, and with it the variables that it held.

    It is started again, without values: restore the variables from the last checkpoint, and go on.
    """


class CancelledError(_Documented, RuntimeError):
    """A function that was scheduled did not run, because another one failed before.

    `coordinator.schedule` or `join` has raised the other one's error. Schedule it again.
    """


class CheckpointError(_Documented, ValueError):
    """A checkpoint cannot be saved or restored: the text lists what does not fit.

    Make the program fit, or restore what there is: `checkpoint.restore(path, partial=True)`.
    """


class TrappedStepError(_Documented, RuntimeError):
    """A trap of an `rx.debug.Recorder` has found something wrong in a step, and ends the program.

    `replicax replay CAPSULE train.py --eager` runs the step again and names the cause.

    Attributes:
      step: The number of the step.
      capsule: The folder with all that is needed to run it again; None if none could be made.
    """

    def __init__(self, message: str, step: int = 0, capsule: str | None = None) -> None:
        super().__init__(message)
        self.step = step
        self.capsule = capsule

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (*self.args, self.step, self.capsule)


def add_note(error: BaseException, note: str) -> None:
    """Adds a note once, if the exception takes notes."""
    with contextlib.suppress(Exception):
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)


def show_users_part(error: BaseException) -> None:
    """Cuts our own and JAX's frames off the start of the traceback: users see their line first."""
    start = error.__traceback__
    while start is not None:
        module = start.tb_frame.f_globals.get("__name__", "")
        if module.partition(".")[0] not in (_PACKAGE, "jax"):
            with contextlib.suppress(Exception):  # some exceptions refuse every change
                error.__traceback__ = start
            return
        start = start.tb_next
