"""Strangers at the port of worker 0, with real processes: the job runs as it does without them."""

import contextlib
import os
import socket
import sys
import time
from pathlib import Path

import pytest

from replicax._src.cluster.control._framing import GREETING
from replicax._src.cluster.control._sockets import split
from tests.cluster.processes import LIGHT, TOUCH, Job

WAIT = 60.0
STRANGERS = 300
# Worker 0 may open 256 files. Worker 1 comes when the strangers are there.
PROGRAM = (
    LIGHT
    + TOUCH
    + """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
folder = os.environ["JOB_FOLDER"]
while '"index": 1' in os.environ["TF_CONFIG"] and not os.path.exists(folder + "/strangers"):
    time.sleep(0.01)
m = join()
touch(f"running{m.worker}")
while not all(m.exchange("may end", os.path.exists(folder + "/end"))):
    time.sleep(0.01)
"""
)

SAID = {
    "nothing": b"",
    "a greeting": GREETING + b"\n",
    "a long line": b"x" * 100_000,
    "a greeting and a long line": GREETING + b"\n" + b"x" * 200_000,
    "what is no message": GREETING + b"\n" + b"[" * 10_000 + b"\n",
    "another protocol": b"GET / HTTP/1.1\r\n\r\n",
}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("said", SAID)
def test_strangers_do_not_use_up_worker_0(said: str):
    with Job(PROGRAM, 2, variables={"REPLICAX_JOB": "a key"}) as job, contextlib.ExitStack() as all:
        target = split(job.addresses[0])
        wait_until_it_listens(target)
        for _ in range(STRANGERS):
            stranger = all.enter_context(socket.create_connection(target, WAIT))
            with contextlib.suppress(ConnectionError):
                stranger.sendall(SAID[said])
        files = len(os.listdir(f"/proc/{job.processes[0].pid}/fd"))
        assert files < 2 + 32 + 30, f"{files} open files of worker 0"
        touch(job, "strangers")
        job.wait_for_file("running1")
        touch(job, "end")
        assert job.wait() == [0, 0], job.outputs()


def wait_until_it_listens(target: tuple[str, int]) -> None:
    end = time.monotonic() + WAIT
    while True:
        try:
            socket.create_connection(target, WAIT).close()
            return
        except ConnectionRefusedError:
            assert time.monotonic() < end
            time.sleep(0.02)


def touch(job: Job, name: str) -> None:
    (Path(job.folder.name) / name).touch()
