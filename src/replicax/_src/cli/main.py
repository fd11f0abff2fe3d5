"""The command `replicax`.

`launch` runs workers, `doctor` looks at the machine and the cluster, `migrate` ports programs and
`convert` their checkpoints, `plan` tells what a script would need on hardware that is not here,
`replay` runs a recorded step again.
"""

import argparse
import contextlib
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence

from replicax import __version__
from replicax._src.cli._arguments import add_launch_options, launch_options
from replicax._src.cli._doctor import doctor
from replicax._src.cli._launch import Launch
from replicax._src.cli._member import Member
from replicax._src.cli._options import LaunchOptions, Usage
from replicax._src.cli._ray_node import RayNode
from replicax._src.cli._succession import Succession

# Loaded when they are asked for: they import what the others do not need.
_OTHERS = {
    "plan": "tell what a script needs on hardware that you do not have",
    "replay": "run a recorded step again",
    "convert": "convert a checkpoint to another format",
    "migrate": "port programs that use tf.distribute",
}
_OF_SCRIPTS = ("plan", "replay")  # whose own arguments follow after `--`
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line `replicax <arguments>`. Returns the exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    _open_closed_streams()
    try:
        with _ended_by_exception():
            status = _run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return status


@contextlib.contextmanager
def _ended_by_exception() -> Iterator[None]:
    """Lets signals that end a command end what it has started, too, and remove its folders.

    Only the main thread gets signals; in another, the caller ends the command in its own way.
    """

    def leave(number: int, _: object) -> None:
        sys.exit(128 + number)

    ours = [each for each in _ENDING_SIGNALS if signal.getsignal(each) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        ours = []
    for number in ours:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


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
    others = {name: commands.add_parser(name, help=what) for name, what in _OTHERS.items()}

    name = arguments[0] if arguments else ""
    if name == "launch":
        # Not through `parser`: what follows the script is the script's own.
        return _launch(launch_options(launching, arguments[1:]), launching)
    if name not in _OTHERS:
        return doctor(as_json=parser.parse_args(arguments).json)
    module = importlib.import_module(f"replicax._src.cli._{name}")
    others[name].formatter_class = argparse.RawDescriptionHelpFormatter
    others[name].description, others[name].epilog = module.DESCRIPTION, module.EPILOG
    module.add_options(others[name])
    own: list[str] = []
    if name in _OF_SCRIPTS:
        arguments, own = _without_the_scripts_own(arguments)
    return module.run(parser.parse_args(arguments), own)


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
