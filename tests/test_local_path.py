"""Files are written where the user named them: not in a folder `gs:`, nor in another folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import replicax as rx
from replicax._src._local_path import absolute_path, as_path, is_address, naming


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two folders; the program works in the first."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    monkeypatch.chdir(first)
    return first, second


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)).split("/")[0] for path in folder.rglob("*")}


def use_load() -> Callable[[], Any]:
    rx.data.Dataset.range(3).save("there")
    dataset = rx.data.Dataset.load("there")
    return lambda: list(dataset)


def use_cache() -> Callable[[], Any]:
    dataset = rx.data.Dataset.range(3).cache("there")
    return lambda: list(dataset)


def use_snapshot() -> Callable[[], Any]:
    dataset = rx.data.Dataset.range(3).snapshot("there")
    iterator = iter(dataset)
    next(iterator)
    return lambda: (list(iterator), list(dataset))


def use_recorder() -> Callable[[], Any]:
    step = rx.function(lambda x: x + 1)
    recorder = rx.debug.Recorder(rx.train.Checkpoint(w=rx.Variable(1.0)), step, "there")

    def use() -> None:
        step(jnp.ones(2))
        recorder.close()

    return use


@pytest.mark.parametrize("begin", [use_load, use_cache, use_snapshot, use_recorder])
def test_a_program_may_change_its_folder(
    two: tuple[Path, Path], begin: Callable[[], Callable[[], Any]]
):
    first, second = two
    use = begin()
    os.chdir(second)
    use()
    assert files_in(first) == {"there"} and files_in(second) == set()


def test_what_is_elsewhere_is_no_folder_of_this_name(two: tuple[Path, Path]):
    dataset = rx.data.Dataset.range(3)
    double = rx.function(lambda x: 2 * x)
    checkpoint = rx.train.Checkpoint(w=rx.Variable(1.0))
    for use in (
        dataset.save,
        dataset.load,
        dataset.cache,
        dataset.snapshot,
        lambda path: double.export(path, rx.TensorSpec([2])),
        lambda path: rx.debug.Recorder(checkpoint, double, path),
        lambda path: rx.train.CheckpointManager(checkpoint, path),
    ):
        for address in ("gs://bucket/there", "hdfs://host/there", "s3a://bucket/there"):
            with pytest.raises(ValueError, match="must be a path of the file system.*mounted"):
                use(address)
    assert files_in(two[0]) == set()


def test_paths():
    assert absolute_path("file:///a/b", "x") == "/a/b"
    assert absolute_path(Path("/a/./b/"), "x") == "/a/b"
    assert absolute_path("/a/../b/", "x") == "/b"
    assert not is_address("a:/b") and not is_address("C:\\a") and is_address("az://a")
    with pytest.raises(ValueError, match="`x` must name a file or a folder"):
        absolute_path("", "x")
    with pytest.raises(TypeError, match="`x` must be a path"):
        absolute_path(3, "x")


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path: Path):
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    many = bytes(100_000)  # more than is held back
    for file in (rx.io.TFRecordWriter(full), rx.io.gfile.GFile(full, "wb")):
        with pytest.raises(OSError, match=f"No space left on device: '{full}'"), file:
            file.write(many)
    with pytest.raises(OSError, match="No space.*'mine'"), naming("theirs"), naming("mine"):
        raise OSError(28, "No space left on device")
    with pytest.raises(OSError, match="No space.*'own'"), naming("theirs"):
        raise OSError(28, "No space left on device", "own")


def test_an_address_of_a_file_has_three_slashes():
    assert as_path("file:///some/where", "path") == "/some/where"
    with pytest.raises(ValueError, match="three slashes"):
        as_path("file://localhost/some", "path")


def test_a_path_may_go_up_from_a_link(two: tuple[Path, Path]):
    first, second = two
    (second / "inner").mkdir()
    (first / "link").symlink_to(second / "inner")
    for path in ("link/../there", "link/.././there/", f"{first}/link/../there"):
        assert absolute_path(path, "x") == f"{second}/there", "as for the system"
    assert absolute_path("link/..", "x") == str(second)
    assert absolute_path("link/..there", "x") == f"{first}/link/..there"
    w = rx.Variable(1.0)
    checkpoint = rx.train.Checkpoint(w=w)
    with rx.train.CheckpointManager(checkpoint, "link/../managed") as manager:
        manager.save()
    written = checkpoint.write("link/../written")
    assert files_in(second) == {"inner", "managed", "written"} and files_in(first) == {"link"}
    w.assign(2.0)
    checkpoint.read("link/../written")
    assert float(w.numpy()) == 1.0 and os.path.isdir(written)
    assert rx.train.latest_checkpoint("link/../managed") == f"{second}/managed/ckpt-1"
    assert rx.train.load_checkpoint("link/../managed").get_tensor("w") == 1.0


def test_the_address_of_another_host_is_no_folder_here(two: tuple[Path, Path]):
    (two[0] / "host").mkdir()
    for use in (rx.io.gfile.exists, rx.io.gfile.makedirs, rx.io.gfile.rmtree):
        with pytest.raises(ValueError, match="three slashes"):
            use("file://host/there")
    assert rx.io.gfile.exists(f"file://{two[0]}/host")
