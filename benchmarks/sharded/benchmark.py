"""What do sharded state and logical devices save, and what do they cost?"""

import argparse
import os
from collections.abc import Callable, Mapping
from typing import Any

import jax

from benchmarks.harness.benchmark import Benchmark, core_count
from benchmarks.harness.sides import Side, Work, check_equal, take_turns
from benchmarks.harness.tables import Column, Row, Table, at_most
from benchmarks.sharded.layouts import TRANSFORMERS, WAYS
from benchmarks.sharded.logical import CONVS, LOGICAL_DEVICES, SPLIT_WAYS
from benchmarks.training.jax_steps import Step, bytes_on_devices, launching, use_cpu_devices
from benchmarks.training.models import initial_weights

# Of three equal parts of the state (parameters and Adam's two moments), how many are cut.
CUT = {"nothing": 0, "optimizer": 2, "everything": 3}
CHECKED_STEPS = 3
TOLERANCE = 1e-4
# Below these, the smaller models are measured.
LARGE_CORES, LARGE_BYTES = 8, 32e9
ANNOTATIONS = "replicax / annotations"
RATIOS = {"over_annotated": ("replicax", "annotated"), "over_mapped": ("replicax", "mapped")}


def _in_parameters(field: str) -> Callable[[Row], float]:
    """Returns what divides the bytes of a field by the bytes of all parameters (P)."""
    return lambda row: row[field] / (4 * row["parameters"])


def _share_off(row: Row) -> float:
    return abs(row["held"] / row["expected"] - 1)


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
        at_most(
            "state on a device within 5% of what it should be (the share it is off)",
            _share_off,
            0.05,
        ),
    ),
)
SHARDED_STEPS = Table(
    "steps",
    "Median milliseconds of a step; the losses of all variants agree.",
    (
        Column("cut over the replicas", "layout"),
        Column("replicax", form=".2f"),
        Column("annotations", "annotated", ".2f"),
        Column("shard_map", "mapped", ".2f"),
        Column(ANNOTATIONS, "over_annotated", ".3f", "JAX, annotations"),
        Column("replicax / shard_map", "over_mapped", ".3f", "JAX, shard_map"),
    ),
    what="a step with sharded state",
    goals=(
        at_most(
            "at most 1.05 times the faster step by hand", lambda row: row.get("over_faster"), 1.05
        ),
    ),
)
LOGICAL = Table(
    "logical",
    "Median milliseconds of a step on images split over logical devices; the losses agree.",
    (
        Column("replicas of 2 x 2", "replicas"),
        Column("replicax", form=".2f"),
        Column("annotations", "annotated", ".2f"),
        Column(ANNOTATIONS, "ratio", ".3f", "JAX, annotations"),
        Column("peak, MB", lambda row: row["peak"] / 1e6, ".1f"),
        Column("peak, annotations", lambda row: row["annotated_peak"] / 1e6, ".1f"),
    ),
    what="a step on split images",
    goals=(at_most("at most 1.05 times the step with annotations", ANNOTATIONS, 1.05),),
)


class Launching(Side):
    """A step that was made already."""

    def __init__(self, step: Step):
        self.step = step

    def prepare(self) -> Work:
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

    name, title = "sharded", "Sharded state and logical devices"
    tables = (STATE, SHARDED_STEPS, LOGICAL)
    parts = ("state", "steps", "logical")
    seconds, max_steps, clocks = 0.1, 200, True
    quick = dict(model="tiny", replicas=4, split_replicas=[1], rounds=2, seconds=0.01)

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        is_large = core_count() >= LARGE_CORES and memory >= LARGE_BYTES
        size = "large" if is_large else "small"
        text = f"the size of both models (default here: {size})"
        parser.add_argument("--model", choices=TRANSFORMERS, default=size, help=text)
        parser.add_argument("--layouts", nargs="+", choices=CUT, default=list(CUT))
        parser.add_argument("--replicas", type=int, default=8, help="for state and steps")
        parser.set_defaults(split_replicas=[1, 2])

    def measure(self) -> None:
        options, report = self.options, self.report
        use_cpu_devices(max(options.replicas, max(options.split_replicas) * LOGICAL_DEVICES))
        if {"state", "steps"} & {*options.only}:
            states, steps = [], []
            for layout in options.layouts:
                self._layout(layout, states, steps)
            model = f"{TRANSFORMERS[options.model].title} (P = {states[0]['parameters']:,})"
            case = f"{model} with Adam, {options.replicas} replicas"
            if "state" in options.only:
                report.add(STATE, states, f"{STATE.title} {case}.")
            if steps:
                title = f"Median {self.unit} of a step; the losses of all variants agree. {case}."
                report.add(SHARDED_STEPS, steps, title)
        if "logical" in options.only:
            rows = [self._split(count) for count in options.split_replicas]
            title = f"Median {self.unit} of a step on images split over logical devices; the losses"
            report.add(LOGICAL, rows, f"{title} agree. {CONVS[options.model].title} with Adam.")
        report.measured["clock"] = options.clock

    def _layout(self, layout: str, states: list[Row], steps: list[Row]) -> None:
        """Adds the row of a layout to both tables."""
        model, replicas = TRANSFORMERS[self.options.model], self.options.replicas
        what, keep = f"{model.title}, cut over replicas: {layout}", "steps" in self.options.only
        sides, sizes = self._build(WAYS, what, keep, model, jax.devices()[:replicas], layout)
        weights = initial_weights(model)
        parts = 3 - CUT[layout] + CUT[layout] / replicas
        about = {"layout": layout, "replicas": replicas}
        states.append(
            {
                **about,
                "parameters": sum(weight.size for weight in weights),
                "held": sizes["replicax"][0],
                "expected": round(parts * sum(weight.nbytes for weight in weights)),
                "peak": sizes["replicax"][1],
                "annotated_peak": sizes["annotated"][1],
                "mapped_peak": sizes["mapped"][1],
            }
        )
        if keep:
            self.report.progress(f"{what}: taking turns")
            row = take_turns(sides, self.options).row(WAYS, 1e3, self.options.clock, **RATIOS)
            faster = min(("annotated", "mapped"), key=lambda name: row[name] or 0.0)
            steps.append({**about, **row, "over_faster": row[f"over_{faster}"]})

    def _split(self, replicas: int) -> Row:
        model, devices = CONVS[self.options.model], jax.devices()[: replicas * LOGICAL_DEVICES]
        what = f"{model.title}, replicas of {LOGICAL_DEVICES} logical devices: {replicas}"
        sides, sizes = self._build(SPLIT_WAYS, what, True, model, devices)
        self.report.progress(f"{what}: taking turns")
        turns = take_turns(sides, self.options)
        return {
            "replicas": replicas,
            **turns.row(SPLIT_WAYS, 1e3, self.options.clock, ratio=RATIOS["over_annotated"]),
            "peak": sizes["replicax"][1],
            "annotated_peak": sizes["annotated"][1],
        }

    def _build(
        self, ways: Mapping[str, Callable[..., Step]], what: str, keep: bool, *given: Any
    ) -> tuple[dict[str, Launching], dict[str, tuple[int, int]]]:
        """Returns the sides of a case, and the bytes on one device: held, and the peak of a step.

        Args:
          ways: how each is made.
          what: the case, in words.
          keep: whether sides are wanted; if not, each is dropped before the next is made.
          given: what they are made from.
        """
        sides, sizes, losses = {}, {}, {}
        for name, way in ways.items():
            self.report.progress(f"{what}: {name}")
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
