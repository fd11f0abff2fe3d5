"""Wrong clusters, with real processes: each mistake is a Python exception in every worker that can
know of it, which names the worker and the remedy, and comes before JAX is touched.
"""

import contextlib
import dataclasses
import http.server
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from replicax._src.cluster import _runtime
from replicax._src.cluster.control import ControlServer
from replicax._src.cluster.control._sockets import split
from tests.cluster.processes import HEAVY, LIGHT, Job, config_of
from tests.processes import free_addresses

# Joins when all processes are there, since some of them wait for each other for seconds only. A
# worker that knows of no mistake waits for longer than the test does.
JOIN = """
open(f"here{os.getpid()}", "w").close()
while sum(name.startswith("here") for name in os.listdir()) < int(os.environ["JOB_SIZE"]):
    time.sleep(0.01)
join(device_count=int(os.environ.get("FAKE_DEVICES", "1")))
time.sleep(20)
"""


@dataclasses.dataclass
class Mistake:
    """One kind of mistake.

    Attributes:
      configs: From the addresses of the cluster to TF_CONFIG of each process.
      errors: For each process, the class of the exception and a pattern of its text; None: the
        process is not looked at.
      workers: How many addresses there are.
      variables: Environment; a list has one value per process.
    """

    configs: Callable[[list[str]], list[object]]
    errors: list[tuple[str, str] | None]
    workers: int = 2
    variables: dict[str, object] = dataclasses.field(default_factory=dict)


def one(edit: Callable[[list[str], dict], object]) -> Callable[[list[str]], list[object]]:
    """A single process, whose TF_CONFIG is edited in place or replaced."""

    def configs(addresses: list[str]) -> list[object]:
        config = config_of(addresses, 0)
        edited = edit(addresses, config)
        return [config if edited is None else edited]

    return configs


def processes(*indices: int) -> Callable[[list[str]], list[object]]:
    """Processes with these indices in one cluster."""
    return lambda addresses: [config_of(addresses, index) for index in indices]


def described(*pick: Callable[[list[str]], list[str]]) -> Callable[[list[str]], list[object]]:
    """One process after the other, each with its own idea of the addresses."""
    return lambda addresses: [config_of(each(addresses), i) for i, each in enumerate(pick)]


def _set(path: str, value: object) -> Callable[[list[str], dict], None]:
    def edit(addresses: list[str], config: dict) -> None:
        *inner, last = path.split(".")
        for name in inner:
            config = config[name]
        config[last] = value(addresses) if callable(value) else value

    return edit


CONFIG, MISSING = "ClusterConfigError", "WorkersMissingError"

MISTAKES: dict[str, Mistake] = {
    # What one process can tell alone.
    "not JSON": Mistake(one(lambda a, c: json.dumps(c)[:-3]), [(CONFIG, "TF_CONFIG.*JSON")]),
    "no port": Mistake(
        one(_set("cluster.worker", lambda a: [a[0], "127.0.0.1"])),
        [(CONFIG, "worker 1.*has no port.*Write host:port")],
    ),
    "a scheme": Mistake(
        one(_set("cluster.worker", lambda a: [a[0], "grpc://" + a[1]])),
        [(CONFIG, "worker 1.*scheme.*Write it without")],
    ),
    "a port that is none": Mistake(
        one(_set("cluster.worker", lambda a: [a[0], "127.0.0.1:99999"])),
        [(CONFIG, "worker 1.*1 to 65535")],
    ),
    "an index outside": Mistake(
        one(_set("task.index", 7)), [(CONFIG, "worker 7.*has 2.*Correct the index")]
    ),
    "an index in words": Mistake(one(_set("task.index", "one")), [(CONFIG, "index.*'one'")]),
    "an unknown job": Mistake(one(_set("task.type", "boss")), [(CONFIG, "'boss'.*'worker'")]),
    "no task": Mistake(one(lambda a, c: {"cluster": c["cluster"]}), [(CONFIG, "(?i)task.*worker")]),
    "an address twice": Mistake(
        one(_set("cluster.worker", lambda a: [a[0], a[0]])), [(CONFIG, "worker 0.*worker 1")]
    ),
    "no list of workers": Mistake(one(_set("cluster.worker", 3)), [(CONFIG, "worker")]),
    "a waiting time in words": Mistake(
        processes(1),
        [(CONFIG, "REPLICAX_JOIN_TIMEOUT='soon'.*seconds")],
        variables={"REPLICAX_JOIN_TIMEOUT": "soon"},
    ),
    "no address of a launcher": Mistake(
        processes(1),
        [(CONFIG, "REPLICAX_CONTROL='here'.*host:port.*unset it")],
        variables={"REPLICAX_CONTROL": "here"},
    ),
    "an address of another machine": Mistake(
        lambda addresses: [config_of(["203.0.113.1:2222", addresses[1]], 0)],
        [(CONFIG, "worker 0 .*'203.0.113.1' is not an.*REPLICAX_LISTEN_HOST.*correct the address")],
    ),
    "an own name that is not known": Mistake(
        lambda addresses: [config_of(["no-such-host.invalid:2222", addresses[1]], 0)],
        [(CONFIG, "worker 0 .*'no-such-host.invalid' cannot be resolved.*REPLICAX_LISTEN_HOST")],
        variables={"REPLICAX_JOIN_TIMEOUT": "1"},
    ),
    "nobody comes to a forwarded address": Mistake(
        lambda addresses: [config_of(["203.0.113.1:" + addresses[0].split(":")[1], "h:1"], 0)],
        [(MISSING, "1 of 2 workers arrived in 1 s; missing: worker 1")],
        variables={"REPLICAX_JOIN_TIMEOUT": "1", "REPLICAX_LISTEN_HOST": "0.0.0.0"},
    ),
    # What shows when they meet.
    "the same index twice": Mistake(
        processes(0, 1, 1),
        [(CONFIG, r"worker 1 .*started twice, as pid \d+ on .* and as pid \d+.*own task index")]
        * 3,
        workers=3,
    ),
    "index 0 twice": Mistake(
        processes(0, 0),
        # Who comes first waits for worker 1 in vain; who comes second finds the port taken.
        [
            (
                f"{CONFIG}|{MISSING}",
                "(Another worker 0 listens there already.*own index|missing: worker 1)",
            )
        ]
        * 2,
        variables={"REPLICAX_JOIN_TIMEOUT": "3"},
    ),
    "different numbers of workers": Mistake(
        described(lambda a: a[:2], lambda a: a),
        [(CONFIG, "worker 0 has 2 workers.*worker 1 has 3 workers.*the same one")] * 2,
        workers=3,
    ),
    "different addresses": Mistake(
        described(lambda a: a[:2], lambda a: [a[0], a[2]]),
        [(CONFIG, "different descriptions.*worker 0 has.*worker 1 has.*the same one")] * 2,
        workers=3,
    ),
    "different order": Mistake(
        described(lambda a: a, lambda a: [a[0], a[2], a[1]], lambda a: a),
        [(CONFIG, "different descriptions.*worker 0 and worker 2 have.*worker 1 has")] * 3,
        workers=3,
    ),
    "different versions": Mistake(
        processes(0, 1),
        [(CONFIG, r"versions of jax: worker 0 has 0\.10\.2; worker 1 has 0\.9\.1\. Install")] * 2,
        variables={"FAKE_JAX": ["0.10.2", "0.9.1"]},
    ),
    "different numbers of devices": Mistake(
        processes(0, 1),
        [(CONFIG, "worker 0 has 1 device; worker 1 has 4 devices.*CUDA_VISIBLE_DEVICES")] * 2,
        variables={"FAKE_DEVICES": ["1", "4"]},
    ),
    "several mistakes at once": Mistake(
        processes(0, 1),
        [(CONFIG, "versions of jax.*numbers of devices")] * 2,
        variables={"FAKE_DEVICES": ["1", "4"], "FAKE_JAX": ["0.10.2", "0.9.1"]},
    ),
    "an older generation": Mistake(
        processes(0, 1),
        [
            (MISSING, "1 of 2 workers"),
            (CONFIG, r"pid \d+ .* is worker 1 of another job or of generation 3.*generation 4"),
        ],
        variables={"REPLICAX_GENERATION": ["4", "3"], "REPLICAX_JOIN_TIMEOUT": "2"},
    ),
    "a stranger's key": Mistake(
        processes(0, 1),
        [(MISSING, "1 of 2 workers"), (CONFIG, "another job.*port of its own")],
        variables={"REPLICAX_JOB": ["ours", "theirs"], "REPLICAX_JOIN_TIMEOUT": "2"},
    ),
    # Who does not come.
    "a worker is missing": Mistake(
        processes(0, 1, 3),
        [(MISSING, r"3 of 4 workers arrived in 2 s; missing: worker 2 \(127.0.0.1:\d+\)")] * 3,
        workers=4,
        variables={"REPLICAX_JOIN_TIMEOUT": "2"},
    ),
    "the first worker is missing": Mistake(
        processes(1),
        [(MISSING, r"worker 0 \(127.0.0.1:\d+\) was not there in 1 s: connection refused")],
        variables={"REPLICAX_JOIN_TIMEOUT": "1"},
    ),
    "a host that is not known": Mistake(
        lambda addresses: [config_of(["no-such-host.invalid:2222", addresses[1]], 1)],
        [(CONFIG, "worker 0.*'no-such-host.invalid' cannot be resolved.*address is right")],
        variables={"REPLICAX_JOIN_TIMEOUT": "1"},
    ),
    "the launcher is gone": Mistake(
        processes(1),
        [(MISSING, "launcher at 127.0.0.1:9.*is the launcher still running")],
        variables={"REPLICAX_CONTROL": "127.0.0.1:9", "REPLICAX_JOIN_TIMEOUT": "1"},
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake(name: str):
    mistake = MISTAKES[name]
    addresses = free_addresses(mistake.workers)
    configs = mistake.configs(addresses)
    with Job(LIGHT + JOIN, len(configs), configs, mistake.variables, addresses) as job:
        statuses = job.wait()
        for rank, error in enumerate(mistake.errors):
            if error is not None:
                check(job.output(rank), statuses[rank], *error)


def check(output: str, status: int | None, error: str, pattern: str) -> None:
    assert status == 1, output
    assert output.count("Traceback") == 1, output
    # Without the public package, which these programs do not import, errors have no public address.
    raised = re.search(rf"^(?:replicax\.\S+\.)?(?:{error}): (.*)", output, re.M | re.S)
    assert raised, output
    assert re.search(pattern, raised[1], re.S | re.I), output


def test_port_of_worker_0_is_in_use():
    with silent_listener() as address, silent_listener() as other:
        addresses = [address, other]
        variables: dict[str, object] = {"REPLICAX_JOIN_TIMEOUT": "20"}
        with Job(LIGHT + JOIN, 2, None, variables, addresses) as job:
            statuses = job.wait()
            port = address.rpartition(":")[2]
            pattern = rf"worker 0 .* cannot listen on its port {port}.*another port"
            check(job.output(0), statuses[0], CONFIG, pattern)
            pattern = f"something listens at {address} but has said nothing.*another port"
            check(job.output(1), statuses[1], CONFIG, pattern)


def test_another_program_answers_at_the_address_of_worker_0():
    with web_server() as address:
        addresses = [address, *free_addresses(1)]
        with Job(LIGHT + JOIN, 1, [config_of(addresses, 1)]) as job:
            pattern = f"something else listens at {address}: it said.*another port"
            check(job.output(0) if job.wait() else "", job.processes[0].poll(), CONFIG, pattern)


def test_a_worker_too_many_does_not_disturb_a_running_job():
    program = """
m = join()
m.exchange("both are there", 0)
open(os.path.join(os.environ["JOB_FOLDER"], "running"), "w").close()
m.subscribe("go", lambda payload, worker: print("told to go on") or event.set())
event.wait(600)
"""
    with Job(LIGHT + "import threading; event = threading.Event()" + program, 2) as job:
        job.wait_for_file("running")
        config = config_of(job.addresses, 1)
        with Job(LIGHT + JOIN, 1, [config], None, job.addresses) as third:
            pattern = r"running already, and its worker 1 is pid \d+.*one too many.*own task index"
            check(third.output(0) if third.wait() else "", 1, CONFIG, pattern)
        assert [process.poll() for process in job.processes] == [None, None]


def test_two_jobs_with_one_port_for_the_coordinator():
    program = """
m = join()
m.exchange("both are there", 0)
open(os.path.join(os.environ["JOB_FOLDER"], "running"), "w").close()
time.sleep(600)
"""
    variables: dict[str, object] = {"REPLICAX_COORDINATOR_PORT": split(free_addresses(1)[0])[1]}
    with Job(LIGHT + program, 2, variables=variables) as first:
        first.wait_for_file("running")
        variables["REPLICAX_JOIN_TIMEOUT"] = 5
        with Job(LIGHT + JOIN, 2, variables=variables) as second:
            statuses = second.wait(but=[1])  # which waits for the other until its limit
            pattern = (
                rf"COORDINATOR_PORT={variables['REPLICAX_COORDINATOR_PORT']} .*in use by "
                rf"pid {first.processes[0].pid} \(.*python.*port of its own, or unset it"
            )
            check(second.output(0), statuses[0], CONFIG, pattern)
        assert [process.poll() for process in first.processes] == [None, None]


def test_too_late_to_join():
    program = f"""
jax.config.update('jax_enable_preemption_service', False)
jax.distributed.initialize('{free_addresses(1)[0]}', 1, 0)
try:
    join()
except RuntimeError as error:
    print("first:", error)
jnp.zeros(1)
"""
    with Job(HEAVY + program + JOIN, 1, [config_of(free_addresses(2), 1)]) as job:
        status = job.wait()[0]
        words = r"first: jax.distributed.initialize\(\) has been called.*Remove that call"
        assert re.search(words, job.output(0)), job.output(0)
        words = "JAX has been used in this process.*top of the program"
        check(job.output(0), status, "RuntimeError", words)


def test_real_versions_can_be_compared():
    assert {"Python", "jax", "jaxlib"} <= _runtime.versions().keys()
    assert json.loads(json.dumps(_runtime.versions())) == _runtime.versions()


def test_launcher_and_cluster_disagree():
    server = ControlServer(2, key="k")
    server.start()
    try:
        addresses = free_addresses(3)
        variables: dict[str, object] = dict(server.environment())
        with Job(LIGHT + JOIN, 3, None, variables, addresses) as job:
            statuses = job.wait()
            for rank in range(3):
                pattern = "started with 2 workers, but the description of the cluster has 3"
                check(job.output(rank), statuses[rank], CONFIG, pattern)
    finally:
        server.stop()


@contextlib.contextmanager
def silent_listener() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def web_server() -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join(60)
        server.server_close()
