"""Programs that are killed inside a save (a soak test does many more), and full disks."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import replicax as rx
from tests.checkpoints.kills import kill_inside_saves
from tests.guards import ROOT


@pytest.mark.parametrize("ending", [".partial", ".removed"])
def test_killed_inside_saves_and_removals(ending: str, tmp_path: Path):
    assert kill_inside_saves(tmp_path, kills=2, ending=ending).inside == 2


FULL = """
import os, resource, sys
import jax.numpy as jnp
import replicax as rx

way, folder = sys.argv[1:]
if way == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (6_000_000, 6_000_000))
small, large = rx.Variable(jnp.ones(250_000)), rx.Variable(jnp.ones(10_000_000))
checkpoint = rx.train.Checkpoint(small=small)
for asynchronous in (False, True):
    manager = rx.train.CheckpointManager(checkpoint, folder, 2, asynchronous=asynchronous)
    first = manager.save()
    manager.wait()
    before = sorted(os.listdir(folder))
    checkpoint.large = large
    try:
        manager.save()
        manager.wait()
    except rx.errors.CheckpointError as error:
        print(error)
        assert "could not be written" in str(error) and "as they were" in str(error)
        if way == "tmpfs":
            assert "the disk is full: 41.0 MB are needed" in str(error), error
    else:
        sys.exit("no error")
    del checkpoint.large
    assert sorted(os.listdir(folder)) == before, os.listdir(folder)
    assert manager.latest_checkpoint == first == rx.train.latest_checkpoint(folder)
    small.assign(jnp.zeros(250_000))
    checkpoint.restore(first).assert_consumed()
    assert (small.numpy() == 1).all()
    assert manager.save() == manager.latest_checkpoint  # there is room for this one
print("good")
"""


def may_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(command, capture_output=True, timeout=500).returncode == 0


@pytest.mark.parametrize("way", ["limit", "tmpfs"])
def test_a_full_disk(way: str, tmp_path: Path):
    if way == "tmpfs" and not may_mount():
        pytest.skip("this user may not mount a small file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    (tmp_path / "program.py").write_text(FULL)
    mount = 'mount -t tmpfs -o size=10m tmpfs "$1" && exec "$2" "$3" tmpfs "$1"'
    inside = ["unshare", "-rm", "sh", "-c", mount, "sh", str(folder), sys.executable]
    command = [sys.executable, "program.py", "limit", str(folder)]
    if way == "tmpfs":
        command = [*inside, "program.py"]
    result = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin", "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
    )
    assert result.returncode == 0 and result.stdout.endswith("good\n"), result.stdout


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_directory_that_cannot_be_written_to_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
):
    def refuse(path: str) -> None:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr("replicax._src.checkpoints._folder.PathLock", refuse)
    checkpoint = rx.train.Checkpoint(v=rx.Variable(1.0))
    wanted = f"{os.strerror(number)}.*; save to a directory that this user can write to. Nothing"
    with pytest.raises(rx.errors.CheckpointError, match=wanted):
        checkpoint.save(str(tmp_path / "ckpt"))
