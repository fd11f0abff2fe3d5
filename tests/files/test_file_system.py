"""Files behind addresses; those of this machine are recorded in `tests/parity`."""

import errno
import importlib
import shutil
from pathlib import Path
from typing import Any

import pytest

import replicax as rx

gfile = rx.io.gfile
fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def memory() -> Any:
    """A file system in memory, as stores of objects are: behind an address."""
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    yield "memory://bucket"
    files.store.clear()
    files.pseudo_dirs[:] = [""]


def test_files_behind_an_address_are_files_like_others(memory: str, tmp_path: Path):
    gfile.makedirs(f"{memory}/d/e")
    with gfile.GFile(f"{memory}/d/x.txt", "w") as file:
        file.write("one\ntwo\n")
    assert gfile.exists(f"{memory}/d/x.txt") and not gfile.exists(f"{memory}/no")
    assert gfile.isdir(f"{memory}/d") and not gfile.isdir(f"{memory}/d/x.txt")
    assert list(gfile.GFile(f"{memory}/d/x.txt")) == ["one\n", "two\n"]
    assert gfile.stat(f"{memory}/d/x.txt").length == 8
    assert gfile.listdir(f"{memory}/d") == ["e", "x.txt"]
    assert gfile.glob(f"{memory}/d/*.txt") == ["memory:///bucket/d/x.txt"]
    gfile.copy(f"{memory}/d/x.txt", tmp_path / "here.txt")
    assert (tmp_path / "here.txt").read_text() == "one\ntwo\n"
    gfile.copy(tmp_path / "here.txt", f"{memory}/d/y.txt")
    gfile.rename(f"{memory}/d/y.txt", f"{memory}/z.txt")
    assert gfile.listdir(memory) == ["d", "z.txt"]
    gfile.remove(f"{memory}/z.txt")
    assert [names for _, _, names in gfile.walk(memory)] == [[], ["x.txt"], []]
    gfile.rmtree(f"{memory}/d")
    assert not gfile.exists(f"{memory}/d")


def test_errors_are_the_same_behind_an_address(memory: str, tmp_path: Path):
    with pytest.raises(rx.errors.NotFoundError, match="memory://bucket/no"):
        gfile.GFile(f"{memory}/no").read()
    with pytest.raises(rx.errors.NotFoundError):
        gfile.rmtree(f"{memory}/no")
    with gfile.GFile(f"{memory}/x", "w") as file:
        file.write("x")
    with pytest.raises(rx.errors.AlreadyExistsError, match="overwrite=True"):
        gfile.copy(f"{memory}/x", f"{memory}/x")
    with pytest.raises(NotImplementedError, match=r"Use copy\(\) and remove\(\)"):
        gfile.rename(f"{memory}/x", tmp_path / "x")


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ImportError, match=r"'gcsfs' is not installed. Run `pip install fsspec gcs"):
        gfile.exists("gs://bucket/file")
    with pytest.raises(NotImplementedError, match="'nothing' is known.*leave the scheme out"):
        gfile.exists("nothing://bucket/file")
    find = importlib.import_module

    def without_fsspec(name: str, *rest: Any) -> Any:
        if name.startswith("fsspec"):
            raise ImportError(name)
        return find(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without_fsspec)
    with pytest.raises(ImportError, match="'fsspec' is not installed. Run `pip install fsspec s3"):
        gfile.exists("s3://bucket/file")


def test_a_file_that_was_written_is_not_emptied_by_a_late_write(tmp_path: Path):
    file = gfile.GFile(tmp_path / "some", "w")
    file.write("kept")
    file.close()
    with pytest.raises(ValueError, match="is closed. Open it again"):
        file.write("more")
    assert (tmp_path / "some").read_text() == "kept"


def test_a_tree_that_is_a_link_is_removed_without_what_it_leads_to(tmp_path: Path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("kept")
    for name in ("link", "link/"):
        (tmp_path / "link").symlink_to("kept")
        rx.io.gfile.rmtree(f"{tmp_path}/{name}")
        assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "kept" / "file").read_text() == "kept"


def test_a_walk_ends_where_links_lead_back(tmp_path: Path):
    for name in ("a", "b"):
        (tmp_path / name).symlink_to(".")
    assert list(rx.io.gfile.walk(tmp_path)) == [(str(tmp_path), ["a", "b"], [])]


@pytest.mark.parametrize("source", ["here", "address"])
def test_a_copy_that_does_not_fit_leaves_the_old_file(
    memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
):
    old, new = tmp_path / "old", tmp_path / "new" if source == "here" else f"{memory}/new"
    old.write_text("old")
    with gfile.GFile(new, "w") as file:
        file.write("new")

    def is_full(source: Any, target: Any, *_: Any) -> None:
        if isinstance(target, str):
            Path(target).write_text("n")
            raise OSError(errno.ENOSPC, "No space left on device", target)
        target.write(b"n")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", is_full)
    monkeypatch.setattr(shutil, "copyfileobj", is_full)
    with pytest.raises(OSError, match="No space left"):
        gfile.copy(new, old, overwrite=True)
    assert old.read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} <= {"old", "new"}


def test_a_copy_keeps_the_rights_and_the_link_that_it_replaces(tmp_path: Path):
    old, link, new = (tmp_path / name for name in ("old", "link", "new"))
    old.write_text("old")
    old.chmod(0o640)
    link.symlink_to("old")
    new.write_text("new")
    gfile.copy(new, link, overwrite=True)
    assert link.is_symlink() and old.read_text() == "new"
    assert old.stat().st_mode & 0o777 == 0o640
