"""`replicax replay`: a recorded step again, on this machine."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from replicax._src._errors import DataLossError
from replicax._src._local_path import made_absolute
from replicax._src.cli._launch import Launch
from replicax._src.cli._options import LaunchOptions, Range
from replicax._src.cli._workers import dies_with_us
from replicax._src.recording import (
    RECORD_VARIABLE,
    Recorded,
    contents_of,
    differences,
    heading,
    last_step_of,
    said,
    write_capsule,
)

DESCRIPTION = """\
Runs a recorded step again. The script runs up to the first call of the recorded function, with
virtual devices for all replicas of all workers. Then the state is restored from the capsule, the
data is read up to the step, and the step runs. Nothing is written."""

EPILOG = """\
examples:
  replicax replay recording/capsules/step-41327 train.py
  replicax replay recording/capsules/step-41327 train.py --eager       what was not finite first?
  replicax replay recording/capsules/step-41327 train.py --step 41320
  replicax replay recording/capsules/step-41327 train.py --pdb         a debugger, right there
  replicax replay recording/capsules/step-41327 train.py --compare 1   the same on one device?
  replicax replay recording/capsules/step-41327 --list                 what is in it?
  replicax replay step-41327 train.py -- --layers 12                   arguments of the script

Exit status: 0 if the step gave the recorded bits, 1 if it gave others, 2 if it could not run."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `replicax replay` to a parser."""
    parser.add_argument(
        "capsule",
        help="the folder that a trap named; or the folder of a recording, for its last step",
    )
    parser.add_argument(
        "script", nargs="?", help="the script that was recorded; its arguments follow after --"
    )
    parser.add_argument("--list", action="store_true", help="list what the capsule holds, and end")
    parser.add_argument("--step", type=int, metavar="N", help="an earlier step of the capsule")
    parser.add_argument(
        "--eager",
        action="store_true",
        help="run the step operation by operation, then the function as Python, and name the first "
        "value that is not finite; on a terminal, pdb starts there",
    )
    parser.add_argument(
        "--pdb",
        action=argparse.BooleanOptionalAction,
        help="with --eager: whether pdb starts at the first value that is not finite",
    )
    parser.add_argument(
        "--replica",
        type=int,
        metavar="R",
        help="report one replica: its rows, its gradients, its first value that is not finite; "
        "--pdb stops in its function in any case. The others run too",
    )
    parser.add_argument(
        "--compare",
        metavar="OTHER",
        help="also run the step of another capsule, or this step on another number of devices, and "
        "name the first variable, activation or gradient that differs by more than rounding",
    )
    parser.add_argument("--devices", type=int, metavar="N", help="run it on N virtual devices")
    parser.add_argument(
        "--workers",
        action="store_true",
        help="run as many processes as the job had workers, which gives the same bits",
    )
    parser.add_argument(
        "--here",
        action="store_true",
        help="use the devices of this machine instead of virtual devices",
    )
    parser.add_argument("--show", action="store_true", help="show the output of the script")


def run(arguments: argparse.Namespace, own: Sequence[str] = ()) -> int:
    """Runs `replicax replay`; returns the exit status.

    Args:
      arguments: of the command line.
      own: the script's.
    """
    if not arguments.list and arguments.script is None:
        print("replicax replay: name the script that was recorded.", file=sys.stderr)
        return 2
    if not arguments.list and not os.path.isfile(arguments.script):
        print(f"replicax replay: there is no file {arguments.script!r}.", file=sys.stderr)
        return 2
    refusal = _refusal(arguments)
    if refusal:
        print(f"replicax replay: {refusal}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="replicax-replay-") as folder:
        try:
            return _replay(arguments, own, folder)
        except (DataLossError, OSError) as error:
            print(f"replicax replay: {error}", file=sys.stderr)
            return 2


def _refusal(arguments: argparse.Namespace) -> str:
    """Returns why options do not go together; "" if they do."""
    if arguments.workers and (arguments.devices or arguments.compare or arguments.here):
        return "--workers is the layout of the job: leave out --devices, --compare and --here."
    if arguments.workers and (arguments.eager or arguments.pdb or arguments.replica is not None):
        return "--eager, --pdb and --replica look into one process: leave out --workers."
    if arguments.devices is not None and arguments.devices < 1:
        return f"--devices {arguments.devices}: expected 1 or more."
    if arguments.replica is not None and arguments.replica < 0:
        return f"--replica {arguments.replica}: replicas are counted from 0."
    return ""


def _replay(arguments: argparse.Namespace, own: Sequence[str], folder: str) -> int:
    recorded = _opened(arguments.capsule, arguments.step, folder)
    if arguments.list:
        print(heading(recorded, recorded.step, _recording_of(arguments.capsule, recorded)))
        for name, what in contents_of(recorded).items():
            print(f"  {name}: {what}")
        return 0
    replicas = recorded.layout["replicas"]
    if arguments.replica is not None and arguments.replica >= (arguments.devices or replicas):
        raise DataLossError(
            f"--replica {arguments.replica}: the job has replicas 0 to {replicas - 1}."
        )
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    eager = arguments.eager or bool(arguments.pdb) or arguments.replica is not None
    request = {
        **vars(arguments),
        "capsule": recorded.path,
        "recording": _recording_of(arguments.capsule, recorded),
        "eager": eager,
        "pdb": is_terminal and eager if arguments.pdb is None else arguments.pdb,
        "arguments": list(own),
        "dump": "",
    }
    if arguments.compare is not None:
        return _compare(arguments, recorded, request, folder)
    if arguments.workers:
        return _with_workers(recorded, request, folder)
    return _run(recorded, request, folder)


def _opened(path: str, step: int | None, folder: str) -> Recorded:
    """Opens a capsule, before anything of it is used; of a recording one is made."""
    last = last_step_of(path)
    if last is not None:
        path = write_capsule(made_absolute(path), os.path.join(folder, "capsule"), step or last)
    return Recorded(path)


def _recording_of(path: str, recorded: Recorded) -> str:
    """Returns the path of a recording that a capsule was made of for this replay; "" of others."""
    path = made_absolute(path)
    return "" if path == recorded.path else path


def _run(recorded: Recorded, request: dict[str, Any], folder: str) -> int:
    """Replays in a process of its own; returns its status."""
    devices = 0 if request["here"] else request["devices"] or recorded.layout["devices"]
    environment = _environment(recorded, devices, folder)
    return subprocess.run(
        dies_with_us(_command(request, folder)), env=environment, check=False
    ).returncode


def _command(request: dict[str, Any], folder: str) -> list[str]:
    """Writes down what is asked for; returns the arguments of Python that lead there."""
    path = os.path.join(folder, "request.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(request, file)
    return ["-m", "replicax._src.cli._replayed_script", path]


def _with_workers(recorded: Recorded, request: dict[str, Any], folder: str) -> int:
    """Replays in as many processes as there were workers."""
    workers = recorded.layout["workers"]
    options = LaunchOptions(
        command=tuple(_command(request, folder)),
        workers=Range(workers, workers),
        devices_per_worker=max(recorded.layout["devices"] // workers, 1),
    )
    environment = _environment(recorded, 0, folder) | {"JAX_PLATFORMS": "cpu"}
    status = Launch(options, environment=environment).run()
    if status:
        return 2
    statuses: list[int] = []
    for worker in range(workers):
        with open(os.path.join(folder, f"status-{worker}"), encoding="utf-8") as file:
            statuses.append(int(file.read()))
    return max(statuses)


def _compare(
    arguments: argparse.Namespace, recorded: Recorded, request: dict[str, Any], folder: str
) -> int:
    """Runs two steps, and compares all their values."""
    other, more = recorded, {}
    if arguments.compare.isascii() and arguments.compare.isdigit():
        more = {"devices": max(int(arguments.compare), 1)}
    else:
        os.mkdir(os.path.join(folder, "other"))
        other = _opened(arguments.compare, arguments.step, os.path.join(folder, "other"))
        more = {"capsule": other.path, "recording": _recording_of(arguments.compare, other)}
    for number, (which, changes) in enumerate(((recorded, {}), (other, more))):
        dump = os.path.join(folder, f"values-{number}")
        os.mkdir(dump)
        asked = {**request, **changes, "dump": dump, "eager": False, "pdb": False}
        status = _run(which, asked, folder)
        if status == 2:
            return 2
    found, compared, left = differences(*(os.path.join(folder, f"values-{n}") for n in (0, 1)))
    print(said(found, compared, left))
    return 1 if found else 0


def _environment(recorded: Recorded, devices: int, folder: str) -> dict[str, str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name != "TF_CONFIG" and not name.startswith("REPLICAX_")
    }
    environment |= {"TMPDIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}
    if recorded.descriptions[0].get("by_argument") is True:
        environment[RECORD_VARIABLE] = folder
    if devices:
        environment |= {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(devices)}
    return environment
