"""The best checkpoints by a metric: which are kept, and what is refused."""

import math
import os
from pathlib import Path
from typing import Any

import pytest

import replicax as rx


def manager_of(folder: Path, keep: int | None = 2, mode: Any = "min") -> rx.train.CheckpointManager:
    checkpoint = rx.train.Checkpoint(v=rx.Variable(1.0))
    return rx.train.CheckpointManager(checkpoint, folder, keep, best_metric="loss", best_mode=mode)


def kept(manager: rx.train.CheckpointManager) -> list[int]:
    return [int(path.rpartition("-")[2]) for path in manager.checkpoints]


@pytest.mark.parametrize(
    ("mode", "losses", "remain", "best"),
    [
        ("min", [0.5, 0.1, 0.3, 0.9], [2, 3, 4], 2),
        ("max", [0.5, 0.1, 0.3, 0.9], [1, 4], 4),
        ("min", [0.2, 0.2, 0.2, 0.2, 0.5], [3, 4, 5], 4),  # of equal ones, the later
        ("min", [math.nan, 0.5, math.nan, 0.4, math.nan], [2, 4, 5], 4),
        ("max", [math.inf, -math.inf, 0.0, 1.0], [1, 4], 1),
        ("min", [0.1, None, 0.3, None], [1, 3, 4], 1),  # saved without metrics
        ("min", [math.nan, None], [1, 2], None),
    ],
)
def test_which_remain(
    mode: str, losses: list[float | None], remain: list[int], best: int | None, tmp_path: Path
):
    manager = manager_of(tmp_path, 2, mode)
    for loss in losses:
        manager.save(metrics=None if loss is None else {"loss": loss, "other": 1})
    assert kept(manager) == remain
    assert manager.best_checkpoint == (None if best is None else str(tmp_path / f"ckpt-{best}"))
    assert manager.latest_checkpoint == str(tmp_path / f"ckpt-{len(losses)}")


def test_the_ranking_is_kept_by_the_next_manager(tmp_path: Path):
    with manager_of(tmp_path, 1) as first:
        for loss in (0.1, 0.5, 0.4):
            first.save(metrics={"loss": rx.Variable(loss)})
    with manager_of(tmp_path, 1) as second:
        assert second.restore_or_initialize() == str(tmp_path / "ckpt-3")
        assert second.best_checkpoint == str(tmp_path / "ckpt-1")
        second.save(metrics={"loss": 0.2})
        assert kept(second) == [1, 4]
    with manager_of(tmp_path, None) as third:
        third.restore_or_initialize()
        third.save(metrics={"loss": 0.05})
        assert kept(third) == [1, 4, 5] and third.best_checkpoint == str(tmp_path / "ckpt-5")


def test_only_what_it_made_is_removed(tmp_path: Path):
    other = rx.train.Checkpoint(v=rx.Variable(2.0))
    other.save(str(tmp_path / "mine"))
    manager = manager_of(tmp_path, 1)
    manager.save(metrics={"loss": 0.5})
    manager.wait()
    (tmp_path / "ckpt-1" / "notes.txt").write_text("of the user")
    for loss in (0.4, 0.3, 0.2):
        manager.save(metrics={"loss": loss})
    manager.wait()
    assert sorted(os.listdir(tmp_path)) == ["ckpt-1", "ckpt-4", "mine-1"]


def test_what_is_refused(tmp_path: Path):
    checkpoint = rx.train.Checkpoint(v=rx.Variable(1.0))
    with pytest.raises(ValueError, match='`best_mode` must say .*"min" for a loss.*got None'):
        rx.train.CheckpointManager(checkpoint, tmp_path, best_metric="loss")
    with pytest.raises(ValueError, match="`best_metric` is not given: name the metric"):
        rx.train.CheckpointManager(checkpoint, tmp_path, best_mode="min")
    manager = manager_of(tmp_path)
    with pytest.raises(ValueError, match="has no 'loss', the manager's `best_metric`; it has 'l'"):
        manager.save(metrics={"l": 1.0})
    with pytest.raises(TypeError, match="one number for each name; 'loss' is .*strategy.reduce"):
        manager.save(metrics={"loss": [1.0, 2.0]})
    with pytest.raises(TypeError, match="`metrics` must be a dict of numbers"):
        manager.save(metrics=0.5)  # pyright: ignore[reportArgumentType]
    assert manager.checkpoints == []
    plain = rx.train.CheckpointManager(checkpoint, tmp_path)
    with pytest.raises(ValueError, match="no best checkpoint without a metric"):
        _ = plain.best_checkpoint
