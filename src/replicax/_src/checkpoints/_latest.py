"""The latest checkpoint of a directory that is whole."""

from __future__ import annotations

import os

from replicax._src import _warnings
from replicax._src.checkpoints import _folder
from replicax._src.checkpoints._background import finish_all
from replicax._src.checkpoints._names import MANIFEST, OBJECTS, is_numbered
from replicax._src.checkpoints._objects import read_objects
from replicax._src.checkpoints._paths import as_path
from replicax._src.checkpoints._problems import CheckpointNotFoundError, DamagedCheckpointError

_told: set[str] = set()  # the damaged checkpoints that users know of


def latest_whole(directory: str, prefix: str | None = None) -> str | None:
    """The path of the latest checkpoint, every byte of which is as it was written.

    Damaged ones are passed over, each with a warning that says which and why.
    """
    paths = [path for path, _ in _folder.checkpoints_in(directory) if _belongs(path, prefix)]
    for path in _folder.folders_in(directory):
        if _belongs(path, prefix) and path not in paths:
            _tell_if_damaged(path)
    for path in reversed(paths):
        try:
            _folder.verify(path)
            read_objects(path)
            return path
        except (DamagedCheckpointError, OSError) as error:
            _tell(path, error)
    return None


def _belongs(path: str, prefix: str | None) -> bool:
    return prefix is None or is_numbered(os.path.basename(path), prefix)


def _tell_if_damaged(path: str) -> None:
    try:
        _folder.read_manifest(path)
    except CheckpointNotFoundError:
        if os.path.exists(os.path.join(path, OBJECTS)):
            _tell(path, f"The checkpoint {path} is damaged: it has no {MANIFEST}.")
    except (DamagedCheckpointError, OSError) as error:
        _tell(path, error)


def _tell(path: str, reason: object) -> None:
    if path not in _told:
        _told.add(path)
        _warnings.warn(f"A checkpoint is passed over, and the one before it is taken. {reason}")


def latest_checkpoint(
    checkpoint_dir: str | os.PathLike[str], latest_filename: str | None = None
) -> str | None:
    """The path of the latest checkpoint in a directory; None if there is none.

    What this process is still writing in the background is waited for. Damaged checkpoints are
    passed over, with a warning.

    Args:
      checkpoint_dir: where checkpoints were saved.
      latest_filename: kept for ported code.
    """
    directory = as_path(checkpoint_dir, "checkpoint_dir")
    finish_all()
    return latest_whole(os.path.abspath(directory))


def list_checkpoints(checkpoint_dir: str | os.PathLike[str]) -> list[str]:
    """The paths of all checkpoints in a directory, earliest first; none that is half-written.

    What this process is still writing in the background is waited for.

    Args:
      checkpoint_dir: where checkpoints were saved.
    """
    directory = as_path(checkpoint_dir, "checkpoint_dir")
    finish_all()
    return [path for path, _ in _folder.checkpoints_in(os.path.abspath(directory))]
