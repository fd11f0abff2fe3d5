"""Faults amid collectives: every survivor is gone soon, and says why.

Some are real ones (JAX over gloo), with three workers; `tests/multi_worker` has more of these, amid
training. How soon that is usually is in the comments.
"""

import re
import signal

import pytest

from tests.cluster.processes import HEAVY, LIGHT, TOUCH, Job

# What a collective is for the control plane.
STAND_IN = """
def all_reduce(m):
    def call():
        with m.phase("running step"):
            m.before_call()
            return sum(m.exchange("call", 1))
    call()
    return call
"""
# All run steps until the victim does something at step 10; `fault` is filled in.
STEPS = (
    TOUCH
    + """
class Speechless(Exception):
    def __str__(self):
        raise KeyError("no text")
m = join()
call = all_reduce(m)
for step in range(200):
    m.progress.step = step
    assert call() == m.workers
    if step == 10 and m.worker == VICTIM:
        touch("fault")
        FAULT
    time.sleep(0.01)
print("done")
"""
)


def job_with(
    fault: str, workers: int, victim: int, base: str = LIGHT + STAND_IN, **variables: object
) -> Job:
    program = base + STEPS.replace("VICTIM", str(victim)).replace("FAULT", fault)
    return Job(program, workers, variables=variables)


def check_clean(output: str) -> None:
    """No abort of jaxlib, no second traceback."""
    assert "Terminating process" not in output and "coordination_service" not in output, output
    assert output.count("Traceback") <= 1, output


@pytest.mark.parametrize(
    ("base", "fault", "victim", "status", "words"),
    [
        # Usually 0.05 to 0.2 s.
        (HEAVY, "os.kill(os.getpid(), signal.SIGKILL)", 0, -9, "was killed or crashed"),
        (HEAVY, "raise ValueError('bad row 17')", 1, 1, "failed: ValueError: bad row 17"),
        (LIGHT, "os.kill(os.getpid(), signal.SIGKILL)", 2, -9, "was killed or crashed"),
        (LIGHT, "os.kill(os.getpid(), signal.SIGTERM)", 1, -15, "was killed or crashed"),
        (LIGHT, "raise ValueError('bad row 17')", 0, 1, "failed: ValueError: bad row 17"),
        (LIGHT, "sys.exit(3)", 1, 3, r"failed: sys.exit\(3\)"),
        (LIGHT, "raise Speechless", 1, 1, r"failed: Speechless: <exception str\(\) failed>"),
        # Usually 0.3 s.
        (LIGHT, "break", 2, 1, "finished after 12 calls"),
    ],
    ids=lambda value: {HEAVY: "jax", LIGHT: "light"}.get(value),
)
def test_fault_of_one_ends_all(base: str, fault: str, victim: int, status: int, words: str):
    workers = 3
    base += STAND_IN if base is LIGHT else ""
    with job_with(fault, workers, victim, base) as job:
        job.wait_for_file("fault")
        statuses = job.wait()
        assert statuses == [status if rank == victim else 1 for rank in range(workers)], (
            job.outputs()
        )
        for rank in range(workers):
            check_clean(job.output(rank))
            if rank != victim:
                pattern = rf"replicax: worker {victim} \(127.0.0.1:\d+\) {words}.*; worker {rank} "
                assert re.search(pattern, job.output(rank)), job.outputs()
                assert "Traceback" not in job.output(rank), job.outputs()
        if "bad row" in fault:
            assert "ValueError: bad row 17" in job.output(victim)


@pytest.mark.parametrize("victim", [0, 1])
def test_stopped_worker_is_found_by_the_watchdog(victim: int):
    with job_with("time.sleep(60)", 2, victim, REPLICAX_STALL_TIMEOUT="3") as job:
        job.wait_for_file("fault")
        job.signal(victim, signal.SIGSTOP)
        other = 1 - victim
        assert job.wait(but=[victim])[other] == 1, job.outputs()
        words = "has been silent" if victim == 0 else r"does not answer \(its process is stopped\)"
        pattern = rf"worker {victim} .*{words}.*; worker {other} leaves"
        assert re.search(pattern, job.output(other)), job.outputs()
        check_clean(job.output(other))


def test_stuck_worker_is_found_by_the_watchdog():
    with job_with("(lambda: time.sleep(60))()", 2, 1, REPLICAX_STALL_TIMEOUT="2") as job:
        assert job.wait() == [1, 1], job.outputs()
        report = job.output(0)
        assert "No progress for 2 s. What each worker was doing:" in report
        assert "in <lambda>" in report and "step 10, call 12, idle" in report
        assert re.search("worker 1 .*no progress for 2 s.*the others are at call 13", report)


def test_slow_last_things_of_the_first_worker_are_waited_for():
    """And proxies are not asked for the way to other workers."""
    proxies = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    with Job(
        HEAVY + "m = join(); all_reduce(m)()\n"
        "if m.worker == 0: time.sleep(1)\n"
        "print('done'); sys.exit(0 if m.worker else 42)",
        2,
        variables={**proxies},
    ) as job:
        assert job.wait() == [42, 0], job.outputs()
        assert "proxy" not in job.output(0) + job.output(1)
        for rank in range(2):
            assert "done" in job.output(rank)
            check_clean(job.output(rank))


def test_a_thread_that_exits_ends_nothing_and_says_nothing():
    end_a_thread = (
        "import threading; each = threading.Thread(target=lambda: sys.exit(7)); each.start(); "
        "each.join()"
    )
    with job_with(end_a_thread, 2, 1) as job:
        assert job.wait() == [0, 0], job.outputs()
        assert "Traceback" not in job.output(1), job.outputs()
        assert "done" in job.output(1)


def test_a_failure_is_told_where_the_server_is_slow_to_read_it():
    base = """
from replicax._src.cluster.control import _server
failed = _server._HANDLERS["failed"]
def slowly(*args):
    time.sleep(1)
    failed(*args)
_server._HANDLERS["failed"] = slowly
"""
    with job_with("raise ValueError('bad row 17')", 2, 0, LIGHT + STAND_IN + base) as job:
        assert job.wait() == [1, 1], job.outputs()
        assert "failed: ValueError: bad row 17; worker 1 leaves" in job.output(1), job.outputs()
