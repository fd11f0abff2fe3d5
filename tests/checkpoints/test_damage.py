"""A damaged checkpoint is never taken."""

import os
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import replicax as rx


def data_file(path: Path) -> Path:
    """The largest file of a checkpoint."""
    return max((f for f in path.rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)


def change_a_byte(path: Path) -> None:
    file = data_file(path)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def cut(path: Path) -> None:
    os.truncate(data_file(path), data_file(path).stat().st_size // 2)


def empty(path: Path) -> None:
    data_file(path).write_bytes(b"")


def lengthen(path: Path) -> None:
    with data_file(path).open("ab") as file:
        file.write(b"\0")


def lose_the_data(path: Path) -> None:
    data_file(path).unlink()


def change_objects(path: Path) -> None:
    file = path / "objects.json"
    file.write_text(file.read_text().replace('"step"', '"stop"'))


def lose_objects(path: Path) -> None:
    (path / "objects.json").unlink()


def change_the_manifest(path: Path) -> None:
    file = path / "manifest.json"
    file.write_text(file.read_text().replace('"sequence": ', '"sequence": 1'))


def cut_the_manifest(path: Path) -> None:
    os.truncate(path / "manifest.json", 60)


def empty_the_manifest(path: Path) -> None:
    (path / "manifest.json").write_bytes(b"")


def garble_the_manifest(path: Path) -> None:
    (path / "manifest.json").write_bytes(b"\xff\xfe{}\n00000000\n")


def lose_the_manifest(path: Path) -> None:
    (path / "manifest.json").unlink()


DAMAGE = [
    *(change_a_byte, cut, empty, lengthen, lose_the_data, change_objects, lose_objects),
    *(change_the_manifest, cut_the_manifest, empty_the_manifest, garble_the_manifest),
    lose_the_manifest,
]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_the_one_before_is_taken(damage: Callable[[Path], None], tmp_path: Path):
    checkpoint = rx.train.Checkpoint(v=rx.Variable([0.0] * 100), step=0)
    with rx.train.CheckpointManager(checkpoint, tmp_path) as manager:
        for step in (1, 2, 3):
            checkpoint.step = step
            manager.save()
    damage(tmp_path / "ckpt-3")
    checkpoint.step = 9
    with pytest.raises(rx.errors.CheckpointError) as caught:
        checkpoint.restore(tmp_path / "ckpt-3")
    assert "ckpt-3" in str(caught.value)
    if damage is not lose_the_manifest:
        assert isinstance(caught.value, rx.errors.DataLossError)
        assert "is damaged" in str(caught.value)
    assert checkpoint.step == 9

    manager = rx.train.CheckpointManager(checkpoint, tmp_path)
    with pytest.warns(UserWarning, match=r"(?s)passed over.*ckpt-3 is damaged: ") as record:
        assert manager.restore_or_initialize() == str(tmp_path / "ckpt-2")
    assert len(record) == 1 and record[0].filename == __file__
    assert checkpoint.step == 2
    assert rx.train.latest_checkpoint(tmp_path) == str(tmp_path / "ckpt-2")  # told once
    # Training goes on, and saves under the same number.
    checkpoint.step = 3
    assert manager.save() == str(tmp_path / "ckpt-3")
    assert manager.latest_checkpoint == str(tmp_path / "ckpt-3")
    checkpoint.restore(manager.latest_checkpoint).assert_consumed()
    assert rx.train.latest_checkpoint(tmp_path) == str(tmp_path / "ckpt-3")


def test_all_damaged(tmp_path: Path):
    checkpoint = rx.train.Checkpoint(v=rx.Variable(1.0))
    with rx.train.CheckpointManager(checkpoint, tmp_path) as manager:
        manager.save()
        manager.save()
    for name in ("ckpt-1", "ckpt-2"):
        change_a_byte(tmp_path / name)
    with pytest.warns(UserWarning, match="passed over"):
        assert rx.train.CheckpointManager(checkpoint, tmp_path).restore_or_initialize() is None


def test_every_byte_counts(tmp_path: Path):
    """Any byte of any file, changed or cut off there: found."""
    checkpoint = rx.train.Checkpoint(v=rx.Variable([1.0, 2.0]), step=1)
    path = Path(checkpoint.write(tmp_path / "whole"))
    files = [file.relative_to(path) for file in path.rglob("*") if file.is_file()]
    chosen = random.Random(1)
    for trial in range(60):
        copy = Path(shutil.copytree(path, tmp_path / f"copy-{trial}"))
        file = copy / chosen.choice(files)
        content = bytearray(file.read_bytes())
        place = chosen.randrange(len(content))
        if trial % 2:
            content[place] ^= 1 << chosen.randrange(8)
        else:
            del content[place:]
        file.write_bytes(content)
        with pytest.raises(rx.errors.DataLossError):
            checkpoint.read(copy)
        shutil.rmtree(copy)


def test_other_folders_are_no_checkpoints(tmp_path: Path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "ckpt-5").mkdir()
    (tmp_path / "ckpt-6").write_text("a file")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rx.train.latest_checkpoint(tmp_path) is None
    assert rx.train.list_checkpoints(tmp_path) == []
