"""An old checkpoint is renamed, then removed: what a kill leaves is no checkpoint, and is swept."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import replicax as rx


class Killed(BaseException):
    """As if the process had ended there."""


@pytest.mark.parametrize("files_left", [0, 1, 2, 3])
def test_killed_while_it_removes(files_left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    checkpoint = rx.train.Checkpoint(v=rx.Variable([1.0, 2.0]), step=0)
    manager = rx.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=1, asynchronous=False)
    manager.save()
    real = shutil.rmtree

    def rmtree(path: str, ignore_errors: bool = False) -> None:
        if not os.path.isdir(path):
            return
        for name in sorted(os.listdir(path))[files_left:]:
            inner = os.path.join(path, name)
            real(inner) if os.path.isdir(inner) else os.unlink(inner)
        raise Killed

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    with pytest.raises(Killed):
        manager.save()
    monkeypatch.undo()
    assert sorted(os.listdir(tmp_path))[:2] == ["ckpt-1.replicax.removed", "ckpt-2"]
    assert rx.train.list_checkpoints(tmp_path) == [str(tmp_path / "ckpt-2")]
    again = rx.train.CheckpointManager(checkpoint, tmp_path)
    assert again.restore_or_initialize() == str(tmp_path / "ckpt-2")
    assert os.listdir(tmp_path) == ["ckpt-2"]


def test_what_cannot_be_removed_is_no_failure_of_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    checkpoint = rx.train.Checkpoint(step=0)
    real = os.rename

    def rename(source: Any, target: str) -> None:
        if target.endswith(".removed"):
            raise PermissionError("not allowed")
        real(source, target)

    with rx.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=1) as manager:
        manager.save()
        manager.wait()
        monkeypatch.setattr(os, "rename", rename)
        manager.save()
        manager.save(checkpoint_number=2)  # which replaces it
    assert sorted(os.listdir(tmp_path)) == ["ckpt-1", "ckpt-2", "ckpt-2.replicax.replaced"]
    checkpoint.restore(manager.latest_checkpoint).assert_consumed()
    monkeypatch.undo()
    rx.train.CheckpointManager(checkpoint, tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["ckpt-1", "ckpt-2"]
