"""Runs launches for tests: inside this process (fast), or as a command of its own (for signals)."""

import argparse
import contextlib
import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

from replicax._src.cli._arguments import add_launch_options, launch_options
from replicax._src.cli._launch import Launch
from replicax._src.cli._log import Log
from replicax._src.cli._member import Member
from tests.cluster.processes import BARE, LIGHT
from tests.guards import ROOT
from tests.processes import free_addresses

TIMEOUT = 600.0

# The command without JAX, whose import takes longer than most tests.
_COMMAND = (
    BARE
    + """
package.__version__ = "0"
sys.modules["replicax._src.cluster._runtime"] = types.ModuleType("replicax._src.cluster._runtime")
from replicax._src.cli.main import main
sys.exit(main())
"""
)

# For scripts that join the others: the real control plane, and a stand-in for JAX. `step` is a
# collective as far as the control plane can tell.
JOIN = (
    LIGHT
    + """
m = join(device_count=1)
def step():
    with m.phase("running step"):
        m.before_call()
        m.exchange("step", 0)
"""
)

# What every script starts with: who am I?
PREAMBLE = """
import json, os, signal, sys
place = json.loads(os.environ["TF_CONFIG"])
rank, size = place["task"]["index"], len(place["cluster"]["worker"])
generation = int(os.environ["REPLICAX_GENERATION"])
"""


def script(folder: Path, text: str) -> str:
    """Writes a script; returns its path."""
    path = folder / "train.py"
    path.write_text(PREAMBLE + textwrap.dedent(text), encoding="utf-8")
    return str(path)


def launch(folder: Path, text: str, *options: str, name: str = "log") -> tuple[int, list[str]]:
    """Launches a script in this process; returns the exit status and the lines of the log."""
    parser = argparse.ArgumentParser(prog="replicax launch")
    add_launch_options(parser)
    parsed = launch_options(parser, [*options, script(folder, text)])
    path = folder / name
    with open(path, "wb") as file:
        log = Log(file.fileno())
        status = (Member if parsed.node_rank else Launch)(parsed, log, environment()).run()
    return status, path.read_text(encoding="utf-8").splitlines()


def environment() -> dict[str, str]:
    """Returns an environment that says nothing of clusters and colours."""
    unwanted = ("TF_CONFIG", "REPLICAX_", "SLURM_", "NO_COLOR", "FORCE_COLOR")
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(unwanted)},
        "PYTHONPATH": str(ROOT / "src"),
        "JAX_PLATFORMS": "cpu",
    }


def of(lines: list[str], worker: int | None) -> list[str]:
    """Returns what one worker (None: the launcher) has said, without the prefix."""
    prefix = "[launch] " if worker is None else f"[worker {worker}] "
    return [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]


@contextlib.contextmanager
def launcher(*arguments: str, **settings: str) -> Iterator[subprocess.Popen[str]]:
    """Starts `replicax launch` as a process; whatever happens, it is gone afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-c", _COMMAND, "launch", *arguments],
        env={**environment(), **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(TIMEOUT)
        assert process.stdout is not None
        process.stdout.close()


def read_until(process: subprocess.Popen[str], *texts: str) -> list[str]:
    """Returns the lines of a launcher up to the one with the last of `texts`, in any order."""
    assert process.stdout is not None
    missing, lines = set(texts), []
    with _killer(process):
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            missing -= {text for text in missing if text in line}
            if not missing:
                return lines
    raise AssertionError(f"never said {sorted(missing)}:\n" + "\n".join(lines))


def rest_of(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """Returns the exit status of a launcher, and its remaining lines."""
    assert process.stdout is not None
    with _killer(process):
        lines = process.stdout.read().splitlines()
    return process.wait(TIMEOUT), lines


@contextlib.contextmanager
def _killer(process: subprocess.Popen[str]) -> Iterator[None]:
    """Kills a process that is silent for too long, so that reading its output ends."""
    timer = threading.Timer(TIMEOUT, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def wait_until_gone(pid: int, seconds: float = 100.0) -> None:
    """Waits for the end of a process that is not our child; fails if it does not come."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ready = select.select([descriptor], [], [], seconds)[0]
    finally:
        os.close(descriptor)
    if not ready:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        raise AssertionError(f"process {pid} was still there after {seconds:g} s")


def free_address() -> str:
    """Returns a loopback address that nobody uses now."""
    return free_addresses(1)[0]
