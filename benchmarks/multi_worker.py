"""Is a training step over several processes as fast as elsewhere, and what else do they cost?

Processes on one machine, which speak over loopback. Three questions:

- steps: one step with Adam, in median milliseconds, on the same data and with the same threads:
  replicax (`MultiWorkerMirroredStrategy` in an `rx.function`); by hand (`jax.jit` of a
  `jax.shard_map` with one `psum` for each gradient, the state donated); PyTorch's
  `DistributedDataParallel` over gloo; and TensorFlow's `MultiWorkerMirroredStrategy` in a
  `tf.function`. All give the loss over all workers after each step.
- saves: how long an asynchronous save stops the loop, and how fast it reaches the disk, beside
  `np.savez` and `os.fsync` of the same arrays.
- starts: from the start of all workers to the end of their first step, with an empty compilation
  cache and with the one that this left.

The workers of all libraries stay up and take turns, and ratios are medians over the turns, so that
a busy machine slows them all. Before any time is taken, all must compute the same losses. Run with
`--help` for the options.
"""

import argparse
import contextlib
import importlib.util
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from _multi_worker_models import MODELS, STANDARD
from _multi_worker_tables import SAVES, STARTS, WORKER_STEPS, WORKER_WORK
from _report import Section, core_count, machine_facts, print_sections, write_sections
from _step_models import Model
from _tables import section_of
from _workers import Cost, Workers
from step import (
    CHECKED_STEPS,
    TENSORFLOW_TOLERANCE,
    TOLERANCES,
    check_equal,
    counts_for,
    median_ratio,
    note,
)

SECTIONS = ("steps", "saves", "starts")
SCRIPTS = {
    "replicax": "_multi_worker_replicax.py",
    "by hand": "_multi_worker_by_hand.py",
    "torch": "_multi_worker_torch.py",
    "tensorflow": "_multi_worker_tensorflow.py",
}


def start_workers(library: str, count: int, options: argparse.Namespace, **more: str) -> Workers:
    threads = str(options.threads)
    variables = {
        # XLA's threads; one more, as they wait in collectives too. Others have threads for that.
        "NPROC": str(options.threads + 1),
        "OMP_NUM_THREADS": threads,
        "TF_NUM_INTRAOP_THREADS": threads,
        "TF_NUM_INTEROP_THREADS": threads,
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    python = options.pythons[library]
    return Workers(SCRIPTS[library], python, count, options.limit, **variables | more)


# Steps


class Step(NamedTuple):
    """One model: median milliseconds, and medians of the turns' ratios."""

    model: str
    title: str
    clock: str  # "wall", or "cpu": the processor time of a worker
    replicax: float
    by_hand: float
    torch: float | None
    tensorflow: float | None
    over_by_hand: float
    over_torch: float | None
    speedup: float | None  # over TensorFlow


def measure_step(
    model: Model, libraries: dict[str, Workers], options: argparse.Namespace
) -> list[Step]:
    """One row for each clock."""
    losses = {}
    for name, workers in libraries.items():
        workers.ask(model=model.name)
        losses[name] = workers.losses(CHECKED_STEPS)
    for name, found in losses.items():
        tolerance = TENSORFLOW_TOLERANCE if name == "tensorflow" else TOLERANCES["float32"]
        what = f"the losses of {name} ({model.title})"
        check_equal(what, found, losses["by hand"], tolerance)
    costs: dict[str, list[Cost]] = {name: [] for name in libraries}
    counts = counts_for(
        {name: lambda steps, each=each: each.train(steps).wall for name, each in libraries.items()},
        options,
    )
    names = list(libraries)
    for turn in range(options.rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            cost = libraries[name].train(counts[name])
            costs[name].append(Cost(*(seconds / counts[name] for seconds in cost)))
    return [step_of(model, clock, costs) for clock in Cost._fields]


def step_of(model: Model, clock: str, costs: dict[str, list[Cost]]) -> Step:
    seconds = {name: [getattr(each, clock) for each in turns] for name, turns in costs.items()}
    ms = {name: 1e3 * statistics.median(times) for name, times in seconds.items()}

    def ratio(above: str, below: str) -> float | None:
        known = above in seconds and below in seconds
        return median_ratio(seconds[above], seconds[below]) if known else None

    return Step(
        model.name,
        model.title,
        clock,
        ms["replicax"],
        ms["by hand"],
        ms.get("torch"),
        ms.get("tensorflow"),
        median_ratio(seconds["replicax"], seconds["by hand"]),
        ratio("replicax", "torch"),
        ratio("tensorflow", "replicax"),
    )


def steps_section(options: argparse.Namespace, facts: dict[str, str]) -> list[Section]:
    rows: list[Step] = []
    with contextlib.ExitStack() as stack:
        libraries = {}
        for name in options.pythons:
            note(f"workers: {name}")
            libraries[name] = stack.enter_context(start_workers(name, options.workers, options))
        for name, title in (("torch", "torch"), ("tensorflow", "TensorFlow")):
            if name in libraries:
                facts[title] = libraries[name].version
        for name in options.models:
            note(f"step: {MODELS[name].title}")
            rows += measure_step(MODELS[name], libraries, options)
    wall, cpu = ([row for row in rows if row.clock == clock] for clock in Cost._fields)
    return [
        section_of(WORKER_STEPS, WORKER_STEPS.title, wall),
        section_of(WORKER_WORK, WORKER_WORK.title, cpu),
    ]


# Saves


class Saves(NamedTuple):
    """Medians over the turns."""

    megabytes: float
    stopped: float  # seconds that `save` took on the slowest worker, and the next step longer
    written: float  # seconds until it was on the disk
    savez: float  # seconds of np.savez and fsync
    speed: float  # as a share of np.savez's


def saves_section(options: argparse.Namespace) -> Section:
    note(f"saves of {options.megabytes:g} MB")
    stopped, written, savez = [], [], []
    # Beside the results, as /tmp may be in memory.
    with (
        tempfile.TemporaryDirectory(dir=options.folder) as folder,
        start_workers("replicax", options.workers, options) as workers,
    ):
        workers.ask(state=[options.megabytes, folder])
        for turn in range(options.saves + 1):
            answers = workers.ask(save=True)
            alone = workers.ask(savez=True)[0]["written"]
            if turn:  # the first makes the directories
                stopped.append(max(answer["stopped"] for answer in answers))
                written.append(max(answer["written"] for answer in answers))
                savez.append(alone)
    row = Saves(
        options.megabytes,
        statistics.median(stopped),
        statistics.median(written),
        statistics.median(savez),
        median_ratio(savez, written),
    )
    return section_of(SAVES, SAVES.title, [row])


# Starts


class Start(NamedTuple):
    """From the start of the processes to the end of the first step: seconds."""

    library: str
    workers: int
    cold: float
    warm: float  # the median
    found: str  # programs found in the warm cache, of those wanted, by worker


def measure_start(library: str, model: Model, options: argparse.Namespace) -> Start:
    seconds, found = [], ""
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.starts + 1):
            begin = time.perf_counter()
            with start_workers(
                library,
                options.start_workers,
                options,
                JAX_COMPILATION_CACHE_DIR=folder,
                JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
            ) as workers:
                workers.ask(model=model.name)
                workers.ask(steps=1)
                seconds.append(time.perf_counter() - begin)
                counts = workers.ask(cache=True)
                found = ", ".join(f"{count['found']}/{count['wanted']}" for count in counts)
    return Start(library, options.start_workers, seconds[0], statistics.median(seconds[1:]), found)


def starts_section(options: argparse.Namespace) -> Section:
    rows = []
    for library in ("replicax",) if options.quick else ("by hand", "replicax"):
        note(f"start: {library}")
        rows.append(measure_start(library, MODELS[options.start_model], options))
    title = f"{STARTS.title} The model: {MODELS[options.start_model].title}."
    return section_of(STARTS, title, rows)


# Running


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="which tables (default: all)")
    parser.add_argument(
        "--models", nargs="+", choices=MODELS, help=f"by default {', '.join(STANDARD)}"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--threads", type=int, help="of each worker (default: an equal share of the cores)"
    )
    parser.add_argument("--rounds", type=int, default=21, help="turns that each library takes")
    parser.add_argument("--seconds", type=float, default=0.2, help="length of a turn, about")
    parser.add_argument("--max-steps", type=int, default=100, help="most steps in a turn")
    parser.add_argument("--megabytes", type=float, default=200, help="of the state that is saved")
    parser.add_argument("--saves", type=int, default=7, help="turns of the saves")
    parser.add_argument("--folder", type=Path, help="where to save (default: a temporary folder)")
    parser.add_argument("--starts", type=int, default=3, help="starts with a warm cache")
    parser.add_argument("--start-workers", type=int, default=3)
    parser.add_argument("--limit", type=float, default=180, help="seconds that an answer may take")
    parser.add_argument("--quick", action="store_true", help="a trial run of some seconds")
    for name, title in (("torch", "torch"), ("tensorflow", "TensorFlow")):
        parser.add_argument(
            f"--{name}-python",
            metavar="PATH",
            help=f"an interpreter that has {title} (default: this one, if it has)",
        )
    parser.add_argument("--no-peers", action="store_true", help="without torch and TensorFlow")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    options = parser.parse_args(arguments)
    options.only = options.only or list(SECTIONS)
    options.models = options.models or (["tiny"] if options.quick else list(STANDARD))
    options.threads = options.threads or max(core_count() // options.workers, 1)
    options.start_model = "tiny_start" if options.quick else "many_widths"
    if options.quick:
        options.rounds, options.seconds, options.max_steps = 2, 0.01, 3
        options.megabytes, options.saves = 1, 1
        options.starts, options.start_workers = 1, 2
    options.pythons = {"replicax": sys.executable, "by hand": sys.executable}
    for name in () if options.no_peers else ("torch", "tensorflow"):
        given = getattr(options, f"{name}_python")
        if given or importlib.util.find_spec(name):
            options.pythons[name] = given or sys.executable
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_options(arguments)
    facts = machine_facts(None)
    facts |= {"workers": str(options.workers), "threads of each": str(options.threads)}
    before = os.getloadavg()[0]
    sections: list[Section] = []
    if "steps" in options.only:
        sections += steps_section(options, facts)
    if "saves" in options.only:
        sections.append(saves_section(options))
    if "starts" in options.only:
        sections.append(starts_section(options))
    facts["load average"] = f"{before:.1f} before, {os.getloadavg()[0]:.1f} after"
    print_sections(sections, facts, options.markdown)
    write_sections(options.json, sections, facts)


if __name__ == "__main__":
    main()
