"""What does input cost: batches on the host, on the devices, from files, and beside the training?

`rx.data` by the side of the least that NumPy can do it for, in the same process, and of tf.data,
Grain and the torch DataLoader, where there are interpreters that have them:

- (a), (b), (c): shuffled rows in memory, as batches on the host, and on 4 virtual CPU devices;
- (d), (e): files of records and of text;
- (f): what one of two workers pays for its half;
- prefetch: how much of the input is hidden under a step;
- state: how large the position in a data set is, and how long it takes to go there;
- training: a step that is fed by a data set, and one on data that is on the devices already.

Costs are processor seconds of the whole process, all threads, and the time by the wall beside them.
All sides take turns in one run, and the best turn of each counts. Before any time is taken, all
must have read the same numbers. Run with `--help` for the options.
"""

import argparse
import contextlib
import importlib.util
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import _input_numpy
import _input_replicax
import jax
from _child import Child
from _input_data import Data, Rows, data_of
from _input_goals import (
    LIMIT,
    OURS,
    TENSORFLOW,
    TITLES,
    Finding,
    ceilings,
    cost_cells,
    findings,
)
from _input_overlap import OVERLAP_HEADINGS, Overlap, measure_overlap
from _input_state import STATE_HEADINGS, measure_states, state_findings
from _input_stream import Cost, Remote
from _input_tables import INPUT
from _input_training import GOAL, measure_training
from _input_workers import check_digest, measure_workers, worker_findings
from _report import Cells, format_table, machine_facts
from _step_models import MODELS

import replicax as rx

CASES = ("a", "b", "c", "d", "e", "f", "prefetch", "state", "training")
REPLICAS = 4
PEERS = {"Grain": "grain", "torch": "torch"}


def note(text: str) -> None:
    print(f"{text} ...", file=sys.stderr)


# Streams of batches


@contextlib.contextmanager
def peers(options: argparse.Namespace, folder: str) -> Iterator[dict[str, Child]]:
    """A child for each other library that there is; `versions` of `options` gets theirs."""
    found: dict[str, Child] = {}
    try:
        if options.tensorflow_python:
            found[TENSORFLOW] = Child(
                "_input_tensorflow.py",
                options.size,
                folder,
                str(REPLICAS),
                python=options.tensorflow_python,
                TF_CPP_MIN_LOG_LEVEL="2",
                CUDA_VISIBLE_DEVICES="-1",
            )
        for side, name in PEERS.items():
            python = getattr(options, f"{name}_python")
            if python and {"a", "b", "c"} & set(options.only):
                found[side] = Child(f"_input_{name}.py", options.size, folder, python=python)
        for side, child in found.items():
            options.versions[side] = child.answer()["version"]
        yield found
    finally:
        for child in found.values():
            child.close()


def measure_streams(
    data: Data, strategy: Any, children: dict[str, Child], options: argparse.Namespace
) -> dict[str, dict[str, Cost]]:
    local = {
        OURS: _input_replicax.pipelines(data, strategy),
        LIMIT: _input_numpy.pipelines(data),
    }
    costs: dict[str, dict[str, Cost]] = {}
    for name in TITLES:
        if name[0] in options.only:
            note(f"batches: {TITLES[name]}")
            sides: dict[str, Any] = {
                side: made[name]() for side, made in local.items() if name in made
            }
            sides |= {
                side: Remote(child, name)
                for side, child in children.items()
                if name in served(side)
            }
            costs[name] = take_turns(name, sides, options.rounds)
    return costs


def served(side: str) -> Sequence[str]:
    """The pipelines that a child has."""
    if side == TENSORFLOW:
        ours_alone = ("c vectorized", "c on device", "d raw unchecked", "d parse plain")
        return [name for name in TITLES if name not in ours_alone]
    return ("a", "b", "c")


def take_turns(name: str, sides: dict[str, Any], rounds: int) -> dict[str, Cost]:
    """The best turn of each, once all are known to read the same."""
    expected = sides[OURS].digest()
    for side, pipeline in sides.items():
        if side != OURS:
            check_digest(f"{TITLES[name]}, {side}", pipeline.digest(), expected)
    best: dict[str, Cost] = {}
    for _ in range(rounds):
        for side, pipeline in sides.items():
            cost = pipeline.turn()
            best[side] = cost.best(best.get(side, cost))
    for pipeline in sides.values():
        pipeline.close()
    return best


# Running


def overlaps(options: argparse.Namespace) -> list[Overlap]:
    note("prefetch")
    # About a millisecond for a batch, as of small images.
    rows = Rows(64, 4, (784,)) if options.quick else Rows(2048, 16, (784,))
    count, repeats = (3, 1) if options.quick else (60, 7)
    return measure_overlap(rows, count, repeats)


def training_findings(options: argparse.Namespace) -> list[Finding]:
    found = []
    models = {"tiny": None} if options.quick else {"mlp": GOAL, "tiny": None}
    for name, goal in models.items():
        for replicas in (1, 2) if options.quick else (1, 2, 4):
            note(f"training: {MODELS[name].title}, replicas: {replicas}")
            seconds, rounds = (0.01, 1) if options.quick else (0.3, options.rounds + 2)
            training = measure_training(MODELS[name], replicas, seconds, rounds, goal)
            found.append(training.finding())
    return found


def state_results(
    data: Data, strategy: Any, tensorflow: Child | None
) -> tuple[list[Cells], list[Finding]]:
    note("state")
    states = measure_states(data, strategy)
    checkpoint = tensorflow.ask(do="checkpoint") if tensorflow is not None else None
    cells = [STATE_HEADINGS, *(state.cells() for state in states)]
    return cells, state_findings(states, checkpoint)


def measure(options: argparse.Namespace, folder: str) -> tuple[list[Finding], dict[str, Any]]:
    """All findings, and the tables they come from, by their titles."""
    data = data_of(options.size, folder)
    data.write()
    strategy = rx.distribute.MirroredStrategy([f"CPU:{i}" for i in range(REPLICAS)])
    found: list[Finding] = []
    tables: dict[str, list[Cells]] = {}
    lines: list[str] = []
    with peers(options, folder) as children:
        costs = measure_streams(data, strategy, children, options)
        if costs:
            found += findings(costs)
            lines += ceilings(costs)
            tables["Microseconds of a batch"] = cost_cells(costs)
        if "state" in options.only:
            cells, more = state_results(data, strategy, children.get(TENSORFLOW))
            tables["State after half an epoch"] = cells
            found += more
    if "f" in options.only:
        workers = measure_workers(
            data, options.size, options.tensorflow_python, options.rounds, note
        )
        found += worker_findings(workers)
        tables["Milliseconds of a worker's half"] = worker_cells(workers)
    if "prefetch" in options.only:
        measured = overlaps(options)
        found += [overlap.finding() for overlap in measured]
        cells = [OVERLAP_HEADINGS, *(overlap.cells() for overlap in measured)]
        tables["Prefetch, milliseconds of a batch by the wall"] = cells
    if "training" in options.only:
        found += training_findings(options)
    return found, {"tables": tables, "lines": lines}


def worker_cells(costs: dict[str, dict[str, Cost]]) -> list[Cells]:
    sides = list(next(iter(costs.values())))
    rows = [
        (name, *(f"{1e3 * cost.cpu:.1f} / {1e3 * cost.wall:.1f}" for cost in found.values()))
        for name, found in costs.items()
    ]
    return [("CPU / wall", *sides), *rows]


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=CASES, help="which cases (default: all)")
    parser.add_argument("--rounds", type=int, default=7, help="turns that each side takes")
    parser.add_argument("--quick", action="store_true", help="a trial run of a few seconds")
    for name in ("tensorflow", *PEERS.values()):
        parser.add_argument(
            f"--{name}-python",
            metavar="PATH",
            help=f"an interpreter that has {name} (default: this one, if it has)",
        )
    parser.add_argument("--no-peers", action="store_true", help="no other library")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the findings there too")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there too")
    options = parser.parse_args(arguments)
    options.only = options.only or list(CASES)
    options.size = "quick" if options.quick else "full"
    if options.quick:
        options.rounds = 2
    for name in ("tensorflow", *PEERS.values()):
        option = f"{name}_python"
        if options.no_peers:
            setattr(options, option, None)
        elif getattr(options, option) is None and importlib.util.find_spec(name):
            setattr(options, option, sys.executable)
    options.versions = {}
    return options


def report(
    found: Sequence[Finding], more: dict[str, Any], facts: dict[str, str], markdown: bool
) -> str:
    bullet = "- " if markdown else ""
    parts = [", ".join(f"{name} {value}" for name, value in facts.items())]
    parts.append(format_table(INPUT.cells(found), markdown))
    for title, cells in more["tables"].items():
        parts.append(f"{title}:\n\n{format_table(cells, markdown)}")
    if more["lines"]:
        parts.append("\n".join(bullet + line for line in more["lines"]))
    with_goal = [finding for finding in found if finding.met is not None]
    parts.append(f"{sum(bool(each.met) for each in with_goal)} of {len(with_goal)} goals are met.")
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_options(arguments)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", REPLICAS)
    with tempfile.TemporaryDirectory() as folder:
        found, more = measure(options, folder)
    facts = machine_facts(options.versions.pop(TENSORFLOW, None)) | options.versions
    print(report(found, more, facts, markdown=False))
    if options.markdown:
        options.markdown.write_text(report(found, more, facts, markdown=True))
    if options.json:
        rows = [finding._asdict() for finding in found]
        written = {"machine": facts, "findings": rows, **more}
        options.json.write_text(json.dumps(written, indent=2) + "\n")


if __name__ == "__main__":
    main()
