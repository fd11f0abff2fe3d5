"""What other rooms may do with checkpoints, which users are not to see."""

# Of this room: tests/test_architecture.py draws the line between rooms.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Container, Iterator
from unittest import mock

from replicax._src.checkpoints import _folder, _manager
from replicax._src.checkpoints._checkpoint import Checkpoint
from replicax._src.checkpoints._leftovers import remove, remove_leftovers, why_not_ours
from replicax._src.checkpoints._names import MANIFEST, is_numbered
from replicax._src.variable import own_storage


def last_on_disk(checkpoint: Checkpoint) -> tuple[int, str | None]:
    """Returns how often its values were saved or restored, and the path of the last time."""
    return checkpoint._last_on_disk


def is_as_on_disk(checkpoint: Checkpoint) -> bool:
    """Whether no variable was changed since then, and what is there is a checkpoint of ours."""
    checkpoint._let_finish()
    if not checkpoint._is_ours_on_disk:
        return False
    variables = [(variable(), storage()) for variable, storage in checkpoint._storages_on_disk]
    return all(each is not None and own_storage(each) is known for each, known in variables)


def between_saves(checkpoint: Checkpoint) -> contextlib.AbstractContextManager[object]:
    """Inside the block, no other thread takes the values of a checkpoint to save them."""
    if isinstance(checkpoint._turns, contextlib.nullcontext):
        object.__setattr__(checkpoint, "_turns", threading.RLock())
    return checkpoint._turns


def link_whole(path: str, target: str) -> None:
    """Puts the checkpoint at `path`, every byte of which is checked, into the new folder `target`.

    Its files are linked where the file system can, since nobody changes them, or else copied.
    """
    manifest = _folder.verify(path)
    os.makedirs(target, mode=0o700)
    for name in (*manifest.files, MANIFEST):
        place = os.path.join(target, name)
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        try:
            os.link(os.path.join(path, name), place, follow_symlinks=False)
        except OSError:
            shutil.copyfile(os.path.join(path, name), place, follow_symlinks=False)
            with contextlib.suppress(OSError):
                os.chmod(place, 0o600)


def require_whole(path: str) -> None:
    """Raises a `CheckpointError` unless every byte of the checkpoint is as it was written."""
    _folder.verify(path)


def sweep(directory: str, prefix: str, kept: Container[str]) -> None:
    """Removes the checkpoints `{prefix}-{number}` of a directory, but for those that are kept.

    What killed programs left of them goes as well. Anything else that has such a name stays.
    """
    remove_leftovers(directory, prefix)
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if is_numbered(name, prefix) and name not in kept and why_not_ours(path) is None:
            with contextlib.suppress(OSError):
                remove(path)


@contextlib.contextmanager
def keeping_leftovers() -> Iterator[None]:
    """Inside the block, managers that are made remove nothing that killed programs have left."""
    with mock.patch.object(_manager, "remove_leftovers", lambda *_: None):
        yield
