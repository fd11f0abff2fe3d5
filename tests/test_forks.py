"""Programs of tests run as well where the process that forks has ended."""

import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests import forks
from tests.forked import NONE_LISTENS, address


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a relative path: the address of a socket has to be short."""
    monkeypatch.chdir(tmp_path)
    return Path(".")


def _ended_before(listener: socket.socket) -> None:
    """Ends as a process whose imports fail: who has connected is reset, others find nobody."""
    listener.close()


def _ended_after(listener: socket.socket) -> None:
    """Ends as a process that is killed when it has a request."""
    with listener, listener.accept()[0] as connection:
        connection.recv(2**17)


@pytest.mark.parametrize("end", [_ended_before, _ended_after])
def test_a_program_has_a_process_of_its_own_where_nobody_forks(end, folder: Path) -> None:
    forks._write_interpreter(folder)
    listener = _listen(folder)
    thread = threading.Thread(target=end, args=(listener,))
    thread.start()
    run = subprocess.run(
        ["./python", "-c", "import sys; print(sys.executable)"],
        env={"PYTHONHASHSEED": "0"},  # with other variables it may not ask for a fork
        capture_output=True,
        text=True,
        timeout=600,
    )
    thread.join()
    assert (run.returncode, run.stdout, run.stderr) == (0, f"{sys.executable}\n", "")


@pytest.mark.parametrize("end", [_ended_before, _ended_after])
def test_a_worker_whose_fork_fails_leaves_no_pipes(end, folder: Path) -> None:
    listener = _listen(folder)
    thread = threading.Thread(target=end, args=(listener,))
    thread.start()
    with pytest.raises(NONE_LISTENS):
        forks.PipedFork(address(str(folder), "0"), ["-c", "pass"], folder, {})
    thread.join()


def _listen(folder: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address(str(folder), "0"))
    listener.listen()
    return listener
