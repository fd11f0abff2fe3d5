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
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.benchmark import PEERS, Benchmark, core_count
from benchmarks.harness.processes import FOLDER as BENCHMARKS
from benchmarks.harness.results import Result, load, path_of, store


@dataclass(frozen=True)
class Settings:
    """How runs are made.

    Args:
      folder: of the results.
      pythons: the interpreter of each peer that is named.
      no_peers: whether even peers that this interpreter has are left out.
      machine: the name of the machine; made from its cores or its GPU if empty.
      rounds: turns that each side takes; as the benchmark has it if None.
      quick: whether it is a trial run.
      replace: whether a result may lose peers that the stored one has.
    """

    folder: Path
    pythons: dict[str, str]
    no_peers: bool = False
    machine: str = ""
    rounds: int | None = None
    quick: bool = False
    replace: bool = False


class RunFailed(Exception):
    """A run gave no result; the message says why."""


def make_run(benchmark: Benchmark, settings: Settings, limit: float | None = None) -> Path:
    """Runs a benchmark, stores its result, and returns the file.

    Args:
      benchmark: that is run.
      settings: how.
      limit: seconds after which it is ended.
    """
    kind = _gpu_kind() if benchmark.gpu else ""
    machine = settings.machine or kind.lower().replace(" ", "-") or f"{core_count()}-cores"
    _refuse_to_lose_peers(path_of(settings.folder, machine, benchmark.name), benchmark, settings)
    options = _options(benchmark, settings)
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "result.json"
        _execute(benchmark, [*options, "--json", str(written)], limit)
        measured = json.loads(written.read_text())
    # Others have their interpreters elsewhere.
    shown = ["PATH" if each in settings.pythons.values() else each for each in options]
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
    return store(result, settings.folder)


def _options(benchmark: Benchmark, settings: Settings) -> list[str]:
    options = []
    if settings.quick:
        options.append("--quick")
    elif settings.rounds is not None:
        options += ["--rounds", str(settings.rounds)]
    if settings.no_peers and benchmark.peers:
        options.append("--no-peers")
    for peer in benchmark.peers:
        if peer in settings.pythons and not settings.no_peers:
            options += [f"--{peer}-python", settings.pythons[peer]]
    return options


def _refuse_to_lose_peers(path: Path, benchmark: Benchmark, settings: Settings) -> None:
    """Raises where a table without a peer would take the place of one with it by accident."""
    if settings.replace or not path.exists():
        return
    stored = load(path)
    for peer in benchmark.peers:
        has = peer in settings.pythons or importlib.util.find_spec(peer) is not None
        if PEERS[peer] in stored.versions and (settings.no_peers or not has):
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
