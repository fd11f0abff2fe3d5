"""The runs of `make bench`: which script with which options, and how its result is stored."""

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

from _report import core_count
from _results import load, path_of, result_of, store

HERE = Path(__file__).parent

# The libraries that can stand beside us, as results name them, and the modules that have them.
PEERS = {"tensorflow": "TensorFlow", "torch": "torch", "grain": "Grain"}

# Below these, `sharded.py` takes its smaller model.
_LARGE_CORES, _LARGE_BYTES = 8, 32e9


@dataclass(frozen=True)
class Run:
    """A script with options.

    Args:
      script: in this folder.
      options: that it always has.
      peers: the libraries that it can be given an interpreter for.
      without: the option that leaves them out.
      gpu: whether it needs a GPU; then it is run only if it is asked for.
      small: further options on a small machine.
    """

    script: str
    options: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    without: str = ""
    gpu: bool = False
    small: tuple[str, ...] = ()


# By the name of the chapter and of the file.
RUNS = {
    "step": Run("step.py", peers=("tensorflow",), without="--no-tensorflow"),
    "step_gpu": Run("step.py", ("--gpu", "--only", "steps"), gpu=True),
    "first_call": Run("first_call.py", peers=("tensorflow",), without="--no-tensorflow"),
    "eager": Run("eager.py", peers=("tensorflow",), without="--no-tensorflow"),
    "input": Run("input.py", peers=("tensorflow", "grain", "torch"), without="--no-peers"),
    "multi_worker": Run("multi_worker.py", peers=("torch", "tensorflow"), without="--no-peers"),
    "all_reduce": Run("all_reduce.py", ("--only", "devices", "workers")),
    "sharded": Run("sharded.py", small=("--model", "small")),
    "keras_fit": Run("keras_fit.py", peers=("tensorflow",), without="--no-tensorflow"),
    "keras_fit_gpu": Run("keras_fit.py", ("--gpu",), gpu=True),
}


@dataclass(frozen=True)
class Settings:
    """How runs are made.

    Args:
      folder: of the results.
      pythons: the interpreter of each peer that is named.
      no_peers: whether even peers that this interpreter has are left out.
      machine: the name of the machine; made from its cores or its GPU if empty.
      rounds: turns that each side takes; as the script has it if None.
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
    """A run that gave no result; the message says why."""


def make_run(name: str, settings: Settings, limit: float | None = None) -> Path:
    """Runs a benchmark and stores its result.

    Args:
      name: one of `RUNS`.
      settings: how.
      limit: seconds after which it is ended.

    Returns:
      The file of the result.
    """
    run = RUNS[name]
    machine = settings.machine or machine_name(run)
    _refuse_to_lose_peers(path_of(settings.folder, machine, name), run, settings)
    options = _options(run, settings)
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "result.json"
        _execute(run, [*options, "--json", str(written)], limit)
        measured = json.loads(written.read_text())
    result = result_of(
        measured,
        benchmark=name,
        run=name,
        machine=machine,
        machine_title=_machine_title(run),
        date=datetime.date.today().isoformat(),
        command=shown_command(run, options, settings),
    )
    return store(result, settings.folder)


def _options(run: Run, settings: Settings) -> list[str]:
    options = list(run.options)
    if run.small and _is_small() and not settings.quick:
        options += run.small
    if settings.quick:
        options.append("--quick")
    elif settings.rounds is not None:
        options += ["--rounds", str(settings.rounds)]
    if settings.no_peers and run.without:
        options.append(run.without)
    for peer in run.peers:
        if peer in settings.pythons and not settings.no_peers:
            options += [f"--{peer}-python", settings.pythons[peer]]
    return options


def shown_command(run: Run, options: list[str], settings: Settings) -> str:
    """The command as others would give it: their interpreters are elsewhere."""
    paths = set(settings.pythons.values())
    shown = ["PATH" if option in paths else option for option in options]
    return " ".join(["python", f"benchmarks/{run.script}", *shown])


def _refuse_to_lose_peers(path: Path, run: Run, settings: Settings) -> None:
    """A table without a peer does not take the place of one with it by accident."""
    if settings.replace or not path.exists():
        return
    stored = load(path)
    for peer in run.peers:
        has = peer in settings.pythons or importlib.util.find_spec(peer) is not None
        if PEERS[peer] in stored.versions and (settings.no_peers or not has):
            raise RunFailed(
                f"the stored result has {PEERS[peer]} {stored.versions[PEERS[peer]]} beside us, "
                f"this run would not. Name an interpreter with {peer.upper()}_PYTHON=..., or drop "
                "that column with BENCH_ARGS=--replace"
            )


def _execute(run: Run, options: list[str], limit: float | None) -> None:
    """Runs the script with its output here; ends it with all its children when the time is up."""
    environment = os.environ if run.gpu else os.environ | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(HERE / run.script), *options]
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


# Machines


def machine_name(run: Run) -> str:
    """A name for a folder."""
    if run.gpu:
        return _gpu_kind().lower().replace(" ", "-")
    return f"{core_count()}-cores"


def _gpu_kind() -> str:
    # In a process of its own, which gives the memory of the GPU back.
    code = "import jax; print([d.device_kind for d in jax.devices() if d.platform != 'cpu'][0])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if found.returncode:
        raise RunFailed("JAX finds no GPU here, and this run needs one")
    return found.stdout.strip()


def _machine_title(run: Run) -> str:
    if run.gpu:
        return f"one {_gpu_kind()}"
    return f"{core_count()} {platform.machine().replace('_', '-')} cores"


def _is_small() -> bool:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return core_count() < _LARGE_CORES or total < _LARGE_BYTES
