"""The errors of checkpoints, each also of the class that TensorFlow or Python has for the case."""

from __future__ import annotations

from replicax._src._errors import CheckpointError, DataLossError


class CheckpointNotFoundError(CheckpointError, FileNotFoundError):
    """There is no checkpoint at this path."""


class DamagedCheckpointError(CheckpointError, DataLossError):
    """A checkpoint is not what was once written."""


class UnmatchedError(CheckpointError, AssertionError):
    """What the program has and what the checkpoint holds are not the same things."""


class SaveFailedError(CheckpointError, RuntimeError):
    """A checkpoint could not be written; those before it are intact."""
