"""What killed programs left of caches and data sets goes; what others write or own stays."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

import replicax as rx
from replicax._src.data._abandoned import create_locked, is_abandoned
from replicax._src.data._saved import Writer

DEAD = "0123456789abcdef"
LEFT = (f"part-{DEAD}-000000", f"replicax-dataset-{DEAD}", f".rx-cache-{DEAD}")
ODD = ("part-0123", ".rx-cache-mine", f"replicax-dataset-{DEAD}.old")


def leave(folder: Path, *names: str) -> None:
    """Makes files that nobody holds, as a killed program leaves them."""
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"half")
        os.utime(folder / name, (0, 0))


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_save_removes_what_killed_programs_left(tmp_path: Path):
    folder = tmp_path / "saved"
    rx.data.Dataset.range(3).save(folder)
    leave(folder, *LEFT, *ODD)
    rx.data.Dataset.range(5).save(folder)
    assert not names_in(folder) & set(LEFT)
    assert names_in(folder) >= set(ODD)
    assert list(rx.data.Dataset.load(folder)) == list(range(5))


def test_so_does_a_cache_in_its_folder(tmp_path: Path):
    leave(tmp_path, LEFT[2], *ODD)
    assert list(rx.data.Dataset.range(3).cache(tmp_path / "cache")) == [0, 1, 2]
    assert names_in(tmp_path) == {"cache", *ODD}


def test_what_a_living_writer_has_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("replicax._src.data._saved._PART_ELEMENTS", 1)
    writer = Writer(str(tmp_path / "saved"), lambda _: 0, False, "save()")
    dataset = rx.data.Dataset.range(3)
    for element in dataset:
        writer.add(element)
    dataset.take(1).save(tmp_path / "saved")
    writer.finish(dataset.element_spec, ())
    assert list(rx.data.Dataset.load(tmp_path / "saved")) == [0, 1, 2]


def test_a_writer_whose_files_are_gone_does_not_count(tmp_path: Path):
    writer = Writer(str(tmp_path / "saved"), lambda _: 0, False, "save()")
    dataset = rx.data.Dataset.range(3)
    for element in dataset:
        writer.add(element)
    writer._flush(0)
    (part,) = (tmp_path / "saved").glob("part-*")
    part.unlink()
    with pytest.raises(FileNotFoundError, match=f"save.*{part.name}.*another program"):
        writer.finish(dataset.element_spec, ())
    writer.give_up()
    assert not (tmp_path / "saved").exists()


def test_a_snapshot_needs_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def link(*_: object) -> None:
        raise PermissionError("no hard links here")

    monkeypatch.setattr(os, "link", link)
    for _ in range(2):
        assert list(rx.data.Dataset.range(3).snapshot(tmp_path)) == [0, 1, 2]
    (folder,) = tmp_path.iterdir()
    assert len(names_in(folder)) == 2


def test_a_file_is_abandoned_when_nobody_holds_it(tmp_path: Path):
    path = str(tmp_path / "file")
    assert not is_abandoned(path)
    descriptor = create_locked(path)
    assert not is_abandoned(path)
    with pytest.raises(FileExistsError):
        create_locked(path)
    os.utime(path, (0, 0))
    assert not is_abandoned(path)
    os.close(descriptor)
    assert is_abandoned(path)
    os.utime(path)
    assert not is_abandoned(path), "who writes it may be on another host"


def test_without_locks_no_file_counts_as_abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def flock(*_: object) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr(fcntl, "flock", flock)
    path = str(tmp_path / "file")
    os.close(create_locked(path))
    os.utime(path, (0, 0))
    assert not is_abandoned(path)
