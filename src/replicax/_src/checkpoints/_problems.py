"""The errors of checkpoints, each also of the class that TensorFlow or Python has for the case."""

from __future__ import annotations

from typing import final

from replicax._src._errors import CheckpointError, DataLossError


@final
class CheckpointNotFoundError(CheckpointError, FileNotFoundError):
    """There is no checkpoint at this path."""


@final
class DamagedCheckpointError(CheckpointError, DataLossError):
    """A checkpoint is not what was once written."""


@final
class UnmatchedError(CheckpointError, AssertionError):
    """What the program has and what the checkpoint holds are not the same things."""


@final
class SaveFailedError(CheckpointError, RuntimeError):
    """A checkpoint could not be written; those before it are intact."""
