"""Is a compiled training step as fast as the same step written by hand, and what else does it cost?

One step with Adam over some devices, in median milliseconds, four ways on the same data:

- replicax: `strategy.run` under `MirroredStrategy`, in an `rx.function`;
- by hand: `jax.jit` of a `jax.shard_map` with one `psum` for each gradient, the state donated;
- sharded: `jax.jit` of the step for the whole batch, which is sharded over the devices, donated;
- TensorFlow: its `MirroredStrategy` with a Keras Adam in a `tf.function`, where it is installed.

Then what a call costs beside a call of `jax.jit` with the same arrays, how much memory a step
takes, and what many steps in one call save.

Variants take turns, and ratios are medians over the turns, so that a busy machine slows them all.
Before any time is taken, all must compute the same losses. Run with `--help` for the options.
"""

import argparse
import importlib.util
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from _child import Child, tensorflow_child
from _report import Cells, as_text, format_table, geometric_mean, goal_line, machine_facts
from _step_costs import calls, many_steps
from _step_memory import measure_memory
from _step_models import CLOCKS, MODELS, STANDARD, Model
from _step_variants import VARIANTS, launch_many

BY_HAND_GOAL = 1.03
NARROW_GOAL = 1.0
NARROW_GOAL_8 = 0.4
TENSORFLOW_GOAL = 1.25
TENSORFLOW_MEAN_GOAL = 1.6
CALL_GOAL = 60.0  # microseconds above jax.jit
LARGE_CALL_GOAL = 1.3
PEAK_GOAL = 1.05
MANY_STEPS_GOAL = 3.0
GPU_GOAL = 1.01

SECTIONS = ("steps", "calls", "memory", "many")
FEW, MANY = 10, 500  # variables of a call
STEPS_IN_ONE = 10
CHECKED_STEPS = 3
TOLERANCES = {"float32": 1e-4, "bfloat16": 2e-2}
TENSORFLOW_TOLERANCE = 1e-2

# Runs k times, and returns the seconds of all.
Turn = Callable[[int], float]


# Taking turns


def take_turns(
    turns: dict[str, Turn], counts: dict[str, int], rounds: int
) -> dict[str, list[float]]:
    """The seconds that one run took, for each of the turns."""
    seconds: dict[str, list[float]] = {name: [] for name in turns}
    names = list(turns)
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            seconds[name].append(turns[name](counts[name]) / counts[name])
    return seconds


def counts_for(turns: dict[str, Turn], options: argparse.Namespace) -> dict[str, int]:
    """How often each runs in a turn, so that a turn has about the wanted length."""
    counts = {}
    for name, turn in turns.items():
        once = turn(2) / 2
        counts[name] = min(max(round(options.seconds / once), 1), options.max_steps)
    return counts


def timed(launch: Callable[[], Any], clock: str) -> Turn:
    now = CLOCKS[clock]

    def turn(count: int) -> float:
        begin = now()
        launch_many(launch, count)
        return now() - begin

    return turn


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


# Steps


class Step(NamedTuple):
    """One model on a number of devices: median milliseconds, and medians of the turns' ratios."""

    model: str
    title: str
    devices: int
    replicax: float
    by_hand: float
    sharded: float
    tensorflow: float | None
    over_by_hand: float
    over_sharded: float
    speedup: float | None  # over TensorFlow


def measure_step(
    model: Model, devices: list[Any], tensorflow: Child | None, options: argparse.Namespace
) -> Step:
    variants = {name: kind(model, devices) for name, kind in VARIANTS.items()}
    losses = {
        name: [float(variant.step()) for _ in range(CHECKED_STEPS)]
        for name, variant in variants.items()
    }
    tolerance = TOLERANCES[getattr(model.net, "dtype", "float32")]
    for name, variant in variants.items():
        where = f"{name} ({model.title}, devices: {len(devices)})"
        check_equal(f"the losses of {where}", losses[name], losses["by hand"], tolerance)
        averages = zip(variant.averages(), variants["by hand"].averages(), strict=True)
        for mine, expected in averages:
            check_equal(f"the moving averages of {where}", mine, expected, tolerance)
    turns = {name: timed(variant.step, options.clock) for name, variant in variants.items()}
    if tensorflow is not None:
        tensorflow.ask(model=model.name)
        found = tensorflow.ask(steps=CHECKED_STEPS)["losses"]
        check_equal("the losses of TensorFlow", found, losses["by hand"], TENSORFLOW_TOLERANCE)
        turns["tensorflow"] = lambda count: tensorflow.ask(steps=count)["seconds"]
    seconds = take_turns(turns, counts_for(turns, options), options.rounds)
    ms = {name: 1e3 * statistics.median(times) for name, times in seconds.items()}
    ours = seconds["replicax"]
    return Step(
        model.name,
        model.title,
        len(devices),
        ms["replicax"],
        ms["by hand"],
        ms["sharded"],
        ms.get("tensorflow"),
        median_ratio(ours, seconds["by hand"]),
        median_ratio(ours, seconds["sharded"]),
        median_ratio(seconds["tensorflow"], ours) if tensorflow is not None else None,
    )


def check_equal(what: str, found: Any, expected: Any, tolerance: float) -> None:
    """Raises unless a variant trains as the others do: wrong answers can be fast."""
    if not np.allclose(found, expected, rtol=tolerance, atol=tolerance):
        raise SystemExit(
            f"{what} are {np.asarray(found).tolist()}, and by hand they are "
            f"{np.asarray(expected).tolist()}. The times would not be comparable."
        )


def step_cells(rows: Sequence[Step]) -> list[Cells]:
    cells: list[Cells] = [
        ("model", "devices", "replicax", "by hand", "sharded", "TensorFlow")
        + ("replicax / by hand", "replicax / sharded", "TensorFlow / replicax")
    ]
    for row in rows:
        times = (row.replicax, row.by_hand, row.sharded, row.tensorflow)
        ratios = (row.over_by_hand, row.over_sharded, row.speedup)
        cells.append(
            (row.title, str(row.devices), *map(as_text, times), *(as_text(r, 3) for r in ratios))
        )
    columns = zip(*((row.over_by_hand, row.over_sharded, row.speedup) for row in rows))
    means = (as_text(geometric_mean(column), 3) for column in columns)
    cells.append(("geometric mean", "", "", "", "", "", *means))
    return cells


def step_goals(rows: Sequence[Step], gpu: bool) -> list[str]:
    """Each goal, the row that comes nearest to missing it, and whether it is met."""

    def at_worst(row: Step) -> str:
        return f" at worst ({row.title}, devices: {row.devices})"

    limit = GPU_GOAL if gpu else BY_HAND_GOAL
    worst = max(rows, key=lambda row: row.over_by_hand)
    reached = worst.over_by_hand
    goal = f"at most {limit} times the step by hand"
    lines = [goal_line(goal, reached, reached <= limit, at_worst(worst))]
    narrow = [row for row in rows if row.model == "deep_narrow" and row.devices > 1]
    if narrow:
        worst = max(narrow, key=lambda row: row.over_by_hand)
        reached = worst.over_by_hand
        goal = f"below {NARROW_GOAL} on fifty layers of 16 with 2 or more devices"
        lines.append(goal_line(goal, reached, reached < NARROW_GOAL, at_worst(worst)))
    for row in narrow:
        if row.devices == 8:
            goal = f"and at most {NARROW_GOAL_8} with 8"
            reached = row.over_by_hand
            lines.append(goal_line(goal, reached, reached <= NARROW_GOAL_8))
    several = [row for row in rows if row.speedup is not None and row.devices > 1]
    if several:
        worst = min(several, key=lambda row: row.speedup or 0)
        reached = worst.speedup or 0
        goal = f"at least {TENSORFLOW_GOAL} times faster than TensorFlow with 2 or more devices"
        lines.append(goal_line(goal, reached, reached >= TENSORFLOW_GOAL, at_worst(worst)))
        reached = geometric_mean([row.speedup for row in several]) or 0
        goal = f"and {TENSORFLOW_MEAN_GOAL} times in the geometric mean"
        lines.append(goal_line(goal, reached, reached >= TENSORFLOW_MEAN_GOAL))
    return lines


# Calls


class CallCost(NamedTuple):
    """A trivial compiled function of some variables: median microseconds of a call."""

    variables: int
    devices: int
    replicax: float
    jit: float
    above: float  # the median over the turns of the difference
    ratio: float


def measure_call(variables: int, devices: list[Any], options: argparse.Namespace) -> CallCost:
    turns = {name: timed(call, options.clock) for name, call in calls(variables, devices).items()}
    for turn in turns.values():
        turn(CHECKED_STEPS)
    counts = counts_for(turns, options)
    counts = dict.fromkeys(counts, max(counts.values()))
    seconds = take_turns(turns, counts, 2 * options.rounds)
    ours, jit = seconds["replicax"], seconds["jit"]
    return CallCost(
        variables,
        len(devices),
        1e6 * statistics.median(ours),
        1e6 * statistics.median(jit),
        1e6 * statistics.median(a - b for a, b in zip(ours, jit, strict=True)),
        median_ratio(ours, jit),
    )


def call_cells(rows: Sequence[CallCost]) -> list[Cells]:
    headings = ("variables", "devices", "replicax", "jax.jit", "above", "replicax / jax.jit")
    return [headings] + [
        (str(row.variables), str(row.devices))
        + tuple(as_text(value, 0) for value in (row.replicax, row.jit, row.above))
        + (as_text(row.ratio),)
        for row in rows
    ]


def call_goals(rows: Sequence[CallCost]) -> list[str]:
    lines = []
    if few := [row for row in rows if row.variables == FEW]:
        reached = max(row.above for row in few)
        goal = f"with {FEW} variables at most {CALL_GOAL:g} microseconds above jax.jit"
        lines.append(goal_line(goal, reached, reached <= CALL_GOAL, " at worst"))
    if many := [row for row in rows if row.variables == MANY]:
        reached = max(row.ratio for row in many)
        goal = f"with {MANY} variables at most {LARGE_CALL_GOAL} times jax.jit"
        lines.append(goal_line(goal, reached, reached <= LARGE_CALL_GOAL, " at worst"))
    return lines


# Memory


class Memory(NamedTuple):
    """The bytes of a model's step; the peaks are of one device."""

    model: str
    title: str
    devices: int
    early: int  # live after 2 steps
    late: int  # live after all
    peak: int
    by_hand_peak: int

    @property
    def ratio(self) -> float:
        return self.peak / self.by_hand_peak


def measure_model_memory(model: Model, devices: int, options: argparse.Namespace) -> Memory:
    ours, by_hand = (
        measure_memory(model.name, variant, devices, options.memory_steps, options.gpu)
        for variant in ("replicax", "by hand")
    )
    return Memory(
        model.name,
        model.title,
        devices,
        ours["early"],
        ours["late"],
        ours["peak"],
        by_hand["peak"],
    )


def memory_cells(rows: Sequence[Memory], steps: int) -> list[Cells]:
    headings = ("model", "devices", "live after 2 steps", f"after {steps}")
    headings += ("peak", "peak by hand", "replicax / by hand")
    return [headings] + [
        (row.title, str(row.devices))
        + tuple(f"{size:,}" for size in (row.early, row.late, row.peak, row.by_hand_peak))
        + (as_text(row.ratio, 3),)
        for row in rows
    ]


def memory_goals(rows: Sequence[Memory], steps: int) -> list[str]:
    grown = max(row.late / row.early for row in rows)
    goal = f"live bytes after {steps} steps as after 2"
    lines = [goal_line(goal, grown, grown == 1, " times at worst")]
    worst = max(rows, key=lambda row: row.ratio)
    goal = f"a peak of at most {PEAK_GOAL} times the step by hand"
    where = f" at worst ({worst.title}, devices: {worst.devices})"
    return [*lines, goal_line(goal, worst.ratio, worst.ratio <= PEAK_GOAL, where)]


# Many steps in one call


class ManySteps(NamedTuple):
    """Some small steps in as many calls, and in one: median microseconds of all."""

    devices: int
    calls: float
    one_call: float
    speedup: float


def measure_many(devices: list[Any], options: argparse.Namespace) -> ManySteps | None:
    ways = many_steps(MODELS["tiny"], devices, STEPS_IN_ONE)
    if ways is None:
        return None
    losses = {name: np.asarray(way()).tolist() for name, way in ways.items()}
    for _ in range(2):
        check_equal(
            f"the losses of {STEPS_IN_ONE} steps in one call",
            losses["one call"],
            losses["calls"],
            TOLERANCES["float32"],
        )
        losses = {name: np.asarray(way()).tolist() for name, way in ways.items()}
    turns = {name: timed(way, options.clock) for name, way in ways.items()}
    seconds = take_turns(turns, counts_for(turns, options), options.rounds)
    return ManySteps(
        len(devices),
        1e6 * statistics.median(seconds["calls"]),
        1e6 * statistics.median(seconds["one call"]),
        median_ratio(seconds["calls"], seconds["one call"]),
    )


def many_cells(rows: Sequence[ManySteps]) -> list[Cells]:
    return [("devices", f"{STEPS_IN_ONE} calls", "one call", "times faster")] + [
        (str(row.devices), as_text(row.calls, 0), as_text(row.one_call, 0), as_text(row.speedup))
        for row in rows
    ]


def many_goals(rows: Sequence[ManySteps]) -> list[str]:
    reached = min(row.speedup for row in rows)
    goal = f"{STEPS_IN_ONE} small steps in one call at least {MANY_STEPS_GOAL:g} times faster"
    return [goal_line(goal, reached, reached >= MANY_STEPS_GOAL, " at worst")]


# Running


class Section(NamedTuple):
    """What is printed of one question."""

    name: str
    title: str
    rows: list[Any]
    cells: list[Cells]
    goals: list[str]


def note(text: str) -> None:
    print(f"{text} ...", file=sys.stderr)


def steps_section(options: argparse.Namespace) -> tuple[Section, str | None]:
    version = None
    found: dict[tuple[str, int], Step] = {}
    for count in options.devices:
        tensorflow = None
        if options.tensorflow_python:
            tensorflow = tensorflow_child(
                "_step_tensorflow.py", options.tensorflow_python, count, options.clock
            )
            version = tensorflow.answer()["version"]
        try:
            for name in options.models:
                note(f"step: {MODELS[name].title}, devices: {count}")
                devices = jax.devices()[:count]
                found[name, count] = measure_step(MODELS[name], devices, tensorflow, options)
        finally:
            if tensorflow is not None:
                tensorflow.close()
    rows = [found[name, count] for name in options.models for count in options.devices]
    unit = "milliseconds" if options.clock == "wall" else "CPU milliseconds"
    title = f"Median {unit} of a step; the losses of all variants agree."
    return Section("steps", title, rows, step_cells(rows), step_goals(rows, options.gpu)), version


def calls_section(options: argparse.Namespace) -> Section:
    rows = []
    for variables in options.variables:
        for count in (each for each in options.devices if each <= 2):
            note(f"call: {variables} variables, devices: {count}")
            rows.append(measure_call(variables, jax.devices()[:count], options))
    title = "Median microseconds of a call that adds one to each variable."
    return Section("calls", title, rows, call_cells(rows), call_goals(rows))


def memory_section(options: argparse.Namespace) -> Section:
    cases = [
        (MODELS[name], count)
        for name in options.models
        for count in sorted({min(options.devices), max(options.devices)})
    ]
    rows = []
    for model, count in cases[-1:] if options.quick else cases:
        note(f"memory: {model.title}, devices: {count}")
        rows.append(measure_model_memory(model, count, options))
    title = "Bytes: of live arrays on all devices, and the most that a step needs on one."
    steps = options.memory_steps
    return Section("memory", title, rows, memory_cells(rows, steps), memory_goals(rows, steps))


def many_section(options: argparse.Namespace) -> Section | None:
    rows = []
    for count in options.devices:
        note(f"many steps, devices: {count}")
        row = measure_many(jax.devices()[:count], options)
        if row is None:
            return None
        rows.append(row)
    title = f"Median microseconds of {STEPS_IN_ONE} steps of a tiny model."
    return Section("many", title, rows, many_cells(rows), many_goals(rows))


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="which tables (default: all)")
    parser.add_argument(
        "--models", nargs="+", choices=MODELS, help=f"by default {', '.join(STANDARD)}"
    )
    parser.add_argument("--devices", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument(
        "--gpu",
        action="store_true",
        help="a large bf16 transformer on one GPU, in place of models on virtual CPU devices",
    )
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="cpu counts the processor time of all threads, which a busy machine disturbs less",
    )
    parser.add_argument("--rounds", type=int, default=21, help="turns that each variant takes")
    parser.add_argument(
        "--seconds", type=float, help="length of a turn, about (default: 0.1, or 1 with --gpu)"
    )
    parser.add_argument("--max-steps", type=int, default=200, help="most steps in a turn")
    parser.add_argument("--quick", action="store_true", help="a trial run of a few seconds")
    parser.add_argument(
        "--tensorflow-python",
        metavar="PATH",
        help="an interpreter that has TensorFlow (default: this one, if it has)",
    )
    parser.add_argument("--no-tensorflow", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    options = parser.parse_args(arguments)
    options.only = options.only or list(SECTIONS)
    options.variables, options.memory_steps = [FEW, MANY], 100
    standard = ["large"] if options.gpu else list(STANDARD)
    if options.gpu:
        options.devices, options.no_tensorflow = [1], True
    options.seconds = options.seconds or (1.0 if options.gpu else 0.1)
    if options.quick:
        standard = ["tiny_large"] if options.gpu else ["tiny", "tiny_conv"]
        options.devices = options.devices[:2]
        options.rounds, options.seconds, options.memory_steps = 2, 0.01, 6
        options.variables = [FEW]
    options.models = options.models or standard
    if options.no_tensorflow:
        options.tensorflow_python = None
    elif options.tensorflow_python is None and importlib.util.find_spec("tensorflow"):
        options.tensorflow_python = sys.executable
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_options(arguments)
    sections: dict[str, Section | None] = {}
    version = None
    # In processes of its own, and first: two processes do not fit on one GPU.
    if "memory" in options.only:
        sections["memory"] = memory_section(options)
    if not options.gpu:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", max(options.devices))
    if "calls" in options.only:
        sections["calls"] = calls_section(options)
    if "many" in options.only:
        sections["many"] = many_section(options)
    if "steps" in options.only:
        sections["steps"], version = steps_section(options)
    facts = machine_facts(version)
    if options.gpu:
        facts["GPU"] = jax.devices()[0].device_kind
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    shown = [sections[name] for name in SECTIONS if sections.get(name)]
    for section in filter(None, shown):
        print(f"\n{section.title}\n\n{format_table(section.cells, options.markdown)}\n")
        for line in section.goals:
            print(f"- {line}" if options.markdown else line)
    if options.json:
        report: dict[str, Any] = {"machine": facts, "clock": options.clock}
        for section in filter(None, shown):
            report[section.name] = [row._asdict() for row in section.rows]
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
