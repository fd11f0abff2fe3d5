"""`RayWorker`, as Ray calls it, but without Ray: it starts, reports and ends one process.

Also what a worker asks of Ray.
"""

import signal
from pathlib import Path
from types import ModuleType

import pytest

from replicax._src.cli import _ray_node
from replicax._src.cli._options import LaunchOptions, Range, Usage
from replicax._src.cli._ray_worker import RayWorker


@pytest.fixture(autouse=True)
def as_ray_sets_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RAY_CLIENT_MODE", "0")  # which it does when it is imported


def test_one_process_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/of/the/node")
    (tmp_path / "train.py").write_text(
        "import os, signal, sys\n"
        "open(os.environ['REPLICAX_OUTCOME'], 'wb').write(b'done')\n"
        "print(os.environ['HOME'], os.environ['EPOCHS'], os.environ['RANK'], flush=True)\n"
        "sys.exit(3) if os.environ['RANK'] == '0' else signal.pause()\n"
    )
    options = LaunchOptions(("train.py",), payload=b"what to do")
    worker = RayWorker(options, {"HOME": "/of/the/launcher", "EPOCHS": "3"}, str(tmp_path))
    try:
        assert worker.arrive().rpartition(":")[2].isdigit()
        worker.start(0, {"RANK": "0"})
        lines: list[bytes] = []
        while (report := worker.poll(5.0)).status is None:
            lines += report.lines
        assert [*lines, *report.lines] == [b"/of/the/node 3 0"]
        assert (report.status, report.outcome) == (3, b"done")
        first = worker.renew()[1]
        worker.start(1, {"RANK": "1"})
        assert worker.poll(60.0).lines == [b"/of/the/node 3 1"]
        assert worker.poll(0.0).status is None
        worker.signal(signal.SIGTERM)
        assert worker.poll(60.0).status == -signal.SIGTERM
        report, second = worker.renew()
        assert report.outcome == b"done" and first != second
    finally:
        worker.close()


def test_a_script_that_a_node_has_not(tmp_path: Path):
    worker = RayWorker(LaunchOptions(("train.py",)), {}, str(tmp_path / "elsewhere"))
    with pytest.raises(FileNotFoundError, match="has no file 'train.py' in .*--working-dir"):
        worker.start(0, {})
    worker.close()


@pytest.mark.parametrize(
    ("gpus", "each", "platforms", "asked"),
    [
        (0, None, "", ({"CPU": 1}, {})),
        (0, 2, "cpu", ({"CPU": 1}, {"JAX_NUM_CPU_DEVICES": "2"})),
        (8, None, "", ({"CPU": 1, "GPU": 4}, {})),
        (8, 1, "cuda,cpu", ({"CPU": 1, "GPU": 1}, {})),
        (8, None, "cpu", ({"CPU": 1}, {})),
        (0, None, "cuda", "JAX_PLATFORMS=cuda asks for GPUs, and no node of Ray has one"),
        (1, None, "", "2 workers with 1 GPU.* need 2, and Ray has 1. Start fewer workers"),
        (3, 2, "cuda", "2 workers with 2 GPU.* need 4, and Ray has 3"),
    ],
)
def test_what_each_worker_asks_for(gpus: int, each: int | None, platforms: str, asked: object):
    ray = ModuleType("ray")
    vars(ray)["cluster_resources"] = lambda: {"CPU": 4.0, "GPU": float(gpus)}
    options = LaunchOptions(("train.py",), workers=Range(2, 2), devices_per_worker=each)
    environment = {"JAX_PLATFORMS": platforms}
    if isinstance(asked, str):
        with pytest.raises(Usage, match=asked):
            _ray_node.share(ray, options, environment)
    else:
        assert _ray_node.share(ray, options, environment) == asked
