"""The command `replicax`.

`launch` runs workers, `doctor` looks at the machine and the cluster, `migrate` ports programs and
`convert` their checkpoints, `plan` tells what a script would need on hardware that is not here,
`replay` runs a recorded step again.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from replicax import __version__
from replicax._src.cli._arguments import add_launch_options, launch_options
from replicax._src.cli._doctor import doctor
from replicax._src.cli._launch import Launch
from replicax._src.cli._member import Member
from replicax._src.cli._migrate import add_migrate_options, migrate
from replicax._src.cli._options import LaunchOptions, Usage
from replicax._src.cli._ray_node import RayNode
from replicax._src.cli._succession import Succession


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line `replicax <arguments>`. Returns the exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    _open_closed_streams()
    try:
        status = _run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return status


def _open_closed_streams() -> None:
    """Opens the null device for output that is closed, as after `>&-`."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))


def _run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="replicax", description="The programming model of tf.distribute, on JAX."
    )
    parser.add_argument("--version", action="version", version=f"replicax {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    launching = commands.add_parser("launch", help="run a script in several workers")
    add_launch_options(launching)
    doctoring = commands.add_parser(
        "doctor", help="check devices, versions, network and cluster, and say what is wrong"
    )
    doctoring.add_argument("--json", action="store_true", help="print what was found as JSON")
    planning = commands.add_parser(
        "plan", help="tell what a script needs on hardware that you do not have"
    )
    replaying = commands.add_parser("replay", help="run a recorded step again")
    converting = commands.add_parser("convert", help="convert a checkpoint to another format")
    migrating = commands.add_parser("migrate", help="port programs that use tf.distribute")
    add_migrate_options(migrating)

    match arguments[:1]:
        case ["launch"]:
            # Not through `parser`: what follows the script is the script's own.
            return _launch(launch_options(launching, arguments[1:]), launching)
        case ["plan"]:
            return _plan(parser, planning, arguments)
        case ["replay"]:
            return _replay(parser, replaying, arguments)
        case ["convert"]:
            return _convert(parser, converting, arguments)
    parsed = parser.parse_args(arguments)
    return migrate(parsed) if parsed.command == "migrate" else doctor(as_json=parsed.json)


# These need JAX: the other commands start in a tenth of the time without it.


def _plan(
    parser: argparse.ArgumentParser, planning: argparse.ArgumentParser, arguments: list[str]
) -> int:
    from replicax._src.cli._plan import add_plan_options, plan

    add_plan_options(planning)
    arguments, own = _without_the_scripts_own(arguments)
    return plan(parser.parse_args(arguments), own)


def _replay(
    parser: argparse.ArgumentParser, replaying: argparse.ArgumentParser, arguments: list[str]
) -> int:
    from replicax._src.cli._replay import add_replay_options, replay

    add_replay_options(replaying)
    arguments, own = _without_the_scripts_own(arguments)
    return replay(parser.parse_args(arguments), own)


def _convert(
    parser: argparse.ArgumentParser, converting: argparse.ArgumentParser, arguments: list[str]
) -> int:
    from replicax._src.cli._convert import add_convert_options, convert

    add_convert_options(converting)
    return convert(parser.parse_args(arguments))


def _without_the_scripts_own(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Returns what is before and after `--`, which parsers take only directly after the script."""
    if "--" not in arguments:
        return arguments, []
    end = arguments.index("--")
    return arguments[:end], arguments[end + 1 :]


def _launch(options: LaunchOptions, parser: argparse.ArgumentParser) -> int:
    script = options.command[0]
    if script == "-":
        parser.error("workers have no standard input to read a script from: write it to a file.")
    if script != "-m" and not os.path.isfile(script):
        parser.error(
            f"there is no file {script!r} in {_working_directory()}. Name a Python script, or a "
            "module with -m."
        )
    if script == "-m" and len(options.command) < 2:
        parser.error("-m: name a module, as in `replicax launch -m project.train`.")
    try:
        if options.shared_folder is not None:
            return Succession(options).run()
        if options.ray is not None:
            return Launch(options, new_node=RayNode).run()
        return (Member if options.node_rank else Launch)(options).run()
    except (Usage, ImportError, ConnectionError) as error:
        parser.error(str(error))


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "the working directory, which somebody has removed"
