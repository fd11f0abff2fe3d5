"""Workers on Ray: placed, restarted, and lost with their node. One cluster of two nodes for all."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.launches import JOIN, of
from tests.guards import ROOT
from tests.scripts import run_python

pytestmark = pytest.mark.skipif(
    not os.environ.get("REPLICAX_TEST_EVERYTHING"),
    reason="takes a minute",
)

# Joins, so that the control plane takes part; the second worker dies in the first generation.
_KILLED = (
    JOIN
    + """
import time
print("at", os.environ["EPOCHS"], os.environ["JAX_NUM_CPU_DEVICES"], flush=True)
said = os.path.join(os.path.dirname(__file__), "said")
if rank == 0:
    open(said, "w").close()
if rank == 1 and generation == 0:
    while not os.path.exists(said):  # the other worker has said it, too
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
step()
"""
)

# In the first generation all wait to be ended.
_LOST = """
print("started", size)
if generation == 0:
    open(os.path.join(os.path.dirname(__file__), f"started-{rank}"), "w").close()
    signal.pause()
"""

_PROGRAM = """
import json, os, sys, threading, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from ray.cluster_utils import Cluster
from tests.cli.launches import environment, script
import tests.cli.test_ray_node as this
import argparse, ray
import replicax as rx
from replicax._src.cli._arguments import add_launch_options, launch_options
from replicax._src.cli._launch import Launch
from replicax._src.cli._log import Log
from replicax._src.cli._ray_node import RayNode

folder = Path(sys.argv[1])
quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500}  # finds lost nodes
head = {"num_cpus": 1, "include_dashboard": False, "_system_config": quick}
cluster = Cluster(initialize_head=True, head_node_args=head)
second = cluster.add_node(num_cpus=1)
found = {}

def launch(name, text, *options):
    (folder / name).mkdir()
    parser = argparse.ArgumentParser()
    add_launch_options(parser)
    path = script(folder / name, text)
    parsed = launch_options(parser, ["--ray", cluster.address, *options, path])
    with open(folder / name / "log", "wb") as file:
        told = {**environment(), "EPOCHS": "3"}
        status = Launch(parsed, Log(file.fileno()), told, new_node=RayNode).run()
    found[name] = [status, (folder / name / "log").read_text().splitlines()]

launch("killed", this._KILLED, "--workers=2", "--max-restarts=1", "--devices-per-worker=4")
launch("too many", "", "--workers=3", "--join-timeout=1")

def lose_a_node():
    deadline = time.monotonic() + 60
    while len(list((folder / "lost").glob("started-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    cluster.remove_node(second, allow_graceful=False)

thread = threading.Thread(target=lose_a_node)
thread.start()
launch("lost", this._LOST, "--workers=1:2", "--max-restarts=1")
thread.join()

def fails(number):
    raise LookupError(f"no {number}")

returned = rx.launch(lambda a, b: {"sum": a + b, "here": os.getpid()}, 2, 3, workers=1, ray=True)
found["returned"] = [returned["sum"], returned["here"] != os.getpid()]
try:
    rx.launch(fails, 7, workers=1, ray=cluster.address)
except LookupError as error:
    found["raised"] = [str(error), *error.__notes__]
try:
    rx.launch(fails, 7, workers=1, ray="127.0.0.1:1")
except RuntimeError as error:
    found["elsewhere"] = str(error)
print("found", json.dumps(found))
ray.shutdown()
cluster.shutdown()
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came out of several launches in one process, on one cluster."""
    folder: Path = tmp_path_factory.mktemp("ray")
    output = run_python(["-c", _PROGRAM, str(folder), str(ROOT)], folder, 280)
    line = next(line for line in output.splitlines() if line.startswith("found "))
    return json.loads(line.removeprefix("found "))


def test_workers_are_spread_and_start_again(found: dict[str, Any]):
    status, lines = found["killed"]
    assert status == 0
    assert of(lines, 0).count("at 3 4") == 2 and of(lines, 1).count("at 3 4") == 2
    assert of(lines, None)[-2:] == [
        "worker 1 was killed by SIGKILL; restart 1 of 1",
        "generation 1 starts with 2 workers",
    ]


def test_a_lost_node_is_a_lost_worker(found: dict[str, Any]):
    status, lines = found["lost"]
    assert status == 0
    said = of(lines, None)
    assert any("is lost: " in line and line.endswith("restart 1 of 1") for line in said)
    assert said[-1] == "generation 1 starts with 1 worker"
    assert sorted(line for line in lines if "started" in line) == [
        *("[worker 0] started 1", "[worker 0] started 2", "[worker 1] started 2")
    ]


def test_more_workers_than_there_is_room_for(found: dict[str, Any]):
    status, lines = found["too many"]
    assert status == 1
    assert "of 3 workers have a place there, with 1 CPU each, and its nodes have 2 CPU" in lines[-1]
    assert "--join-timeout" in lines[-1]


def test_functions(found: dict[str, Any]):
    assert found["returned"] == [5, True]
    assert found["raised"][0] == "no 7" and "in fails" in found["raised"][-1]
    assert "is connected to the Ray cluster" in found["elsewhere"]
