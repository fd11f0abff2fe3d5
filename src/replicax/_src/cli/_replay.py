"""`replicax replay`: a recorded step again, on this machine."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from replicax._src._errors import DataLossError
from replicax._src.recording import Recorded, contents_of, heading

_DESCRIPTION = """\
Runs a recorded step again: the script is run up to the first call of the function that was
recorded, with virtual devices for all replicas of all workers; then its state is restored from the
capsule, its data walked to the step, and the step run. Nothing is written."""

_EPILOG = """\
examples:
  replicax replay recording/capsules/step-41327 train.py
  replicax replay recording/capsules/step-41327 train.py --eager       what was not finite first?
  replicax replay recording/capsules/step-41327 train.py --step 41320
  replicax replay recording/capsules/step-41327 --list                 what is in it?
  replicax replay step-41327 train.py -- --layers 12                   arguments of the script

Exit status: 0 if the step gave the recorded bits, 1 if it gave others, 2 if it could not be run."""


def add_replay_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `replicax replay` to a parser."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument("capsule", help="the folder that a trap has named")
    parser.add_argument(
        "script", nargs="?", help="the script that was recorded; its arguments follow after --"
    )
    parser.add_argument("--list", action="store_true", help="list what the capsule holds, and end")
    parser.add_argument("--step", type=int, metavar="N", help="an earlier step of the capsule")
    parser.add_argument(
        "--eager",
        action="store_true",
        help="run the step operation by operation, and name the first value that is not finite",
    )
    parser.add_argument(
        "--here",
        action="store_true",
        help="use the devices of this machine, not virtual ones on its CPU",
    )
    parser.add_argument("--show", action="store_true", help="let the script print what it prints")


def replay(arguments: argparse.Namespace, own: Sequence[str] = ()) -> int:
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
    try:
        recorded = Recorded(arguments.capsule)  # before anything of it is used
    except (DataLossError, OSError) as error:
        print(f"replicax replay: {error}", file=sys.stderr)
        return 2
    if arguments.list:
        print(heading(recorded, recorded.step))
        for name, what in contents_of(recorded).items():
            print(f"  {name}: {what}")
        return 0
    with tempfile.TemporaryDirectory(prefix="replicax-replay-") as folder:
        request = os.path.join(folder, "request.json")
        with open(request, "w", encoding="utf-8") as file:
            json.dump({**vars(arguments), "arguments": list(own)}, file)
        command = [sys.executable, "-m", "replicax._src.cli._replayed_script", request]
        devices = 0 if arguments.here else recorded.layout["devices"]
        return subprocess.run(command, env=_environment(devices, folder), check=False).returncode


def _environment(devices: int, folder: str) -> dict[str, str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name != "TF_CONFIG" and not name.startswith("REPLICAX_")
    }
    environment |= {"TMPDIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}
    if devices:
        environment |= {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(devices)}
    return environment
