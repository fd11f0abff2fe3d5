"""What do sharded state and logical devices save, and what do they cost?"""

import argparse
import os
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.harness import (
    Benchmark,
    Column,
    Goal,
    Options,
    Report,
    Row,
    Side,
    Table,
    Turns,
    Work,
    check_equal,
    take_turns,
)
from benchmarks.harness.benchmark import core_count


def _in_parameters(field: str) -> Callable[[Row], float]:
    """Returns what divides the bytes of a field by the bytes of all parameters (P)."""
    return lambda row: row[field] / (4 * row["parameters"])


STATE = Table(
    "state",
    "State on each device, and the most that a step needs.",
    (
        Column("cut over the replicas", "layout"),
        Column("held, MB", lambda row: row["held"] / 1e6, ".1f"),
        Column("in P", _in_parameters("held"), ".3f"),
        Column("should be", _in_parameters("expected"), ".3f"),
        Column("held / should be", lambda row: row["held"] / row["expected"], ".3f"),
        Column("peak, in P", _in_parameters("peak"), ".2f"),
        Column("peak, annotations", _in_parameters("annotated_peak"), ".2f"),
        Column("peak, shard_map", _in_parameters("mapped_peak"), ".2f"),
    ),
    goals=(
        Goal(
            "state on a device within 5% of what it should be (the share it is off)",
            lambda row: abs(row["held"] / row["expected"] - 1),
            0.05,
        ),
    ),
)
SHARDED_STEPS = Table(
    "steps",
    "Median milliseconds of a step; the losses of all variants agree.",
    (
        Column("cut over the replicas", "layout"),
        Column("replicax", "replicax", ".2f"),
        Column("annotations", "annotated", ".2f"),
        Column("shard_map", "mapped", ".2f"),
        Column("replicax / annotations", "over_annotated", ".3f", "JAX, annotations"),
        Column("replicax / shard_map", "over_mapped", ".3f", "JAX, shard_map"),
    ),
    what="a step with sharded state",
    goals=(
        Goal(
            "at most 1.05 times the faster step by hand", lambda row: row.get("over_faster"), 1.05
        ),
    ),
)
LOGICAL = Table(
    "logical",
    "Median milliseconds of a step on images split over logical devices; the losses agree.",
    (
        Column("replicas of 2 x 2", "replicas"),
        Column("replicax", "replicax", ".2f"),
        Column("annotations", "annotated", ".2f"),
        Column("replicax / annotations", "ratio", ".3f", "JAX, annotations"),
        Column("peak, MB", lambda row: row["peak"] / 1e6, ".1f"),
        Column("peak, annotations", lambda row: row["annotated_peak"] / 1e6, ".1f"),
    ),
    what="a step on split images",
    goals=(Goal("at most 1.05 times the step with annotations", "replicax / annotations", 1.05),),
)

# Of three equal parts of the state (parameters and Adam's two moments), how many are cut.
CUT = {"nothing": 0, "optimizer": 2, "everything": 3}
CHECKED_STEPS = 3
TOLERANCE = 1e-4
# Below these, the smaller models are measured.
LARGE_CORES, LARGE_BYTES = 8, 32e9


def is_large() -> bool:
    """Returns whether this machine has the cores and the memory for the larger models."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return core_count() >= LARGE_CORES and total >= LARGE_BYTES


class Launching(Side):
    """A step that was made already."""

    def __init__(self, step: Any):
        self.step = step

    def prepare(self) -> Work:
        from benchmarks.training.jax_steps import launching

        return launching(self.step.launch)


class Sharded(Benchmark):
    """On virtual CPU devices. `state`: the bytes on each device after steps with Adam on a
    transformer (P: its number of parameters) with 8 replicas, where nothing is cut over the
    replicas (3 P), the optimizer's state is (P + 2 P / 8), and everything is (3 P / 8); and the
    most that a step needs, as the compiler says. `steps`: such a step in an `rx.function`, beside
    the same by hand: *annotations* is `jax.jit` with sharding annotations, *shard_map* a
    `jax.shard_map` with `psum_scatter` and `all_gather`. On the CPU the compiler makes no
    reduce-scatter from annotations, so those steps are slower and need more memory. `logical`: a
    step of a convolutional net on images that are cut in 2 x 2 over the logical devices of a
    replica, beside sharding annotations over the same devices. The larger models (`--model large`)
    need 25 GB and 10 minutes on 16 cores.
    """

    name = "sharded"
    title = "Sharded state and logical devices"
    tables = (STATE, SHARDED_STEPS, LOGICAL)
    parts = ("state", "steps", "logical")
    seconds = 0.1
    max_steps = 200
    clocks = True
    quick = {
        "model": "tiny",
        "replicas": 4,
        "split_replicas": [1],
        "rounds": 2,
        "seconds": 0.01,
    }

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        size = "large" if is_large() else "small"
        text = f"the size of both models (default here: {size})"
        sizes = ("large", "small", "tiny")
        parser.add_argument("--model", choices=sizes, default=size, help=text)
        parser.add_argument("--layouts", nargs="+", choices=CUT, default=list(CUT))
        parser.add_argument("--replicas", type=int, default=8, help="for state and steps")
        parser.set_defaults(split_replicas=[1, 2])

    def measure(self, options: Options, report: Report) -> None:
        from benchmarks.sharded.layouts import TRANSFORMERS
        from benchmarks.sharded.logical import CONVS, LOGICAL_DEVICES
        from benchmarks.training.jax_steps import use_cpu_devices

        use_cpu_devices(max(options.replicas, max(options.split_replicas) * LOGICAL_DEVICES))
        unit = "milliseconds" if options.clock == "wall" else "CPU milliseconds"
        if {"state", "steps"} & {*options.only}:
            states, steps = [], []
            for layout in options.layouts:
                self._layout(layout, options, report, states, steps)
            case = (
                f"{TRANSFORMERS[options.model].title} (P = {states[0]['parameters']:,}) with Adam, "
                f"{options.replicas} replicas"
            )
            if "state" in options.only:
                report.add(STATE, states, f"{STATE.title} {case}.")
            if steps:
                title = f"Median {unit} of a step; the losses of all variants agree. {case}."
                report.add(SHARDED_STEPS, steps, title)
        if "logical" in options.only:
            rows = [self._split(count, options, report) for count in options.split_replicas]
            title = (
                f"Median {unit} of a step on images split over logical devices; the losses "
                f"agree. {CONVS[options.model].title} with Adam."
            )
            report.add(LOGICAL, rows, title)
        report.measured["clock"] = options.clock

    def _layout(
        self, layout: str, options: Options, report: Report, states: list[Row], steps: list[Row]
    ) -> None:
        import jax

        from benchmarks.sharded.layouts import TRANSFORMERS, WAYS
        from benchmarks.training.models import initial_weights

        model, replicas, cut = TRANSFORMERS[options.model], options.replicas, CUT[layout]
        what, keep = f"{model.title}, cut over replicas: {layout}", "steps" in options.only
        given = model, jax.devices()[:replicas], layout
        sides, sizes = build(WAYS, what, keep, report, *given)
        weights = initial_weights(model)
        about = {"layout": layout, "replicas": replicas}
        expected = round((3 - cut + cut / replicas) * sum(weight.nbytes for weight in weights))
        states.append(
            {
                **about,
                "parameters": sum(weight.size for weight in weights),
                "held": sizes["replicax"][0],
                "expected": expected,
                "peak": sizes["replicax"][1],
                "annotated_peak": sizes["annotated"][1],
                "mapped_peak": sizes["mapped"][1],
            }
        )
        if keep:
            turns = self._turns(what, sides, options, report)
            row = turns.row(
                ("replicax", "annotated", "mapped"),
                1e3,
                options.clock,
                over_annotated=("replicax", "annotated"),
                over_mapped=("replicax", "mapped"),
            )
            faster = min(("annotated", "mapped"), key=lambda name: row[name] or 0.0)
            steps.append({**about, **row, "over_faster": row[f"over_{faster}"]})

    def _split(self, replicas: int, options: Options, report: Report) -> Row:
        import jax

        from benchmarks.sharded.logical import CONVS, LOGICAL_DEVICES, SPLIT_WAYS

        model = CONVS[options.model]
        what = f"{model.title}, replicas of {LOGICAL_DEVICES} logical devices: {replicas}"
        devices = jax.devices()[: replicas * LOGICAL_DEVICES]
        sides, sizes = build(SPLIT_WAYS, what, True, report, model, devices)
        turns = self._turns(what, sides, options, report)
        names, ratio = ("replicax", "annotated"), ("replicax", "annotated")
        return {
            "replicas": replicas,
            **turns.row(names, 1e3, options.clock, ratio=ratio),
            "peak": sizes["replicax"][1],
            "annotated_peak": sizes["annotated"][1],
        }

    def _turns(
        self, what: str, sides: dict[str, Launching], options: Options, report: Report
    ) -> Turns:
        report.progress(f"{what}: taking turns")
        return take_turns(sides, options)


def build(
    ways: Mapping[str, Callable[..., Any]], what: str, keep: bool, report: Report, *given: Any
) -> tuple[dict[str, Launching], dict[str, tuple[int, int]]]:
    """Returns the sides of one case, and the bytes on one device: held, and the peak of a step.

    Args:
      ways: how each is made.
      what: the case, in words.
      keep: whether they are wanted afterwards; if not, each is dropped before the next is made.
      report: is told the progress.
      given: what they are made from.
    """
    from benchmarks.training.jax_steps import bytes_on_devices

    sides, sizes, losses = {}, {}, {}
    for name, way in ways.items():
        report.progress(f"{what}: {name}")
        before = bytes_on_devices()
        side = Launching(way(*given))
        losses[name] = side.start((), CHECKED_STEPS)
        now = bytes_on_devices()
        held = max(size - before.get(device, 0) for device, size in now.items())
        sizes[name] = held, side.step.compiled_peak()
        if keep:
            sides[name] = side
        del side
    for name, computed in losses.items():
        check_equal(f"the losses of {name} ({what})", computed, losses["annotated"], TOLERANCE)
    return sides, sizes


BENCHMARKS = (Sharded,)
