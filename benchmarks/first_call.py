"""How long does the first call of a compiled step take, which traces and compiles it?

Seconds of the first step of a model with many variables, the median over turns, each in a new
process without any cache of programs:

- replicax: `rx.function` around `strategy.run`, with Adam;
- by hand: `jax.jit` and `shard_map`, with optax's Adam;
- TensorFlow: `tf.function` around `strategy.run`, if there is one.

All must have the same loss. Run with `--help` for the options.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _child import Child
from _report import machine_facts, print_sections, write_sections
from _step_models import MODELS
from _step_tables import FIRST_CALL
from _tables import section_of
from _tensorflow_option import add_tensorflow_options, choose_tensorflow


class Row(NamedTuple):
    """The median seconds of a first call."""

    devices: int
    replicax: float
    by_hand: float
    tensorflow: float | None = None


def first_call(way: str, devices: int, options: argparse.Namespace) -> dict[str, Any]:
    variables = {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(devices),
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    python = options.tensorflow_python if way == "tensorflow" else sys.executable
    arguments = (way, options.model, str(devices))
    with Child("_first_call_side.py", *arguments, python=python, **variables) as child:
        return child.answer()


def measure(devices: int, options: argparse.Namespace, versions: dict[str, str]) -> Row:
    """A row of the table."""
    ways = ["replicax", "by_hand", *(["tensorflow"] if options.tensorflow_python else [])]
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    losses = []
    for _ in range(options.rounds):
        for way in ways:
            found = first_call(way, devices, options)
            seconds[way].append(found["seconds"])
            losses.append(found["loss"])
            if way == "tensorflow":
                versions["TensorFlow"] = found["version"]
    np.testing.assert_allclose(losses, losses[0], rtol=1e-4, err_msg="not the same step")
    return Row(devices, **{way: statistics.median(times) for way, times in seconds.items()})


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=MODELS, default="deep_narrow")
    parser.add_argument("--devices", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=3, help="turns that each way takes")
    parser.add_argument("--quick", action="store_true", help="a trial run of some seconds")
    add_tensorflow_options(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    options = parser.parse_args(arguments)
    if options.quick:
        options.devices, options.rounds, options.model = [2], 1, "tiny"
    choose_tensorflow(options)
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_options(arguments)
    versions: dict[str, str] = {}
    rows = []
    for devices in options.devices:
        print(f"{MODELS[options.model].title}, devices: {devices} ...", file=sys.stderr)
        rows.append(measure(devices, options, versions))
    facts = machine_facts(versions.get("TensorFlow"))
    section = section_of(FIRST_CALL, FIRST_CALL.title, rows)
    print_sections([section], facts, options.markdown)
    write_sections(options.json, [section], facts)


if __name__ == "__main__":
    main()
