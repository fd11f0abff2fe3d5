"""The runs of `make bench`: a benchmark in a process of its own, whose result is stored."""

import datetime
import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness.benchmark import PEERS, Benchmark, core_count
from benchmarks.harness.processes import FOLDER as BENCHMARKS
from benchmarks.harness.results import Result, load, path_of, store
from benchmarks.harness.sides import Options


class RunFailed(Exception):
    """A run gave no result; the message says why."""


def make_run(benchmark: Benchmark, options: Options, limit: float | None = None) -> Path:
    """Runs a benchmark, stores its result, and returns the file.

    Args:
      benchmark: that is run.
      options: of the command `run`.
      limit: seconds after which it is ended.
    """
    kind = _gpu_kind() if benchmark.gpu else ""
    machine = options.machine or kind.lower().replace(" ", "-") or f"{core_count()}-cores"
    given = _given(benchmark, options)
    _refuse_to_lose_peers(path_of(options.results, machine, benchmark.name), benchmark, options)
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "result.json"
        _execute(benchmark, [*given, "--json", str(written)], limit)
        measured = json.loads(written.read_text())
    # Others have their interpreters elsewhere.
    pythons = {getattr(options, f"{peer}_python") for peer in PEERS}
    shown = ["PATH" if each in pythons else each for each in given]
    result = Result(
        benchmark=benchmark.name,
        run=benchmark.name,
        machine=machine,
        machine_title=f"one {kind}" if kind else _cores_title(),
        date=datetime.date.today().isoformat(),
        command=" ".join(["python benchmarks", benchmark.name, *shown]),
        versions=measured.pop("versions"),
        conditions=measured.pop("conditions"),
        measured=measured,
    )
    return store(result, options.results)


def _given(benchmark: Benchmark, options: Options) -> list[str]:
    """Returns the options that the benchmark is given."""
    given = []
    if options.quick:
        given.append("--quick")
    elif options.rounds is not None:
        given += ["--rounds", str(options.rounds)]
    if options.no_peers:
        given += ["--no-peers"] if benchmark.peers else []
    else:
        for peer in benchmark.peers:
            if python := getattr(options, f"{peer}_python"):
                given += [f"--{peer}-python", python]
    return given


def _refuse_to_lose_peers(path: Path, benchmark: Benchmark, options: Options) -> None:
    """Raises where a table without a peer would take the place of one with it by accident."""
    if options.replace or not path.exists():
        return
    stored = load(path)
    for peer in benchmark.peers:
        has = getattr(options, f"{peer}_python") or importlib.util.find_spec(peer)
        if PEERS[peer] in stored.versions and (options.no_peers or not has):
            raise RunFailed(
                f"the stored result has {PEERS[peer]} {stored.versions[PEERS[peer]]} beside us, "
                f"this run would not. Name an interpreter with {peer.upper()}_PYTHON=..., or drop "
                "that column with BENCH_ARGS=--replace"
            )


def _execute(benchmark: Benchmark, options: list[str], limit: float | None) -> None:
    """Runs it with its output here; ends it with all its children when the time is up."""
    environment = os.environ if benchmark.gpu else os.environ | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(BENCHMARKS), benchmark.name, *options]
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        code = process.wait(limit)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            raise RunFailed(f"it was not done after {limit:.0f} s, and was ended") from None
        raise
    if code:
        raise RunFailed(f"it ended with code {code}; what it printed is above")


def _gpu_kind() -> str:
    # In a process of its own, which gives the memory of the GPU back.
    code = "import jax; print([d.device_kind for d in jax.devices() if d.platform != 'cpu'][0])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if found.returncode:
        raise RunFailed("JAX finds no GPU here, and this run needs one")
    return found.stdout.strip()


def _cores_title() -> str:
    return f"{core_count()} {platform.machine().replace('_', '-')} cores"
