"""`join` and `Membership` with real processes: meeting, ending, and what the exit status is then.

JAX is replaced by a stand-in here (see `processes.LIGHT`); `test_membership_faults.py` has it.
"""

import signal
import threading

import pytest

from replicax._src.cluster import current_membership
from replicax._src.cluster.control import ControlServer, Event
from tests.cluster.processes import LIGHT, TOUCH, Job, config_of
from tests.processes import free_addresses

START = LIGHT + TOUCH + "m = join()\n"


def run(program: str, workers: int = 2, **options) -> tuple[list[int | None], list[str]]:
    """Exit statuses and outputs."""
    with Job(START + program, workers, **options) as job:
        return job.wait(), [job.output(rank) for rank in range(workers)]


def test_members_know_each_other():
    statuses, outputs = run(
        "print(m.worker, m.workers, m.names, m.addresses[m.worker] in os.environ['TF_CONFIG'], "
        "repr(m.job), m.generation, join() is m, current_membership() is m)",
        workers=3,
    )
    assert statuses == [0, 0, 0], outputs
    for rank, output in enumerate(outputs):
        names = ("worker 0", "worker 1", "worker 2")
        assert output == f"{rank} 3 {names} True '' 0 True True\n"


def test_stand_in_spares_the_import_of_jax():
    statuses, outputs = run("print({'jax', 'numpy'} & sys.modules.keys())", 1, configs=[{}])
    assert (statuses, outputs) == ([0], ["set()\n"])


def test_this_process_is_no_member():
    assert current_membership() is None


def test_chief_comes_first():
    addresses = free_addresses(3)
    cluster = {"chief": addresses[:1], "worker": addresses[1:]}
    tasks = [("chief", 0), ("worker", 0), ("worker", 1)]
    configs = [{"cluster": cluster, "task": {"type": t, "index": i}} for t, i in tasks]
    statuses, outputs = run(
        "print(m.worker, m.names[m.worker], m.exchange('t', m.worker))", 3, configs=configs
    )
    assert statuses == [0, 0, 0], outputs
    assert outputs[0] == "0 chief [0, 1, 2]\n" and outputs[2] == "2 worker 1 [0, 1, 2]\n"


@pytest.mark.parametrize("config", [{}, {"cluster": {}}, "evaluator"])
def test_no_cluster_no_membership(config: object):
    if config == "evaluator":
        config = config_of(free_addresses(2), 0)
        config["task"] = {"type": "evaluator", "index": 0}
    statuses, outputs = run("print(m)", 1, configs=[config])
    assert (statuses, outputs) == ([0], ["None\n"])


def test_cluster_of_one_needs_nobody_and_no_port():
    with Job(START + "print(m.workers, m.exchange('t', 5)); sys.exit(7)", 1) as job:
        assert job.wait() == [7], job.outputs()
        assert job.output(0) == "1 [5]\n"


def test_second_cluster_in_one_process_is_refused():
    other = free_addresses(2)
    statuses, outputs = run(
        f"""
import json
os.environ["TF_CONFIG"] = json.dumps(
    {{"cluster": {{"worker": {other!r}}}, "task": {{"type": "worker", "index": m.worker}}}})
try:
    join()
except ValueError as error:
    print(type(error).__name__, error)
"""
    )
    assert statuses == [0, 0], outputs
    for output in outputs:
        assert "ClusterConfigError This process is worker" in output
        assert "one cluster: use the same resolver" in output


def test_all_end_with_their_own_status():
    """A worker that finished waits for the others, before functions registered earlier run."""
    statuses, outputs = run(
        """
import atexit
if m.worker == 0:
    m.subscribe("go", lambda payload, worker: touch("late"))
    while not os.path.exists("late"):
        time.sleep(0.01)
atexit.register(print, "bye")
if m.worker == 1:
    m.publish("go", None)
sys.exit(42)
"""
    )
    assert statuses == [42, 42], outputs
    assert outputs == ["bye\n", "bye\n"]


@pytest.mark.parametrize("victim", [0, 2])
def test_exception_ends_all_with_one_traceback(victim: int):
    statuses, outputs = run(
        f"""
import atexit
m.exchange("start", 0)
atexit.register(print, "bye")
if m.worker == {victim}:
    raise ValueError("bad row 17")
m.exchange("never", 0)
""",
        workers=3,
    )
    assert statuses == [1, 1, 1], outputs
    for rank, output in enumerate(outputs):
        if rank == victim:
            assert output.count("Traceback") == 1 and "ValueError: bad row 17\nbye\n" in output
            assert "leaves" not in output
        else:
            assert output.count("\n") == 1, output
            assert output.startswith(f"replicax: worker {victim} (127.0.0.1:")
            assert f"failed: ValueError: bad row 17; worker {rank} leaves." in output


def test_users_own_excepthook_is_kept():
    program = "sys.excepthook = lambda *error: print('mine:', error[1])\n"
    program += START + "if m.worker: raise KeyError('x')\nm.exchange('never', 0)"
    with Job(program.replace("sys.exc", "import sys; sys.exc", 1), 2) as job:
        assert job.wait() == [1, 1], job.outputs()
        assert job.output(1) == "mine: 'x'\n"
        assert "failed: KeyError: 'x'" in job.output(0)


@pytest.mark.parametrize(
    ("end", "status", "words"),
    [
        ("sys.exit(3)", 3, r"failed: sys.exit(3)"),
        ("sys.exit('no more data')", 1, r"failed: sys.exit(1)"),
        ("os._exit(5)", 5, "was killed or crashed: its connection closed"),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9, "was killed or crashed"),
        ("os.kill(os.getpid(), signal.SIGTERM)", -15, "was killed or crashed"),
        ("raise KeyboardInterrupt", -2, "failed: KeyboardInterrupt"),
    ],
)
def test_status_of_a_failure_is_kept(end: str, status: int, words: str):
    statuses, outputs = run(
        f"""
signal.signal(signal.SIGINT, signal.default_int_handler)
m.exchange("start", 0)
if m.worker == 1:
    {end}
m.exchange("never", 0)
"""
    )
    assert statuses == [1, status], outputs
    assert words in outputs[0] and outputs[0].count("\n") == 1, outputs


def test_caught_exit_is_no_end():
    statuses, outputs = run(
        """
try:
    sys.exit(3)
except SystemExit as error:
    print("caught", error.code, repr(error))
assert m.exchange("still here", 1) == [1, 1]
"""
    )
    assert statuses == [0, 0], outputs
    assert outputs == ["caught 3 Exit(3)\n"] * 2


def test_program_that_hangs_after_its_failure_is_ended():
    """A thread that nobody ends would keep the interpreter waiting forever."""
    statuses, outputs = run(
        """
import threading
m.exchange("start", 0)
if m.worker == 1:
    threading.Thread(target=time.sleep, args=(100,)).start()
    raise ValueError("x")
m.exchange("never", 0)
"""
    )
    assert statuses == [1, 1], outputs


def test_early_end_is_told_to_who_goes_on():
    statuses, outputs = run(
        """
for step in range(10 if m.worker else 5):
    m.before_call()
    m.exchange("step", 0) if step < 5 else time.sleep(0.01)
time.sleep(30 * m.worker)
"""
    )
    assert statuses == [1, 1], outputs
    for output in outputs:
        assert "finished after 5 calls, but worker 1 (127.0.0.1:" in output, outputs
        assert "the same number of steps" in output


def test_call_that_nobody_else_can_take_part_in_raises():
    statuses, outputs = run(
        """
m.exchange("start", 0)
if m.worker == 1:
    while m._client.last_call:  # until the end of the other is known
        time.sleep(0.01)
    try:
        m.before_call()
    except RuntimeError as error:
        print(type(error).__name__, error)
        sys.stdout.flush()
    time.sleep(30)
"""
    )
    assert statuses == [1, 1], outputs
    assert "WorkerLostError worker 0 (127.0.0.1:" in outputs[1]
    assert "finished after 0 calls; worker 1 would be in call 1" in outputs[1]


def test_forked_children_are_no_workers():
    """They hold no connection open, and their end is nobody's business."""
    statuses, outputs = run(
        """
m.exchange("start", 0)
child = os.fork()
if child == 0:
    assert current_membership() is None
    time.sleep(2 if m.worker else 0)
    os._exit(9)
if m.worker == 1:
    touch("forked")
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(child, 0)
m.exchange("never", 0)
"""
    )
    assert statuses == [1, -9], outputs
    assert "worker 1" in outputs[0] and "killed or crashed" in outputs[0]


def test_killed_first_worker_is_named_by_the_others():
    with Job(START + "touch(f'here{m.worker}'); m.exchange('never', m.worker) if m.worker else "
             "time.sleep(60)", 3) as job:  # fmt: skip
        for rank in range(3):
            job.wait_for_file(f"here{rank}")
        job.signal(0, signal.SIGKILL)
        assert job.wait() == [-9, 1, 1], job.outputs()
        for rank in (1, 2):
            assert job.output(rank).startswith("replicax: worker 0 (127.0.0.1:"), job.outputs()
            assert "was killed or crashed" in job.output(rank)


def test_stopped_first_worker_is_noticed_by_the_others():
    program = START + "touch(f'here{m.worker}'); time.sleep(60)"
    with Job(program, 2, variables={"REPLICAX_STALL_TIMEOUT": "2"}) as job:
        for rank in range(2):
            job.wait_for_file(f"here{rank}")
        job.signal(0, signal.SIGSTOP)
        assert job.wait(but=[0])[1] == 1, job.outputs()
        assert "worker 0" in job.output(1) and "has been silent for" in job.output(1)


def test_stuck_worker_is_reported_with_its_stack():
    with Job(
        START + "def stuck_here(): time.sleep(60)\n"
        "stuck_here() if m.worker else m.exchange('never', 0)",
        2,
        variables={"REPLICAX_STALL_TIMEOUT": "1.5"},
    ) as job:
        assert job.wait() == [1, 1], job.outputs()
        assert "No progress for 1.5 s. What each worker was doing:" in job.output(0)
        assert "in stuck_here" in job.output(0)
        assert "in exchange" in job.output(0)


def test_port_of_the_coordinator_can_be_chosen():
    port = free_addresses(1)[0].rpartition(":")[2]
    program = "print(runtime.start.__self__.listener.getsockname()[1]) if m.worker == 0 else None"
    variables: dict[str, object] = {"REPLICAX_COORDINATOR_PORT": port}
    statuses, outputs = run(program, variables=variables)
    assert statuses == [0, 0] and outputs[0].strip() == port, outputs


class Launched:
    """A job under a control server of this process, as under a launcher."""

    def __init__(self, program: str, workers: int) -> None:
        self.events: list[Event] = []
        self.over = threading.Event()
        self.server = ControlServer(workers, key="k", generation=2, on_event=self._note)
        self.server.start()
        self.job = Job(START + program, workers, variables=dict(self.server.environment()))

    def _note(self, event: Event) -> None:
        self.events.append(event)
        if event.kind in ("down", "done"):
            self.over.set()

    def __enter__(self) -> "Launched":
        return self

    def __exit__(self, *_: object) -> None:
        self.job.__exit__()
        self.server.stop()

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events if event.kind != "status"]


def test_launched_job_runs_to_its_end():
    with Launched("assert (m.job, m.generation) == ('k', 2); m.exchange('t', 1)", 2) as launched:
        assert launched.job.wait() == [0, 0], launched.job.outputs()
        assert launched.over.wait(100)
        assert launched.kinds()[-3:] == ["finished", "finished", "done"]


def test_launcher_gets_the_traceback_of_a_failure():
    program = "m.exchange('t', 1)\nif m.worker == 0: raise ValueError('bad')\nm.exchange('u', 1)"
    with Launched(program, 2) as launched:
        assert launched.job.wait() == [1, 1], launched.job.outputs()
        failed = next(event for event in launched.events if event.kind == "failed")
        assert (failed.worker, failed.text) == (0, "ValueError: bad")
        assert failed.details["traceback"] in launched.job.output(0)


def test_workers_leave_when_the_launcher_is_gone():
    with Launched("touch(f'here{m.worker}'); time.sleep(60)", 2) as launched:
        for rank in range(2):
            launched.job.wait_for_file(f"here{rank}")
        launched.server.stop()
        assert launched.job.wait() == [1, 1]
        for rank in range(2):
            assert "The launcher at 127.0.0.1:" in launched.job.output(rank)
            assert "is gone: its connection closed" in launched.job.output(rank)
