"""Is a compiled training step as fast as the same step by hand, and what else does it cost?"""

import argparse
import contextlib
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.harness import (
    Benchmark,
    Column,
    Goal,
    Options,
    Processes,
    Report,
    Row,
    Side,
    Table,
    check_equal,
    start_alike,
    take_turns,
)

FEW, MANY = 10, 500  # variables of a call


def _several(row: Row) -> bool:
    return row["devices"] > 1


def _narrow(row: Row) -> bool:
    return row.get("model") == "deep_narrow" and row["devices"] > 1


def _narrow_8(row: Row) -> bool:
    return row.get("model") == "deep_narrow" and row["devices"] == 8


BY_HAND, SHARDED, TENSORFLOW = "replicax / by hand", "replicax / sharded", "TensorFlow / replicax"

STEPS = Table(
    "steps",
    "Median milliseconds of a step; the losses of all variants agree.",
    (
        Column("model", "title"),
        Column("devices", "devices"),
        Column("replicax", "replicax", ".2f"),
        Column("by hand", "by_hand", ".2f"),
        Column("sharded", "sharded", ".2f"),
        Column("TensorFlow", "tensorflow", ".2f"),
        Column(BY_HAND, "over_by_hand", ".3f", "JAX by hand"),
        Column(SHARDED, "over_sharded", ".3f", "JAX, sharded batch"),
        Column(TENSORFLOW, "speedup", ".3f", "TensorFlow", faster=True),
    ),
    what="a compiled step",
    labels=2,
    mean=True,
    goals=(
        Goal("at most 1.03 times the step by hand", BY_HAND, 1.03),
        Goal("at most 1 on fifty layers of 16 with 2 or more devices", BY_HAND, 1.0, only=_narrow),
        Goal("and at most 0.4 with 8", BY_HAND, 0.4, only=_narrow_8),
        Goal(
            "at least 1.25 times faster than TensorFlow with 2 or more devices",
            TENSORFLOW,
            1.25,
            at_least=True,
            only=_several,
        ),
        Goal(
            "and 1.6 times in the geometric mean",
            TENSORFLOW,
            1.6,
            at_least=True,
            mean=True,
            only=_several,
        ),
    ),
)
GPU_STEPS = replace(
    STEPS,
    what="a compiled step, on a GPU",
    goals=(Goal("at most 1.01 times the step by hand", BY_HAND, 1.01),),
    mean=False,
)
CALLS = Table(
    "calls",
    "Median microseconds of a call that adds one to each variable.",
    (
        Column("variables", "variables"),
        Column("devices", "devices"),
        Column("replicax", "replicax", ".0f"),
        Column("jax.jit", "jit", ".0f"),
        Column("above", "above", ".0f"),
        Column("replicax / jax.jit", "ratio", ".2f", "jax.jit"),
    ),
    what="a call of a compiled function",
    labels=2,
    goals=(
        Goal(
            f"with {FEW} variables at most 60 microseconds above jax.jit",
            "above",
            60,
            only=lambda row: row["variables"] == FEW,
        ),
        Goal(
            f"with {MANY} variables at most 1.3 times jax.jit",
            "replicax / jax.jit",
            1.3,
            only=lambda row: row["variables"] == MANY,
        ),
    ),
)
MEMORY = Table(
    "memory",
    "Bytes: of live arrays on all devices, and the most that a step needs on one.",
    (
        Column("model", "title"),
        Column("devices", "devices"),
        Column("live after 2 steps", "early", ","),
        Column("after all", "late", ","),
        Column("peak", "peak", ","),
        Column("peak by hand", "by_hand_peak", ","),
        Column(BY_HAND, lambda row: row["peak"] / row["by_hand_peak"], ".3f", "JAX by hand"),
    ),
    what="memory of a compiled step",
    labels=2,
    goals=(
        Goal(
            "live bytes after all steps as after 2, times",
            lambda row: row["late"] / row["early"],
            1.0,
        ),
        Goal("a peak of at most 1.05 times the step by hand", BY_HAND, 1.05),
    ),
)
STEPS_IN_ONE = 10
MANY_STEPS = Table(
    "many",
    f"Median microseconds of {STEPS_IN_ONE} steps of a tiny model.",
    (
        Column("devices", "devices"),
        Column(f"{STEPS_IN_ONE} calls", "calls", ".0f"),
        Column("one call", "one_call", ".0f"),
        Column("times faster", "speedup", ".1f"),
    ),
    goals=(
        Goal(
            f"{STEPS_IN_ONE} small steps in one call at least 3 times faster",
            "times faster",
            3.0,
            at_least=True,
        ),
    ),
)

CHECKED_STEPS = 3
TENSORFLOW_TOLERANCE = 1e-2


class Step(Benchmark):
    """A training step with Adam on virtual CPU devices, of four models: ours in an `rx.function`;
    *by hand*, `jax.jit` of a `jax.shard_map` with one `psum` for each gradient and the state
    donated; *sharded*, `jax.jit` of the step for the whole batch, which is sharded over the
    devices; and *TensorFlow*, its `MirroredStrategy` in a `tf.function`, with the Keras Adam.
    Then what a call costs beside a call of `jax.jit` with the same arrays (`calls`), how much
    memory a step takes (`memory`), and what ten tiny steps in one call save (`many`).
    """

    name = "step"
    title = "Compiled steps"
    tables = (STEPS, CALLS, MEMORY, MANY_STEPS)
    peers = ("tensorflow",)
    parts = ("steps", "calls", "memory", "many")
    seconds = 0.1
    max_steps = 200
    clocks = True
    models: Sequence[str] = ("mlp", "deep_narrow", "conv", "transformer")
    devices: Sequence[int] = (1, 2, 4, 8)
    quick = {
        "models": ["tiny", "tiny_conv"],
        "devices": [1, 2],
        "variables": [FEW],
        "memory_steps": 6,
        "rounds": 2,
        "seconds": 0.01,
    }

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        from benchmarks.training.models import MODELS

        models = list(self.models)
        text = f"by default {', '.join(models)}"
        parser.add_argument("--models", nargs="+", choices=MODELS, default=models, help=text)
        parser.add_argument("--devices", nargs="+", type=int, default=list(self.devices))
        parser.set_defaults(variables=[FEW, MANY], memory_steps=100)

    def measure(self, options: Options, report: Report) -> None:
        # Memory is measured in processes of its own, and first: two do not fit on one GPU. Steps
        # come last, as calls are so short that arrays which others left would show in them.
        order = {"memory": self._memory, "calls": self._calls, "many": self._many}
        rows = {}
        for part, measured in (order | {"steps": self._steps}).items():
            if part in options.only:
                rows[part] = measured(options, report)
        unit = "milliseconds" if options.clock == "wall" else "CPU milliseconds"
        titles = {
            "steps": f"Median {unit} of a step; the losses of all variants agree.",
            "memory": f"{MEMORY.title} After all is after {options.memory_steps} steps.",
        }
        for table in self.tables:
            if table.key in rows:
                report.add(table, rows[table.key], titles.get(table.key, ""))

    def _use_devices(self, options: Options) -> None:
        if not self.gpu:
            from benchmarks.training.jax_steps import use_cpu_devices

            use_cpu_devices(max(options.devices))

    def _steps(self, options: Options, report: Report) -> list[Row]:
        from benchmarks.training.jax_steps import JaxStep
        from benchmarks.training.models import MODELS

        self._use_devices(options)
        rows: dict[tuple[str, int], Row] = {}
        for devices in options.devices:
            with contextlib.ExitStack() as stack:
                local = {way: JaxStep(way) for way in ("replicax", "by_hand", "sharded")}
                sides: dict[str, Side | Processes] = {**local}
                if python := options.pythons.get("tensorflow"):
                    address = "benchmarks.training.tensorflow_steps:TensorFlow"
                    peer = stack.enter_context(Processes(address, devices, python=python))
                    sides["tensorflow"] = peer
                    report.versions["TensorFlow"] = peer.version
                for name in options.models:
                    model = MODELS[name]
                    what = f"{model.title}, devices: {devices}"
                    report.progress(f"step: {what}")
                    bfloat16 = getattr(model.net, "dtype", "") == "bfloat16"
                    tolerances = dict.fromkeys(sides, 2e-2 if bfloat16 else 1e-4)
                    tolerances["tensorflow"] = TENSORFLOW_TOLERANCE
                    case = name, devices
                    start_alike(sides, case, CHECKED_STEPS, what, "by_hand", tolerances)
                    for way, side in local.items():
                        averages = zip(side.step.averages(), local["by_hand"].step.averages())
                        for mine, expected in averages:
                            text = f"the moving averages of {way} ({what})"
                            check_equal(text, mine, expected, tolerances[way])
                    rows[case] = {
                        "model": name,
                        "title": model.title,
                        "devices": devices,
                        **take_turns(sides, options).row(
                            ("replicax", "by_hand", "sharded", "tensorflow"),
                            1e3,
                            options.clock,
                            over_by_hand=("replicax", "by_hand"),
                            over_sharded=("replicax", "sharded"),
                            speedup=("tensorflow", "replicax"),
                        ),
                    }
        return [rows[name, devices] for name in options.models for devices in options.devices]

    def _calls(self, options: Options, report: Report) -> list[Row]:
        from benchmarks.step.costs import CALLS_OF, Launched

        self._use_devices(options)
        rows = []
        for variables in options.variables:
            for devices in (each for each in options.devices if each <= 2):
                report.progress(f"call: {variables} variables, devices: {devices}")
                sides = {name: Launched(call) for name, call in CALLS_OF.items()}
                for side in sides.values():
                    side.start((variables, devices), CHECKED_STEPS)
                turns = take_turns(sides, replaced(options, rounds=2 * options.rounds), alike=True)
                clock = options.clock
                pairs = zip(turns.seconds("replicax", clock), turns.seconds("jit", clock))
                rows.append(
                    {
                        "variables": variables,
                        "devices": devices,
                        "above": 1e6 * statistics.median(ours - jit for ours, jit in pairs),
                        **turns.row(("replicax", "jit"), 1e6, clock, ratio=("replicax", "jit")),
                    }
                )
        return rows

    def _memory(self, options: Options, report: Report) -> list[Row]:
        from benchmarks.training.models import MODELS

        counts = sorted({min(options.devices), max(options.devices)})
        cases = [(name, devices) for name in options.models for devices in counts]
        rows = []
        for name, devices in cases[-1:] if options.quick else cases:
            report.progress(f"memory: {MODELS[name].title}, devices: {devices}")
            ours, by_hand = (
                self._memory_of(way, name, devices, options.memory_steps)
                for way in ("replicax", "by_hand")
            )
            about = {"model": name, "title": MODELS[name].title, "devices": devices}
            rows.append({**about, **ours, "by_hand_peak": by_hand["peak"]})
        return rows

    def _memory_of(self, way: str, name: str, devices: int, steps: int) -> dict[str, int]:
        platform = {"JAX_NUM_CPU_DEVICES": str(devices)}
        if not self.gpu:
            platform["JAX_PLATFORMS"] = "cpu"
        address = "benchmarks.training.jax_steps:JaxStep"
        with Processes(address, way, gpu=self.gpu, **platform) as process:
            return process.ask("memory", name, devices, steps)[0]

    def _many(self, options: Options, report: Report) -> list[Row]:
        from benchmarks.step.costs import MANY_STEPS_OF, Launched

        self._use_devices(options)
        rows = []
        for devices in options.devices:
            report.progress(f"many steps, devices: {devices}")
            sides = {name: Launched(way) for name, way in MANY_STEPS_OF.items()}
            what = f"{STEPS_IN_ONE} steps, devices: {devices}"
            start_alike(sides, (devices, STEPS_IN_ONE), 1, what, "calls")
            turns = take_turns(sides, options)
            row = turns.row(
                ("calls", "one_call"), 1e6, options.clock, speedup=("calls", "one_call")
            )
            rows.append({"devices": devices, **row})
        return rows


def replaced(options: Options, **changes: Any) -> Options:
    """Returns the options with some changed."""
    return Options(**vars(options) | changes)


class StepGpu(Step):
    """The same on one GPU, with a large transformer in bf16. There is nobody to reduce with: this
    is what the rest of a step costs.
    """

    name = "step_gpu"
    title = "Compiled steps on a GPU"
    tables = (GPU_STEPS, CALLS, MEMORY, MANY_STEPS)
    peers = ()
    chosen = ("steps",)
    seconds = 1.0
    gpu = True
    models = ("large",)
    devices = (1,)
    quick = {**Step.quick, "models": ["tiny_large"], "devices": [1]}


BENCHMARKS = (Step, StepGpu)
