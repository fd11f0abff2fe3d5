"""Two programs that save to one path: the second is told, and nobody's checkpoint is destroyed."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

import replicax as rx
from replicax._src.checkpoints import _folder
from tests.guards import ROOT

SAVES = """
import sys
import replicax as rx
from replicax._src.checkpoints import _folder

checkpoint = rx.train.Checkpoint(v=rx.Variable([2.0] * 1000))
real = _folder.PartialFolder._require_all_there

def wait(self, files):
    print("saving", flush=True)
    sys.stdin.readline()
    real(self, files)

_folder.PartialFolder._require_all_there = wait
checkpoint.write(sys.argv[1])
print("saved", flush=True)
"""

MANY = """
import sys
import numpy as np
import replicax as rx

own = float(sys.argv[2])
v = rx.Variable([own] * 1000)
checkpoint = rx.train.Checkpoint(v=v)
saved = told = 0
for _ in range(40):
    try:
        path = checkpoint.write(sys.argv[1])
        saved += 1
    except rx.errors.CheckpointError as error:
        assert " saves there at the moment" in str(error), error
        told += 1
    v.assign([own] * 1000)
print(saved, told)
"""


class Program:
    """A program of its own, with pipes."""

    def __init__(self, folder: Path, source: str, *arguments: object):
        (folder / "program.py").write_text(source)
        self.process = subprocess.Popen(
            [sys.executable, "program.py", *map(str, arguments)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "JAX_PLATFORMS": "cpu"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.stdin: IO[str] = self.process.stdin
        self.stdout: IO[str] = self.process.stdout

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: Any) -> None:
        self.process.kill()
        self.process.wait(60)
        self.stdin.close()
        self.stdout.close()


@pytest.fixture
def checkpoint() -> rx.train.Checkpoint:
    return rx.train.Checkpoint(v=rx.Variable([1.0] * 1000))


def test_the_second_is_told_and_the_first_is_not_disturbed(
    checkpoint: rx.train.Checkpoint, tmp_path: Path
):
    path = tmp_path / "run" / "ckpt-1"
    with Program(tmp_path, SAVES, path) as first:
        assert first.stdout.readline() == "saving\n"
        wanted = rf"process {first.process.pid} on \S+ saves there at the moment. Give every"
        for _ in range(2):
            with pytest.raises(rx.errors.CheckpointError, match=wanted):
                checkpoint.write(path)
        rx.train.CheckpointManager(checkpoint, path.parent)  # sweeps nothing that is alive
        first.stdin.write("\n")
        first.stdin.flush()
        assert first.stdout.readline() == "saved\n"
    assert os.listdir(path.parent) == ["ckpt-1"]
    checkpoint.read(path)
    assert checkpoint.v.numpy()[0] == 2.0


def test_one_that_was_killed_blocks_nobody(checkpoint: rx.train.Checkpoint, tmp_path: Path):
    path = tmp_path / "run" / "ckpt-1"
    with Program(tmp_path, SAVES, path) as first:
        assert first.stdout.readline() == "saving\n"
        first.process.send_signal(signal.SIGKILL)
        first.process.wait(60)
        assert len(os.listdir(path.parent)) == 2
        checkpoint.write(path)
    assert os.listdir(path.parent) == ["ckpt-1"]
    checkpoint.read(path).assert_consumed()


def test_many_saves_of_two_programs(tmp_path: Path):
    path = tmp_path / "run" / "ckpt"
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    with Program(folders[0], MANY, path, 1) as first, Program(folders[1], MANY, path, 2) as second:
        counts = [list(map(int, each.stdout.readline().split())) for each in (first, second)]
    assert [sum(each) for each in counts] == [40, 40]
    assert os.listdir(path.parent) == ["ckpt"]
    _folder.verify(str(path))


def test_a_save_in_this_program_is_told_too(
    checkpoint: rx.train.Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    partial = _folder.PartialFolder(str(tmp_path / "out"))
    with pytest.raises(rx.errors.CheckpointError, match=f"process {os.getpid()} on .* saves there"):
        checkpoint.write(tmp_path / "out")
    partial.discard()
    partial.discard()  # nothing happens any more
    assert checkpoint.write(tmp_path / "out")


def test_file_systems_without_locks(
    checkpoint: rx.train.Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def flock(*_: Any) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    checkpoint.write(tmp_path / "out")
    checkpoint.write(tmp_path / "out")
    assert os.listdir(tmp_path) == ["out"]
