"""The directory of compiled programs: entries are whole or not there, whoever writes or dies."""

import os
import time
from pathlib import Path

import pytest
from jax._src import compilation_cache
from jax._src.lru_cache import LRUCache

from replicax._src import _jax_cache

WHOLE = compilation_cache.compress_executable(b"a program")
OTHER = compilation_cache.compress_executable(b"another program")


def entries(folder: Path) -> "_jax_cache._WholeEntries":
    return _jax_cache._WholeEntries(LRUCache(str(folder), max_size=-1))


def test_entry_comes_back_and_nothing_else_is_left(tmp_path: Path):
    entries(tmp_path).put("key", WHOLE)
    assert entries(tmp_path).get("key") == WHOLE
    assert os.listdir(tmp_path) == ["key-cache"]


def test_entry_of_another_worker_is_left_alone(tmp_path: Path):
    entries(tmp_path).put("key", WHOLE)
    before = (tmp_path / "key-cache").stat()
    entries(tmp_path).put("key", OTHER)
    assert (tmp_path / "key-cache").stat().st_ino == before.st_ino
    assert entries(tmp_path).get("key") == WHOLE


@pytest.mark.parametrize("damage", [b"", WHOLE[:-3], b"nonsense"])
def test_damaged_entry_is_not_read_and_is_replaced(tmp_path: Path, damage: bytes):
    (tmp_path / "key-cache").write_bytes(damage)
    assert entries(tmp_path).get("key") is None
    entries(tmp_path).put("key", WHOLE)
    assert entries(tmp_path).get("key") == WHOLE


def test_writers_with_the_same_process_number_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As containers on one shared file system have."""
    unfinished: list[str] = []
    replace = os.replace

    def note(source: str, target: str) -> None:
        unfinished.append(source)
        replace(source, target)
        os.unlink(target)

    monkeypatch.setattr(os, "replace", note)
    for _ in range(2):
        entries(tmp_path).put("key", WHOLE)
    assert len(set(unfinished)) == 2


def test_left_overs_of_killed_workers_are_removed_after_an_hour(tmp_path: Path):
    names = {
        "old": f"a-cache.{'0' * 32}",
        "new": f"b-cache.{'1' * 32}",
        "entry": "c-cache",
        "foreign": "notes.txt",
    }
    for name in names.values():
        (tmp_path / name).write_bytes(b"half")
    for kind in ("old", "entry", "foreign"):
        os.utime(tmp_path / names[kind], (time.time() - 7200, time.time() - 7200))
    entries(tmp_path).put("key", WHOLE)
    assert set(os.listdir(tmp_path)) == {*names.values(), "key-cache"} - {names["old"]}


def test_full_disk_leaves_no_half_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(source: str, target: str) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(os, "replace", fail)
    entries(tmp_path).put("key", WHOLE)
    assert os.listdir(tmp_path) == []
