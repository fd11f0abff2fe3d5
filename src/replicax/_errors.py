"""Error classes that users may want to catch by name; each has a section in docs/errors.md.

All of them derive from the builtin class that TensorFlow raises in the same place, so that ported
`except` clauses keep working.
"""

from __future__ import annotations

import contextlib

_PACKAGE = __name__.partition(".")[0]


class ReplicaMismatchError(RuntimeError):
    """The replicas did not do the same thing: one skipped a meeting, or they met differently."""


class WrongContextError(RuntimeError):
    """A call that needs replica context was made in cross-replica context, or the reverse."""


class PerReplicaValueError(TypeError):
    """A per-replica value was used as if it were one array."""


class AggregationError(ValueError):
    """A variable was updated in a way that its `aggregation` does not allow."""


class OutOfRangeError(IndexError):
    """There is no more data where more was asked for."""


class DeviceError(ValueError):
    """A device was named that does not exist, or named twice."""


class DataLossError(ValueError):
    """A file of records is damaged: cut off, or its bytes are not what was once written.

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


class ClusterConfigError(ValueError):
    """The description of the cluster, or of this worker's place in it, cannot be right."""


class WorkersMissingError(TimeoutError):
    """Other workers were waited for and did not come in time; the text names them."""


class WorkerLostError(RuntimeError):
    """Another worker has failed, was killed or left, and cannot be waited for."""


class CheckpointError(ValueError):
    """A checkpoint cannot be saved or restored: the text lists what does not fit."""


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
