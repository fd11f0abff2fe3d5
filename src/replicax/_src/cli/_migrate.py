"""Reads the command line of `replicax migrate`; what it does is in `migrate/`, with libcst."""

import argparse
import importlib.util
import io
import sys
from collections.abc import Sequence

DESCRIPTION = """\
Ports programs that use tf.distribute. Reads Python files and notebooks and reports, line by line,
what carries over, what changes, what needs thought, and what is not supported. With --write it
makes the changes, and marks the other lines with a comment: TODO(replicax)."""

EPILOG = """\
examples:
  replicax migrate train.py              report what to change
  replicax migrate --diff src/           show what --write would change
  replicax migrate --write src/          change it; running it again changes nothing more

exit status: 0 if nothing is left to do by hand, 1 if something is, 2 if a file does not exist, is
not Python 3, or cannot be read or written; the other files are processed."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `replicax migrate` to a parser."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file, or a folder of files")
    parser.add_argument("--write", action="store_true", help="change the files")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--diff", action="store_true", help="print what changes, as a diff")
    output.add_argument("--json", action="store_true", help="print the report as JSON")


def run(arguments: argparse.Namespace, own: Sequence[str] = ()) -> int:
    """Runs `replicax migrate`; returns the exit status."""
    if importlib.util.find_spec("libcst") is None:
        print(
            "replicax migrate needs the package libcst, which is not installed. Run: pip install "
            'libcst (or, in a clone of replicax, pip install ".[migrate]")',
            file=sys.stderr,
        )
        return 2
    from replicax._src.cli.migrate import _command

    for stream in (sys.stdout, sys.stderr):  # of lines and names that a terminal has no letters for
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    return _command.run(
        arguments.paths, write=arguments.write, diff=arguments.diff, as_json=arguments.json
    )
