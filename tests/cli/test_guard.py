"""The process that ends workers when their launcher cannot."""

import math
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from replicax._src.cli._guard import Guard

TIMEOUT = 60.0


@pytest.fixture
def guard() -> Iterator[Guard]:
    """A guard, gone when the test ends."""
    made = Guard()
    yield made
    made.close()


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own."""
    command = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(command, start_new_session=True) as process:
        yield process
        process.kill()


def test_workers_end_with_the_guard(guard: Guard, worker: subprocess.Popen[bytes]):
    guard.watch(worker.pid)
    guard.close()
    assert worker.wait(TIMEOUT) == -signal.SIGKILL


def test_workers_end_at_their_limit(guard: Guard, worker: subprocess.Popen[bytes]):
    guard.watch(worker.pid)
    guard.limit(0.5)
    assert worker.wait(TIMEOUT) == -signal.SIGKILL


def test_limit_can_be_put_off(guard: Guard, worker: subprocess.Popen[bytes]):
    guard._process.send_signal(signal.SIGSTOP)  # until it has heard both
    guard.watch(worker.pid)
    guard.limit(0.5)
    guard.limit(math.inf)
    guard._process.send_signal(signal.SIGCONT)
    with pytest.raises(subprocess.TimeoutExpired):
        worker.wait(1.5)


def test_groups_that_are_gone_are_left_alone(guard: Guard, worker: subprocess.Popen[bytes]):
    guard.watch(worker.pid)
    guard.forget(worker.pid)
    guard.close()
    assert worker.poll() is None


def test_folders_go_with_the_launcher(tmp_path: Path, worker: subprocess.Popen[bytes]):
    folders = [tmp_path / "programs", tmp_path / 'it\'s \n"odd" %s']
    for folder in folders:
        (folder / "below").mkdir(parents=True)
        (folder / "below" / "file").touch()
    kept = tmp_path / "kept"
    kept.mkdir()
    (folders[0] / "link").symlink_to(kept)
    guard = Guard([str(folder) for folder in folders])
    guard.watch(worker.pid)
    guard.close()
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
