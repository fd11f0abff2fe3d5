"""The harness for worker processes does what tests of faults rely on."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes
from tests.processes import (
    command,
    free_addresses,
    result,
    run_workers,
    say,
    tf_config,
    workers,
)


def _report() -> None:
    config = json.loads(os.environ["TF_CONFIG"])
    result("index", config["task"]["index"])
    result("workers", len(config["cluster"]["worker"]))
    result("devices", os.environ["JAX_NUM_CPU_DEVICES"])
    say(f"I am {config['task']['index']}")
    print("beside", file=sys.stderr)


def _wait() -> None:
    for step in range(3):
        result("step", step)
        say(f"step {step}")
    signal.pause()


def _raise() -> None:
    raise ValueError("on purpose")


def _have_a_child() -> None:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    say("ready")


def test_results_output_and_status_of_each_worker() -> None:
    ended = run_workers(_report, 2, devices=3)
    assert [worker.results for worker in ended] == [
        {"index": rank, "workers": 2, "devices": "3"} for rank in range(2)
    ]
    assert [worker.stdout for worker in ended] == ["I am 0\n", "I am 1\n"]
    assert [worker.stderr for worker in ended] == ["beside\n", "beside\n"]
    assert [worker.status for worker in ended] == [0, 0]


def test_a_file_and_its_arguments(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys\nprint(__name__, sys.argv[1:])\n")
    (worker,) = run_workers(program, 1, arguments=["a", "b"])
    assert worker.stdout == "__main__ ['a', 'b']\n"


def test_wait_for_a_line_then_kill_one_and_stop_another() -> None:
    with workers(_wait, 3) as job:
        for rank in range(3):
            assert job.wait_for(rank, "step 2") == "step 2"
        job.stop(2)
        job.kill(1)
        job.expect_exit(1, status=-signal.SIGKILL)
        assert job[0].status is None
        assert job[1].history("step") == [0, 1, 2]
    assert [worker.status for worker in job] == [-signal.SIGKILL] * 3


def test_a_worker_that_comes_late() -> None:
    with workers(_report, 2, absent=[1]) as job:
        job.expect_exit(0, status=0)
        assert job[1].pid is None
        job.start(1)
        job.expect_exit([0, 1], status=0)


def test_an_unexpected_status_shows_the_output() -> None:
    with workers(_raise, 1) as job, pytest.raises(AssertionError) as caught:
        job.expect_exit(status=0)
    assert "worker 0 (left with status 1" in str(caught.value)
    assert "ValueError: on purpose" in str(caught.value)


def test_a_line_that_never_comes_is_not_waited_for_after_the_end() -> None:
    with workers(_report, 1) as job:
        with pytest.raises(AssertionError, match="has ended without printing 'step 9'"):
            job.wait_for(0, "step 9")


def test_a_time_out_shows_where_the_worker_stands() -> None:
    with workers(_wait, 1) as job:
        job.wait_for(0, "step 2")
        with pytest.raises(AssertionError, match=r"in vain for worker 0 to print 'step 9'"):
            job.wait_for(0, "step 9", timeout=0.2)
        assert "in _wait" in job[0].stderr


def test_nothing_is_left_behind_not_even_grandchildren() -> None:
    with workers(_have_a_child, 1) as job:
        job.expect_exit(status=0)
        assert len(job.leftovers()) == 1
    job.expect_nothing_left()


def test_workers_die_with_the_process_that_started_them(tmp_path: Path) -> None:
    program = (
        "import os, tests.processes as p\n"
        "job = p.workers('tests.test_processes:_wait', 1).__enter__()\n"
        "job.wait_for(0, 'step 2')\n"
        "print(job[0].pid, flush=True)\n"
        "os._exit(0)\n"
    )
    with command([sys.executable, "-c", program], environment={"TMPDIR": str(tmp_path)}) as job:
        job.expect_exit(status=0)
        job.expect_nothing_left()


def test_a_free_address_is_given_once_and_can_be_listened_at() -> None:
    given = free_addresses(3)
    assert len(set(given)) == 3
    for address in given:
        host, _, port = address.partition(":")
        assert not processes._is_free(int(port))  # as another process would see it
        with socket.create_server((host, int(port))) as server:
            socket.create_connection(server.getsockname(), 60).close()


def test_the_first_worker_may_be_the_chief() -> None:
    tasks = [json.loads(tf_config(["a:1", "b:2", "c:3"], rank, chief=True)) for rank in range(3)]
    assert tasks[0]["cluster"] == {"chief": ["a:1"], "worker": ["b:2", "c:3"]}
    assert [task["task"] for task in tasks] == [
        {"type": "chief", "index": 0},
        {"type": "worker", "index": 0},
        {"type": "worker", "index": 1},
    ]
