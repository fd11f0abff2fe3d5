"""Programs that the doctor runs in processes of their own: a broken driver may hang or abort them.

Each prints lines of JSON as it goes, so that what was found before a hang is known.
"""

import contextlib
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any, NamedTuple

from replicax._src.cli._node import free_addresses
from replicax._src.cli._workers import dies_with_us
from replicax._src.cluster.control import how_it_ended

MEGABYTES = 16
_OF_A_STACK = re.compile(r"\s*(@\s+0x|\*{3} )")

_BANDWIDTH = """
import json, time
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

def say(**what):
    print(json.dumps(what), flush=True)

def reduce_everywhere(megabytes):
    devices = np.array(jax.devices())
    mesh = Mesh(devices, ("all",))
    rows = NamedSharding(mesh, PartitionSpec("all"))
    shape = (len(devices), megabytes * 250_000)
    x = jax.make_array_from_callback(shape, rows, lambda index: np.ones((1, shape[1]), np.float32))
    add = jax.jit(jax.shard_map(
        lambda x: jax.lax.psum(x, "all"), mesh=mesh,
        in_specs=PartitionSpec("all"), out_specs=PartitionSpec()))
    first = np.asarray(add(x).addressable_data(0)[0, :4])
    if not np.array_equal(first, np.full(4, float(len(devices)))):
        raise SystemExit(f"a sum over {len(devices)} devices gave {first[0]} for each")
    seconds = []
    for _ in range(5):
        before = time.perf_counter()
        add(x).block_until_ready()
        seconds.append(time.perf_counter() - before)
    say(devices_reduced=len(devices), megabytes=megabytes, gigabytes_per_second=round(
        megabytes / 1000 / min(seconds), 3))
"""

_DEVICES = (
    _BANDWIDTH
    + """
import sys
say(platform=jax.default_backend(), devices=[
    {"kind": d.device_kind, "platform": d.platform, "id": d.id} for d in jax.devices()])
if len(jax.devices()) > 1:
    reduce_everywhere(int(sys.argv[1]))
"""
)

_TWO_WORKERS = (
    _BANDWIDTH
    + """
import sys
from replicax._src._jax_internals import listen_with_gloo_at
listen_with_gloo_at("127.0.0.1")  # as workers do, whatever the name of this host leads to
jax.distributed.initialize(
    sys.argv[2], 2, int(sys.argv[3]), initialization_timeout=30, heartbeat_timeout_seconds=20)
reduce_everywhere(int(sys.argv[1]))
"""
)


class ProbeResult(NamedTuple):
    """What came out of a program."""

    found: dict[str, Any]
    """All that it said."""
    problem: str | None
    """Why it did not come to its end; None if it did."""
    timed_out: bool = False


def probe_devices(timeout: float) -> ProbeResult:
    """Lists the devices as JAX sees them, and sums over all of them if there are several."""
    return _run([["-c", _DEVICES, str(MEGABYTES)]], timeout, {})[0]


def probe_two_workers(timeout: float) -> ProbeResult:
    """Sums over two processes on this host, through JAX's own runtime, on the CPU."""
    address = free_addresses("127.0.0.1", 1)[0]
    programs = [["-c", _TWO_WORKERS, str(MEGABYTES), address, str(rank)] for rank in (0, 1)]
    probes = _run(programs, timeout, {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"})
    failed = [probe for probe in probes if probe.problem is not None]
    # The one that was killed because of the other has nothing to say.
    return min(failed, key=lambda probe: "SIGKILL" in (probe.problem or ""), default=probes[0])


def _run(
    programs: Sequence[Sequence[str]], timeout: float, environment: Mapping[str, str]
) -> list[ProbeResult]:
    """Runs Python programs at the same time; kills them all at the time-out or when one fails."""
    # Files, not pipes: nobody has to read them while the programs run.
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(2 * len(programs))]
        processes = []
        try:
            for number, program in enumerate(programs):
                processes.append(
                    subprocess.Popen(
                        dies_with_us(program),
                        env={**os.environ, **environment},
                        stdin=subprocess.DEVNULL,
                        stdout=files[2 * number],
                        stderr=files[2 * number + 1],
                        start_new_session=True,
                    )
                )
            timed_out = _wait_for_all(processes, timeout)
        finally:
            for process in processes:
                process.kill()
                process.wait(10)
        # One that failed says why; the others were killed because of it.
        return [
            _result(process.returncode, files[2 * number : 2 * number + 2], timed_out, timeout)
            for number, process in enumerate(processes)
        ]


def _wait_for_all(processes: Sequence[subprocess.Popen[bytes]], timeout: float) -> bool:
    """Waits until all have ended or one has failed; returns whether the time was over first."""
    deadline = time.monotonic() + timeout
    while None in (statuses := [process.poll() for process in processes]):
        if any(statuses):
            return False
        if time.monotonic() >= deadline:
            return True
        with contextlib.suppress(subprocess.TimeoutExpired):
            processes[statuses.index(None)].wait(0.1)
    return False


def _result(
    status: int, files: Sequence[IO[bytes]], timed_out: bool, timeout: float
) -> ProbeResult:
    output, errors = (_text(each) for each in files)
    found: dict[str, Any] = {}
    for line in output.splitlines():
        if line.startswith("{"):
            found.update(json.loads(line))
    problem = None
    if status and timed_out:
        problem = f"no end after {timeout:g} s"
    elif status:
        problem = _last_line(errors) or how_it_ended(status)
    return ProbeResult(found, problem, timed_out)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _last_line(text: str) -> str:
    """Returns the last line that is not of the stack of a crash."""
    lines = [line for line in text.splitlines() if line.strip() and not _OF_A_STACK.match(line)]
    return lines[-1].strip() if lines else ""
