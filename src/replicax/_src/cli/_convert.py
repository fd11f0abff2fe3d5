"""`replicax convert`: a checkpoint in another form, and a report of what went where."""

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import replicax as rx
from replicax._src.checkpoints import FORMATS, PART_BYTES, Conversion, read_rules
from replicax._src.checkpoints import convert as convert_checkpoint

DESCRIPTION = """\
Converts a checkpoint of TensorFlow (2 or 1; TensorFlow is not needed), replicax or SafeTensors to a
checkpoint of replicax or Orbax, or to SafeTensors."""

EPILOG = r"""examples:
  replicax convert run/ckpt-30 converted             for rx.train.Checkpoint(...).restore
  replicax convert run/ckpt-30 weights --to safetensors --part-size 2000000000
  replicax convert run/ckpt-30 converted --map rules.txt

rules, one in each line; the first that matches the whole name applies, other names stay:
  model/layer-(\d+)/kernel -> model/\1/w            \1 is what the first group matches
  optimizer/.* ->                                   left out

exit status: 0 if it was written; 2 if not, and then nothing is left behind."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `replicax convert` to a parser."""
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a path, or a directory of them")
    parser.add_argument("out", metavar="OUT", help="where to write; it must not exist")
    parser.add_argument("--to", choices=FORMATS, default="replicax", help="(default: replicax)")
    parser.add_argument("--map", metavar="RULES", help="a file of rules for names")
    parser.add_argument(
        "--part-size",
        type=int,
        metavar="BYTES",
        default=PART_BYTES,
        help="the maximum size of a SafeTensors file",
    )


def run(arguments: argparse.Namespace, own: Sequence[str] = ()) -> int:
    """Runs `replicax convert`; returns the exit status."""
    try:
        rules = None
        if arguments.map is not None:
            rules = read_rules(Path(arguments.map).read_text(encoding="utf-8"))
        found = convert_checkpoint(
            arguments.checkpoint, arguments.out, arguments.to, rules, arguments.part_size, _shown
        )
    except (rx.errors.CheckpointError, OSError, ValueError, ImportError) as error:
        print(f"replicax convert: {error}", file=sys.stderr)
        return 2
    print(_report(found))
    return 0


def _shown(names: Iterable[str]) -> Iterable[str]:
    """Returns a progress bar, where somebody looks."""
    return rx.progress(names, "reading", transient=True) if sys.stdout.isatty() else names


def _report(found: Conversion) -> str:
    lines = [f"{name} -> {new}  {found.specs[name]}" for name, new in found.moved.items()]
    if found.left:
        lines += ["", "left over:"]
        lines += [f"{name}  ({reason})" for name, reason in found.left.items()]
    written = ", ".join(os.path.relpath(file) for file in found.files)
    return "\n".join([*lines, "", f"{len(found.moved)} arrays in {written}"])
