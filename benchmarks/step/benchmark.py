"""Is a compiled training step as fast as the same step by hand, and what else does it cost?"""

import argparse
import copy
import statistics
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.processes import Processes
from benchmarks.harness.sides import take_turns
from benchmarks.harness.tables import Column, Row, Table, at_least, at_most, columns
from benchmarks.step.costs import CALLS_OF, MANY_STEPS_OF, Launched
from benchmarks.training.jax_steps import JaxStep, use_cpu_devices
from benchmarks.training.models import MODELS

FEW, MANY = 10, 500  # variables of a call
STEPS_IN_ONE = 10
CHECKED_STEPS = 3
BY_HAND, SHARDED, TENSORFLOW = "replicax / by hand", "replicax / sharded", "TensorFlow / replicax"


def _several(row: Row) -> bool:
    return row["devices"] > 1


def _narrow(row: Row) -> bool:
    return row.get("model") == "deep_narrow" and row["devices"] > 1


def _growth(row: Row) -> float:
    return row["late"] / row["early"]


SIDES = ("replicax", "by_hand", "sharded", "tensorflow")
RATIOS = {
    "over_by_hand": ("replicax", "by_hand"),
    "over_sharded": ("replicax", "sharded"),
    "speedup": ("tensorflow", "replicax"),
}
STEPS = Table(
    "steps",
    "Median milliseconds of a step; the losses of all variants agree.",
    (
        Column("model", "title"),
        Column("devices"),
        *columns(".2f", "replicax", "by hand", "sharded", "TensorFlow"),
        Column(BY_HAND, "over_by_hand", ".3f", "JAX by hand"),
        Column(SHARDED, "over_sharded", ".3f", "JAX, sharded batch"),
        Column(TENSORFLOW, "speedup", ".3f", "TensorFlow", faster=True),
    ),
    what="a compiled step",
    labels=2,
    mean=True,
    goals=(
        at_most("at most 1.03 times the step by hand", BY_HAND, 1.03),
        at_most("at most 1 on fifty layers of 16 with 2 or more devices", BY_HAND, 1.0, _narrow),
        at_most(
            "and at most 0.4 with 8", BY_HAND, 0.4, lambda row: _narrow(row) and row["devices"] == 8
        ),
        at_least(
            "at least 1.25 times faster than TensorFlow with 2 or more devices",
            TENSORFLOW,
            1.25,
            _several,
        ),
        at_least("and 1.6 times in the geometric mean", TENSORFLOW, 1.6, _several, mean=True),
    ),
)
GPU_STEPS = replace(
    STEPS,
    what="a compiled step, on a GPU",
    goals=(at_most("at most 1.01 times the step by hand", BY_HAND, 1.01),),
    mean=False,
)
CALLS = Table(
    "calls",
    "Median microseconds of a call that adds one to each variable.",
    (
        *columns("", "variables", "devices"),
        Column("replicax", form=".0f"),
        Column("jax.jit", "jit", ".0f"),
        Column("above", form=".0f"),
        Column("replicax / jax.jit", "ratio", ".2f", "jax.jit"),
    ),
    what="a call of a compiled function",
    labels=2,
    goals=(
        at_most(
            f"with {FEW} variables at most 60 microseconds above jax.jit",
            "above",
            60,
            lambda row: row["variables"] == FEW,
        ),
        at_most(
            f"with {MANY} variables at most 1.3 times jax.jit",
            "replicax / jax.jit",
            1.3,
            lambda row: row["variables"] == MANY,
        ),
    ),
)
MEMORY = Table(
    "memory",
    "Bytes: of live arrays on all devices, and the most that a step needs on one.",
    (
        Column("model", "title"),
        Column("devices"),
        Column("live after 2 steps", "early", ","),
        Column("after all", "late", ","),
        Column("peak", form=","),
        Column("peak by hand", "by_hand_peak", ","),
        Column(BY_HAND, lambda row: row["peak"] / row["by_hand_peak"], ".3f", "JAX by hand"),
    ),
    what="memory of a compiled step",
    labels=2,
    goals=(
        at_most("live bytes after all steps as after 2, times", _growth, 1.0),
        at_most("a peak of at most 1.05 times the step by hand", BY_HAND, 1.05),
    ),
)
MANY_STEPS = Table(
    "many",
    f"Median microseconds of {STEPS_IN_ONE} steps of a tiny model.",
    (
        Column("devices"),
        Column(f"{STEPS_IN_ONE} calls", "calls", ".0f"),
        Column("one call", form=".0f"),
        Column("times faster", "speedup", ".1f"),
        Column("by hand in calls", "by_hand_calls", ".0f"),
        Column("in one call", "by_hand_one_call", ".0f"),
        Column("times faster by hand", "by_hand_speedup", ".1f"),
        Column("one call / by hand", "over_by_hand", ".2f", "JAX by hand, a scan in shard_map"),
    ),
    what="ten steps in one call",
    goals=(
        at_least(
            f"{STEPS_IN_ONE} small steps in one call at least 3 times faster", "times faster", 3.0
        ),
    ),
)


class Step(Benchmark):
    """A training step with Adam on virtual CPU devices, of six models: ours in an `rx.function`;
    *by hand*, `jax.jit` of a `jax.shard_map` with one `psum` for each gradient and the state
    donated; *sharded*, `jax.jit` of the step for the whole batch, which is sharded over the
    devices; and *TensorFlow*, its `MirroredStrategy` in a `tf.function`, with the Keras Adam.
    Then what a call costs beside a call of `jax.jit` with the same arrays (`calls`), how much
    memory a step takes (`memory`), and what ten tiny steps in one call save (`many`), beside the
    same by hand.
    """

    name, title, tables = "step", "Compiled steps", (STEPS, CALLS, MEMORY, MANY_STEPS)
    peers = ("tensorflow",)
    parts = ("steps", "calls", "memory", "many")
    seconds, max_steps, clocks = 0.1, 200, True
    quick = {
        "models": ["tiny", "tiny_conv"],
        "devices": [1, 2],
        "variables": [FEW],
        "memory_steps": 6,
        "rounds": 2,
        "seconds": 0.01,
    }
    models: Sequence[str] = (
        "small_net",
        "six_wide",
        "mlp",
        "deep_narrow",
        "conv",
        "transformer",
    )
    devices: Sequence[int] = (1, 2, 4, 8)

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        models = list(self.models)
        text = f"by default {', '.join(models)}"
        parser.add_argument("--models", nargs="+", choices=MODELS, default=models, help=text)
        parser.add_argument("--devices", nargs="+", type=int, default=list(self.devices))
        parser.set_defaults(variables=[FEW, MANY], memory_steps=100)

    def measure(self) -> None:
        # Memory is measured in processes of its own, and first: two do not fit on one GPU. Steps
        # come last, as calls are so short that arrays which others left would show in them.
        order = {"memory": self._memory, "calls": self._calls, "many": self._many}
        rows = {}
        for part, measured in (order | {"steps": self._steps}).items():
            if part in self.options.only:
                if part != "memory" and not self.gpu:
                    use_cpu_devices(max(self.options.devices))
                rows[part] = measured()
        titles = {
            "steps": f"Median {self.unit} of a step; the losses of all variants agree.",
            "memory": f"{MEMORY.title} After all is after {self.options.memory_steps} steps.",
        }
        for table in self.tables:
            if table.key in rows:
                self.report.add(table, rows[table.key], titles.get(table.key, ""))

    def _steps(self) -> list[Row]:
        rows: dict[tuple[str, int], Row] = {}
        local = {way: JaxStep(way) for way in ("replicax", "by_hand", "sharded")}
        for devices in self.options.devices:
            peer = ("benchmarks.training.tensorflow_steps:TensorFlow", devices)
            with self.beside_peers(local, tensorflow=peer) as sides:
                for name in self.options.models:
                    model, case = MODELS[name], (name, devices)
                    what = f"{model.title}, devices: {devices}"
                    bfloat16 = getattr(model.net, "dtype", "") == "bfloat16"
                    most = dict.fromkeys(sides, 2e-2 if bfloat16 else 1e-4) | {"tensorflow": 1e-2}
                    turns = self.turns(sides, case, CHECKED_STEPS, what, "by_hand", most)
                    about = {"model": name, "title": model.title, "devices": devices}
                    rows[case] = about | turns.row(SIDES, 1e3, self.options.clock, **RATIOS)
        return [rows[n, devices] for n in self.options.models for devices in self.options.devices]

    def _calls(self) -> list[Row]:
        rows = []
        options = copy.copy(self.options)
        options.rounds *= 2
        for variables in options.variables:
            for devices in options.devices:
                self.report.progress(f"call: {variables} variables, devices: {devices}")
                sides = {name: Launched(call) for name, call in CALLS_OF.items()}
                for side in sides.values():
                    side.start((variables, devices), CHECKED_STEPS)
                turns = take_turns(sides, options, alike=True)
                ours, jit = (turns.seconds(name, options.clock) for name in sides)
                above = 1e6 * statistics.median(a - b for a, b in zip(ours, jit))
                row = turns.row(sides, 1e6, options.clock, ratio=("replicax", "jit"))
                rows.append({"variables": variables, "devices": devices, "above": above, **row})
        return rows

    def _memory(self) -> list[Row]:
        counts = sorted({min(self.options.devices), max(self.options.devices)})
        cases = [(name, devices) for name in self.options.models for devices in counts]
        rows = []
        for name, devices in cases[-1:] if self.options.quick else cases:
            about = {"model": name, "title": MODELS[name].title, "devices": devices}
            self.report.progress(f"memory: {MODELS[name].title}, devices: {devices}")
            ours, by_hand = (self._memory_of(way, name, devices) for way in ("replicax", "by_hand"))
            rows.append({**about, **ours, "by_hand_peak": by_hand["peak"]})
        return rows

    def _memory_of(self, way: str, name: str, devices: int) -> dict[str, int]:
        platform = {} if self.gpu else {"JAX_PLATFORMS": "cpu"}
        platform["JAX_NUM_CPU_DEVICES"] = str(devices)
        address = "benchmarks.training.jax_steps:JaxStep"
        with Processes(address, way, gpu=self.gpu, variables=platform) as process:
            return process.ask("memory", name, devices, self.options.memory_steps)[0]

    def _many(self) -> list[Row]:
        rows = []
        for devices in self.options.devices:
            sides = {name: Launched(way) for name, way in MANY_STEPS_OF.items()}
            what = f"{STEPS_IN_ONE} steps, devices: {devices}"
            turns = self.turns(sides, (devices, STEPS_IN_ONE), 1, what, "calls")
            ratios = {
                "speedup": ("calls", "one_call"),
                "by_hand_speedup": ("by_hand_calls", "by_hand_one_call"),
                "over_by_hand": ("one_call", "by_hand_one_call"),
            }
            row = turns.row(sides, 1e6, self.options.clock, **ratios)
            rows.append({"devices": devices, **row})
        return rows


class StepGpu(Step):
    """The same on one GPU, with a large transformer in bf16. There is nobody to reduce with: this
    is what the rest of a step costs.
    """

    name, title = "step_gpu", "Compiled steps on a GPU"
    tables = (GPU_STEPS, CALLS, MEMORY, MANY_STEPS)
    peers, chosen = (), ("steps",)
    seconds, gpu = 1.0, True
    models, devices = ("large",), (1,)
    quick = {**Step.quick, "models": ["tiny_large"], "devices": [1]}


BENCHMARKS = (Step, StepGpu)
