"""Small clusters of real processes on loopback, for tests of joining and of faults.

Most tests need no JAX, whose import takes longer than everything else: `LIGHT` gives a program the
real `join` over a stand-in for `replicax._src.cluster._runtime`. `HEAVY` gives it the real thing.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.guards import ROOT
from tests.processes import free_addresses

SOURCE = ROOT / "src"

# The package without what imports JAX: its `__init__`, that of what is behind it, and the types.
BARE = f"""
import os, signal, sys, time, types
package, behind = types.ModuleType("replicax"), types.ModuleType("replicax._src")
package.__path__ = [{str(SOURCE / "replicax")!r}]
behind.__path__ = [{str(SOURCE / "replicax" / "_src")!r}]
shared = types.ModuleType("replicax._src._typing")
shared.override, shared.__getattr__ = (lambda method: method), (lambda name: object)
sys.modules.update({{each.__name__: each for each in (package, behind, shared)}})
"""

LIGHT = (
    BARE
    + """
runtime = types.ModuleType("replicax._src.cluster._runtime")
runtime.versions = lambda: {"jax": os.environ.get("FAKE_JAX", "0.10.2")}
runtime.backends_started = lambda: False
runtime.is_started = lambda: False
runtime.planned_device_count = lambda: int(os.environ.get("FAKE_DEVICES", "1"))
class Started:
    def start(self, coordinator, bind_address, workers, worker, address):
        # Like JAX's: the coordinator listens in worker 0, and all wait there for all.
        import socket
        from replicax._src.cluster.control import _sockets
        if bind_address is not None:
            self.listener = socket.socket()
            for option in socket.SO_REUSEADDR, socket.SO_REUSEPORT:
                self.listener.setsockopt(socket.SOL_SOCKET, option, 1)
            self.listener.bind(_sockets.split(bind_address))
            self.listener.listen()
runtime.start = Started().start
sys.modules["replicax._src.cluster._runtime"] = runtime
from replicax._src.cluster import join, current_membership
"""
)

HEAVY = (
    BARE
    + """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from replicax._src.cluster import join, current_membership
def all_reduce(m):
    with m.phase("compiling step"):
        mesh = jax.sharding.Mesh(jax.devices(), ("r",))
        sums = jax.jit(jax.shard_map(
            lambda x: jax.lax.psum(x, "r"), mesh=mesh,
            in_specs=PartitionSpec("r"), out_specs=PartitionSpec()))
        ones = jax.make_array_from_callback(
            (jax.device_count(),), NamedSharding(mesh, PartitionSpec("r")), lambda i: jnp.ones(1))
    def call():
        with m.phase("running step"):
            m.before_call()
            return float(sums(ones)[0])
    with m.phase("compiling step"):
        call()
    return call
"""
)


class Job:
    """The processes of a cluster, each with its output in a file; end them with `with`.

    Args:
      programs: The source of each worker; one source serves `workers` of them.
      workers: How many processes.
      configs: TF_CONFIG of each; None writes the usual one.
      variables: Environment of all; a value that is a list has one entry per worker.
    """

    def __init__(
        self,
        program: str | Sequence[str],
        workers: int,
        configs: Sequence[object] | None = None,
        variables: dict[str, object] | None = None,
        addresses: Sequence[str] | None = None,
    ) -> None:
        self.addresses = list(addresses or free_addresses(workers))
        self.folder = tempfile.TemporaryDirectory(prefix="replicax-job-")
        self.processes: list[subprocess.Popen[bytes]] = []
        self._logs = [Path(self.folder.name) / f"worker-{rank}.log" for rank in range(workers)]
        programs = [program] * workers if isinstance(program, str) else program
        for rank in range(workers):
            config = config_of(self.addresses, rank) if configs is None else configs[rank]
            environment = {
                **{name: text for name, text in os.environ.items() if "REPLICAX" not in name},
                "JAX_PLATFORMS": "cpu",
                "JAX_NUM_CPU_DEVICES": "1",
                "REPLICAX_JOIN_TIMEOUT": "600",
                "PYTHONPATH": str(SOURCE),
                "JOB_FOLDER": self.folder.name,
                "JOB_SIZE": str(workers),
                "TF_CONFIG": config if isinstance(config, str) else json.dumps(config),
            }
            for name, value in (variables or {}).items():
                each = value[rank] if isinstance(value, list) else value
                if each is not None:
                    environment[name] = str(each)
            with open(self._logs[rank], "wb") as log:
                self.processes.append(
                    subprocess.Popen(
                        [sys.executable, "-u", "-c", programs[rank]],
                        env=environment,
                        cwd=self.folder.name,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                )

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait(60)
        self.folder.cleanup()

    def wait(self, timeout: float = 500, but: Sequence[int] = ()) -> list[int | None]:
        """The exit statuses of all workers, without waiting for those in `but`."""
        end = time.monotonic() + timeout
        for rank, process in enumerate(self.processes):
            if rank not in but:
                try:
                    process.wait(max(0.1, end - time.monotonic()))
                except subprocess.TimeoutExpired:
                    raise AssertionError(
                        f"worker {rank} has not ended in {timeout} s:\n{self.outputs()}"
                    ) from None
        return [process.poll() for process in self.processes]

    def wait_for_file(self, name: str, timeout: float = 500) -> None:
        """Waits until a worker has made a file in the job's folder, with `touch`."""
        path = Path(self.folder.name) / name
        end = time.monotonic() + timeout
        while not path.exists():
            assert time.monotonic() < end, f"no {name} in {timeout} s:\n{self.outputs()}"
            gone = [process.poll() for process in self.processes]
            assert None in gone, f"all ended without {name}:\n{self.outputs()}"
            time.sleep(0.01)

    def signal(self, rank: int, number: signal.Signals) -> None:
        """Sends a signal."""
        self.processes[rank].send_signal(number)

    def output(self, rank: int) -> str:
        """What a worker has printed."""
        return self._logs[rank].read_text(errors="replace")

    def outputs(self) -> str:
        """What all have printed."""
        return "\n".join(f"--- worker {r}\n{self.output(r)}" for r in range(len(self._logs)))


TOUCH = """
def touch(name):
    open(os.path.join(os.environ["JOB_FOLDER"], name), "w").close()
"""


def config_of(addresses: Sequence[str], rank: int) -> dict[str, object]:
    """The usual TF_CONFIG."""
    return {"cluster": {"worker": list(addresses)}, "task": {"type": "worker", "index": rank}}
