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
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from _child import Child, tensorflow_child
from _report import Section, machine_facts, print_sections, write_sections
from _step_costs import calls, many_steps
from _step_memory import measure_memory
from _step_models import CLOCKS, MODELS, STANDARD, Model
from _step_tables import (
    CALLS,
    FEW,
    GPU_STEPS,
    MANY,
    MANY_STEPS,
    MEMORY,
    STEPS,
    STEPS_IN_ONE,
)
from _step_variants import VARIANTS, launch_many
from _tables import section_of
from _tensorflow_option import add_tensorflow_options, choose_tensorflow

SECTIONS = ("steps", "calls", "memory", "many")
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


# Running


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
    return section_of(GPU_STEPS if options.gpu else STEPS, title, rows), version


def calls_section(options: argparse.Namespace) -> Section:
    rows = []
    for variables in options.variables:
        for count in (each for each in options.devices if each <= 2):
            note(f"call: {variables} variables, devices: {count}")
            rows.append(measure_call(variables, jax.devices()[:count], options))
    return section_of(CALLS, CALLS.title, rows)


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
    title = f"{MEMORY.title} After all is after {options.memory_steps} steps."
    return section_of(MEMORY, title, rows)


def many_section(options: argparse.Namespace) -> Section | None:
    rows = []
    for count in options.devices:
        note(f"many steps, devices: {count}")
        row = measure_many(jax.devices()[:count], options)
        if row is None:
            return None
        rows.append(row)
    return section_of(MANY_STEPS, MANY_STEPS.title, rows)


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
    add_tensorflow_options(parser)
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
    choose_tensorflow(options)
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
    shown = [section for name in SECTIONS if (section := sections.get(name))]
    print_sections(shown, facts, options.markdown)
    write_sections(options.json, shown, facts, clock=options.clock)


if __name__ == "__main__":
    main()
