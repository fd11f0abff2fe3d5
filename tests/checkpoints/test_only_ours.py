"""Saving replaces and removes checkpoints, and nothing else."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import replicax as rx
from replicax._src.checkpoints import _folder


@pytest.fixture
def checkpoint() -> rx.train.Checkpoint:
    return rx.train.Checkpoint(v=rx.Variable([1.0, 2.0]), step=0)


def everything(folder: Path) -> dict[str, bytes | str | None]:
    """What is in a folder: content of files, destinations of links, None for folders."""
    found: dict[str, bytes | str | None] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = os.readlink(path)
        else:
            found[name] = path.read_bytes() if path.is_file() else None
    return found


def a_file(path: Path) -> None:
    path.write_text("mine")


def a_folder_of_the_user(path: Path) -> None:
    (path / "src").mkdir(parents=True)
    (path / "src" / "model.py").write_text("mine")


def a_directory_of_checkpoints(path: Path) -> None:
    rx.train.Checkpoint(step=1).write(path / "ckpt-1")


def a_checkpoint_with_notes(path: Path) -> None:
    rx.train.Checkpoint(step=1).write(path)
    (path / "notes.txt").write_text("mine")


def another_librarys(path: Path) -> None:
    path.mkdir()
    (path / "manifest.json").write_text('{"name": "another"}')


def another_librarys_with_the_names_of_ours(path: Path) -> None:
    another_librarys(path)
    (path / "objects.json").write_text('{"objects": []}')
    (path / "arrays").mkdir()
    (path / "arrays" / "_METADATA").write_text("mine")


def a_checkpoint_with_notes_inside(path: Path) -> None:
    rx.train.Checkpoint(step=1).write(path)
    (path / "arrays" / "notes.txt").write_text("mine")


def a_link_to_a_checkpoint(path: Path) -> None:
    rx.train.Checkpoint(step=1).write(path.parent / "real")
    path.symlink_to("real")


def a_link_to_nowhere(path: Path) -> None:
    path.symlink_to("nowhere")


STRANGE: dict[Callable[[Path], None], str] = {
    a_file: "a file",
    a_folder_of_the_user: "a folder with 'src' in it",
    a_directory_of_checkpoints: "a folder with 'ckpt-1' in it",
    a_checkpoint_with_notes: "a folder with 'notes.txt' in it",
    a_checkpoint_with_notes_inside: "a folder with 'arrays/notes.txt' in it",
    another_librarys: "a folder that is no checkpoint",
    another_librarys_with_the_names_of_ours: "a folder that is no checkpoint",
    a_link_to_a_checkpoint: "a symbolic link to real",
    a_link_to_nowhere: "a symbolic link to nowhere",
}


@pytest.mark.parametrize("make", STRANGE, ids=lambda make: make.__name__)
def test_what_is_not_a_checkpoint_is_left_alone(
    make: Callable[[Path], None], checkpoint: rx.train.Checkpoint, tmp_path: Path
):
    make(tmp_path / "out-1")
    before = everything(tmp_path)
    manager = rx.train.CheckpointManager(checkpoint, tmp_path, checkpoint_name="out")
    for save in (
        lambda: checkpoint.write(tmp_path / "out-1"),
        lambda: checkpoint.save(tmp_path / "out"),
        lambda: manager.save(checkpoint_number=1),
    ):
        checkpoint.save_counter.assign(0)
        with pytest.raises(rx.errors.CheckpointError) as caught:
            save()
        text = str(caught.value)
        assert f"{tmp_path}/out-1 could not be written: at that path there is" in text
        assert STRANGE[make] in text and "Save to another path, or move it away first" in text
        assert everything(tmp_path) == before


def test_what_appears_during_a_save_is_left_alone(
    checkpoint: rx.train.Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    real = _folder.PartialFolder._require_all_there

    def appear(self: Any, files: Any) -> None:
        a_file(tmp_path / "out")
        real(self, files)

    monkeypatch.setattr(_folder.PartialFolder, "_require_all_there", appear)
    with pytest.raises(rx.errors.CheckpointError, match="there is a file"):
        checkpoint.write(tmp_path / "out")
    assert everything(tmp_path) == {"out": b"mine"}


def test_checkpoints_and_empty_folders_are_replaced(
    checkpoint: rx.train.Checkpoint, tmp_path: Path
):
    (tmp_path / "out").mkdir()
    for step in (1, 2):
        checkpoint.step = step
        path = checkpoint.write(tmp_path / "out")
        assert os.listdir(tmp_path) == ["out"]
        checkpoint.step = 0
        checkpoint.read(path).assert_consumed()
        assert checkpoint.step == step


@pytest.mark.parametrize("name", ["manifest.json", "objects.json"])
@pytest.mark.parametrize("content", [None, b"", b"\0" * 100])
def test_damaged_checkpoints_are_replaced(
    name: str, content: bytes | None, checkpoint: rx.train.Checkpoint, tmp_path: Path
):
    """A program that has passed one over comes to its number again."""
    file = Path(checkpoint.write(tmp_path / "out")) / name
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    checkpoint.write(tmp_path / "out")
    assert os.listdir(tmp_path) == ["out"]
    checkpoint.read(tmp_path / "out").assert_consumed()


def test_a_replacement_that_fails_leaves_the_old_one(
    checkpoint: rx.train.Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    checkpoint.write(tmp_path / "out")
    before = everything(tmp_path)
    real = os.rename

    def rename(source: str, target: str) -> None:
        if source.endswith(".partial"):
            raise OSError("Input/output error")
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(rx.errors.CheckpointError, match="as they were"):
        checkpoint.write(tmp_path / "out")
    assert everything(tmp_path) == before


@pytest.mark.parametrize("path", ["", ".", "..", "./", "../", "/", "sub/..", "here", "linked"])
def test_the_working_directory_and_its_parents_are_refused(
    path: str, checkpoint: rx.train.Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    here = tmp_path / "here"
    here.mkdir()
    (here / "train.py").write_text("mine")
    (tmp_path / "linked").symlink_to(here)
    before = everything(tmp_path)
    monkeypatch.chdir(here)
    given = str(tmp_path / path) if path in ("here", "linked") else path
    with pytest.raises(ValueError, match=r"(?s)(must end in the name|cannot be written to).*ckpt'"):
        checkpoint.write(given)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("prefix", ["", ".", "..", "sub/."])
def test_a_prefix_has_a_name(prefix: str, checkpoint: rx.train.Checkpoint):
    with pytest.raises(ValueError, match="must end in the name of the checkpoint.*ckpt'"):
        checkpoint.save(prefix)
    assert int(checkpoint.save_counter.numpy()) == 0


def test_a_manager_sweeps_only_what_has_its_endings(
    checkpoint: rx.train.Checkpoint, tmp_path: Path
):
    for name in (
        *("ckpt-notes.partial", "ckpt-x.replaced", "ckpt-7.partial", "ckpt-7.removed"),
        *("ckpt-notes.replicax.partial", "ckpt-best-7.replicax.removed", "notes.replicax.lock"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.py").write_text("mine")
    before = everything(tmp_path)
    with rx.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=1) as manager:
        for _ in range(3):
            manager.save()
    after = everything(tmp_path)
    assert {name: after[name] for name in before} == before
    assert {name for name in os.listdir(tmp_path) if name not in before} == {"ckpt-3"}


def test_a_manager_keeps_the_checkpoints_of_others(checkpoint: rx.train.Checkpoint, tmp_path: Path):
    """Those of a manager whose name begins alike, those with files of the user, and links."""
    with rx.train.CheckpointManager(checkpoint, tmp_path, checkpoint_name="ckpt-best") as best:
        best.save()
        best.save()
    a_checkpoint_with_notes(tmp_path / "ckpt-90")
    checkpoint.write(tmp_path / "real")
    (tmp_path / "ckpt-91").symlink_to("real")
    before = everything(tmp_path)
    with rx.train.CheckpointManager(checkpoint, tmp_path, max_to_keep=1) as manager:
        for _ in range(3):
            manager.save(checkpoint_number=int(checkpoint.save_counter.numpy()) + 1)
    after = everything(tmp_path)
    assert {name: after[name] for name in before} == before
    number = int(checkpoint.save_counter.numpy())
    assert {name for name in os.listdir(tmp_path) if name not in before} == {f"ckpt-{number}"}
    assert len(best.checkpoints) == 2
