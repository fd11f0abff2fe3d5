"""Is `fit` of a Keras model under a strategy as fast as with Keras's own means?

Milliseconds of a step of `fit` on NumPy arrays, the median over turns, on 1, 2 and 4 virtual CPU
devices, three ways with the same model, weights, data and global batch:

- replicax: the model is made in the scope of `rx.distribute.MirroredStrategy`, on JAX;
- DataParallel: `keras.distribution.DataParallel`, on JAX;
- TensorFlow: in the scope of `tf.distribute.MirroredStrategy`, on TensorFlow, if there is one.

Each has a process of its own, with the same environment; they take turns, and ratios are medians
over the turns, so that a busy machine slows them all; a second table has the processor time. Before
any time is taken, all must have the same losses. Batches are multiples of the number of replicas:
DataParallel takes no others. Run with `--help` for the options.
"""

import argparse
import json
import os
import statistics
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _child import Child
from _keras_models import CASES, QUICK, STANDARD, Case
from _keras_tables import KERAS_CPU, KERAS_WALL
from _report import as_text, machine_facts, print_sections
from _step_models import CLOCKS
from _tables import section_of
from _tensorflow_option import add_tensorflow_options, choose_tensorflow

CHECKED_BATCHES = 2
TOLERANCE = 1e-3


class Row(NamedTuple):
    """One model on some replicas: median milliseconds of a step, and medians of turns' ratios."""

    clock: str
    case: str
    title: str
    batch: int
    replicas: int
    replicax: float
    data_parallel: float
    tensorflow: float | None
    over_data_parallel: float
    speedup: float | None  # over TensorFlow


@contextmanager
def _sides(
    replicas: int, options: argparse.Namespace
) -> Iterator[tuple[dict[str, Child], dict[str, str]]]:
    """The process of each way, and the versions of what they run on."""
    environment = {
        "JAX_PLATFORMS": "cuda" if options.gpu else "cpu",
        "JAX_NUM_CPU_DEVICES": str(replicas),
        # The threads that run programs: DataParallel waits for ever with fewer than it has devices.
        "NPROC": str(options.threads or max(os.cpu_count() or 1, 2 * replicas)),
        **({} if options.gpu else {"CUDA_VISIBLE_DEVICES": "-1"}),
        # Three processes share a GPU.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    interpreters = {"replicax": sys.executable, "data_parallel": sys.executable}
    if options.tensorflow_python:
        interpreters["tensorflow"] = options.tensorflow_python
    with ExitStack() as stack:
        children, versions = {}, {}
        for way, python in interpreters.items():
            backend = "tensorflow" if way == "tensorflow" else "jax"
            child = Child(
                "_keras_side.py",
                way,
                str(replicas),
                python=python,
                **{**environment, "KERAS_BACKEND": backend},
            )
            children[way] = stack.enter_context(child)
        for way, child in children.items():
            with _killed_after(options.limit, child):
                found = child.answer()
            versions["Keras"] = found["keras"]
            if way == "tensorflow":
                versions["TensorFlow"] = found["version"]
        yield children, versions


@contextmanager
def _killed_after(limit: float, child: Child) -> Iterator[None]:
    """Devices that wait for each other wait for ever."""
    timer = threading.Timer(limit, child.process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def measure(
    name: str, replicas: int, children: dict[str, Child], options: argparse.Namespace
) -> list[Row]:
    """A row by each clock."""
    case = CASES[name]

    def ask(way: str, **request: Any) -> dict[str, Any]:
        with _killed_after(options.limit, children[way]):
            return children[way].ask(**request)

    losses = {way: ask(way, case=name, checked=CHECKED_BATCHES)["losses"] for way in children}
    _check_equal(case, replicas, losses)
    epochs = {}
    for way in children:
        once = ask(way, epochs=1)["wall"]
        epochs[way] = max(round(options.seconds / once), 1)
    turns: dict[str, list[dict[str, float]]] = {way: [] for way in children}
    ways = list(children)
    for turn in range(options.rounds):
        first = turn % len(ways)
        for way in ways[first:] + ways[:first]:
            spent = ask(way, epochs=epochs[way])
            turns[way].append({c: spent[c] / epochs[way] / case.batches for c in CLOCKS})
    return [_row(clock, name, replicas, turns) for clock in CLOCKS]


def _row(clock: str, name: str, replicas: int, turns: dict[str, list[dict[str, float]]]) -> Row:
    seconds = {way: [turn[clock] for turn in each] for way, each in turns.items()}
    ms = {way: 1e3 * statistics.median(times) for way, times in seconds.items()}
    ours, tensorflow = seconds["replicax"], seconds.get("tensorflow")
    return Row(
        clock,
        name,
        CASES[name].title,
        CASES[name].batch,
        replicas,
        ms["replicax"],
        ms["data_parallel"],
        ms.get("tensorflow"),
        _median_ratio(ours, seconds["data_parallel"]),
        None if tensorflow is None else _median_ratio(tensorflow, ours),
    )


def _check_equal(case: Case, replicas: int, losses: dict[str, list[float]]) -> None:
    """Raises unless all train alike: wrong answers can be fast."""
    for way, found in losses.items():
        expected = losses["data_parallel"]
        if not np.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE):
            raise SystemExit(
                f"The losses of {way} ({case.title}, batch {case.batch}, replicas: {replicas}) are "
                f"{found}, and with DataParallel they are {expected}. The times would not be "
                "comparable."
            )


def _median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cases", nargs="+", choices=CASES, help=f"by default {', '.join(STANDARD)}"
    )
    parser.add_argument("--replicas", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=11, help="turns that each way takes")
    parser.add_argument("--seconds", type=float, default=0.3, help="length of a turn, about")
    parser.add_argument("--limit", type=float, default=180, help="seconds an answer may take")
    parser.add_argument(
        "--threads",
        type=int,
        help="NPROC, for all processes (default: the cores, or twice the replicas if that is more)",
    )
    parser.add_argument("--gpu", action="store_true", help="on the first GPU, without TensorFlow")
    parser.add_argument("--quick", action="store_true", help="a trial run of some seconds")
    add_tensorflow_options(parser, "TensorFlow and Keras")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    options = parser.parse_args(arguments)
    standard = STANDARD
    if options.quick:
        standard = QUICK
        options.replicas = [2]
        options.rounds, options.seconds = 2, 0.01
    if options.gpu:
        options.replicas, options.no_tensorflow = [1], True
    options.cases = options.cases or list(standard)
    choose_tensorflow(options)
    for name in options.cases:
        for replicas in options.replicas:
            if CASES[name].batch % replicas:
                parser.error(f"{replicas} replicas do not divide the batch of {name}")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_options(arguments)
    if not options.tensorflow_python:
        print("TensorFlow is left out: name an interpreter that has it with --tensorflow-python.")
    found: dict[tuple[str, int], list[Row]] = {}
    facts = machine_facts(None)
    for replicas in options.replicas:
        with _sides(replicas, options) as (children, versions):
            facts |= versions
            for name in options.cases:
                case = CASES[name]
                print(
                    f"{case.title}, batch {case.batch}, replicas: {replicas} ...", file=sys.stderr
                )
                found[name, replicas] = measure(name, replicas, children, options)
                for row in found[name, replicas]:
                    ratios = as_text(row.over_data_parallel, 3), as_text(row.speedup, 3)
                    print(f"  {row.clock}: {', '.join(ratios)}", file=sys.stderr)
    cases = [(name, replicas) for name in options.cases for replicas in options.replicas]
    rows = [found[case][index] for index in range(len(CLOCKS)) for case in cases]
    tables = [section_of(each, each.title, rows) for each in (KERAS_WALL, KERAS_CPU)]
    print_sections(tables, facts, options.markdown)
    if options.json:
        measured = {"machine": facts, "rows": [row._asdict() for row in rows]}
        options.json.write_text(json.dumps(measured, indent=2) + "\n")


if __name__ == "__main__":
    main()
