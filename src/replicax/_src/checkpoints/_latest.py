"""The latest checkpoint of a directory that is whole, once or again and again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

from replicax._src import _warnings
from replicax._src._local_path import made_absolute
from replicax._src.checkpoints import _folder
from replicax._src.checkpoints._background import finish_all
from replicax._src.checkpoints._names import MANIFEST, OBJECTS, is_numbered
from replicax._src.checkpoints._objects import read_objects
from replicax._src.checkpoints._paths import as_path
from replicax._src.checkpoints._problems import CheckpointNotFoundError, DamagedCheckpointError
from replicax._src.checkpoints.foreign._state_file import bundles_in, latest_bundle

_POLL_SECONDS = 1.0  # how often to look for a newer checkpoint
_told: set[str] = set()  # the damaged checkpoints that users know of


def latest_whole(directory: str, prefix: str | None = None) -> str | None:
    """Returns the path of the latest checkpoint, every byte of which is as it was written.

    Damaged ones are passed over, each with a warning that says which and why.

    Args:
      directory: where they are.
      prefix: as for `is_numbered`; None for all, also those without a number.
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
    """Returns the path of the latest checkpoint in a directory; None if there is none.

    Where there are none but TensorFlow's, it is the one that TensorFlow's file `checkpoint` names.
    What this process is still writing in the background is waited for. Damaged checkpoints are
    passed over, with a warning.

    Args:
      checkpoint_dir: where checkpoints were saved.
      latest_filename: kept for ported code.
    """
    directory = as_path(checkpoint_dir, "checkpoint_dir")
    finish_all()
    directory = made_absolute(directory)
    return latest_whole(directory) or latest_bundle(directory)


def list_checkpoints(checkpoint_dir: str | os.PathLike[str]) -> list[str]:
    """Returns the paths of the checkpoints in a directory, earliest first; none half-written.

    What this process is still writing in the background is waited for.

    Args:
      checkpoint_dir: where checkpoints were saved.
    """
    directory = as_path(checkpoint_dir, "checkpoint_dir")
    finish_all()
    directory = made_absolute(directory)
    ours = [path for path, _ in _folder.checkpoints_in(directory)]
    return [*bundles_in(directory), *ours]


def checkpoints_iterator(
    checkpoint_dir: str | os.PathLike[str],
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
) -> Iterator[str]:
    """Yields the path of the latest checkpoint, again whenever there is a newer one.

    Those that come while the user is busy are passed over, but for the last.

    Args:
      checkpoint_dir: where another program saves.
      min_interval_secs: how long to wait at least between two of them.
      timeout: seconds to wait for a newer one; None: forever.
      timeout_fn: called after each `timeout`; the end if it returns True. Without it, the end.
    """
    directory = as_path(checkpoint_dir, "checkpoint_dir")
    last: str | None = None
    while True:
        began = time.monotonic()
        path = _next(directory, last, timeout)
        if path is None:
            if timeout_fn is None or timeout_fn():
                return
            continue
        last = path
        yield path
        time.sleep(max(0.0, min_interval_secs - (time.monotonic() - began)))


def _next(directory: str, last: str | None, timeout: float | None) -> str | None:
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        path = latest_checkpoint(directory) if os.path.isdir(directory) else None
        if path is not None and path != last:
            return path
        left = _POLL_SECONDS if deadline is None else deadline - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(_POLL_SECONDS, left))
