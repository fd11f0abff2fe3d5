"""How long does the first call of a compiled step take, which traces and compiles it?"""

import argparse
import os
import statistics
import subprocess
import sys

from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.processes import Processes
from benchmarks.harness.sides import check_equal
from benchmarks.harness.tables import Column, Row, Table, at_most, columns
from benchmarks.training.models import MODELS


def _speedup(row: Row) -> float | None:
    return row.get("tensorflow") and row["tensorflow"] / row["replicax"]


FIRST_CALL = Table(
    "first_call",
    "Seconds of the first call, which traces and compiles.",
    (
        Column("devices"),
        *columns(".2f", "replicax", "by hand", "TensorFlow"),
        Column(
            "replicax / by hand", lambda row: row["replicax"] / row["by_hand"], ".2f", "JAX by hand"
        ),
        Column("TensorFlow / replicax", _speedup, ".2f", "TensorFlow", faster=True),
    ),
    what="the first call of a step",
)


IMPORTS = Table(
    "imports",
    "Processor seconds of a new process that only imports.",
    (
        *columns(".2f", "jax", "replicax"),
        Column("more", lambda row: row["replicax"] - row["jax"], ".3f"),
    ),
    goals=(at_most("replicax takes at most 0.1 s more than JAX", "more", 0.1),),
)
_IMPORT = """
import resource, {module}
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime)
"""


class FirstCall(Benchmark):
    """Seconds of the first step of fifty layers, 16 wide, with Adam: a hundred variables. The
    median over turns, each in a new process without any cache of programs: ours in an
    `rx.function`, *by hand* with `jax.jit` and `jax.shard_map`, and *TensorFlow* in a
    `tf.function`. `imports` is what comes before: the medians of `import jax` and of
    `import replicax`.
    """

    name, title, tables = "first_call", "The first call of a step", (FIRST_CALL, IMPORTS)
    peers = ("tensorflow",)
    parts = ("calls", "imports")
    rounds = 3
    quick = {"devices": [2], "rounds": 1, "model": "tiny", "imports": 1}

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--model", choices=MODELS, default="deep_narrow")
        parser.add_argument("--devices", nargs="+", type=int, default=[1, 2, 4])

        parser.add_argument("--imports", type=int, default=11, help="turns of the imports")

    def measure(self) -> None:
        if "calls" in self.options.only:
            self.report.add(FIRST_CALL, [self._row(count) for count in self.options.devices])
        if "imports" in self.options.only:
            self.report.add(IMPORTS, [self._imports()])

    def _imports(self) -> Row:
        self.report.progress("imports")
        seconds: dict[str, list[float]] = {"jax": [], "replicax": []}
        compiled = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
        for _ in range(self.options.imports + 1):
            for module, found in seconds.items():
                command = [sys.executable, "-c", _IMPORT.format(module=module)]
                found.append(float(subprocess.check_output(command, env=compiled)))
        # The first writes files of compiled Python.
        return {module: statistics.median(found[1:]) for module, found in seconds.items()}

    def _row(self, devices: int) -> Row:
        self.report.progress(f"{self.options.model}, devices: {devices}")
        sides: dict[str, tuple[str, str | int, str]] = {
            "replicax": ("jax_steps:JaxStep", "replicax", sys.executable),
            "by_hand": ("jax_steps:JaxStep", "by_hand", sys.executable),
        }
        if python := self.options.pythons.get("tensorflow"):
            sides["tensorflow"] = ("tensorflow_steps:TensorFlow", devices, python)
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        losses = []
        for _ in range(self.options.rounds):
            for name, (side, argument, python) in sides.items():
                with Processes(
                    f"benchmarks.training.{side}",
                    argument,
                    python=python,
                    variables={
                        "JAX_PLATFORMS": "cpu",
                        "JAX_NUM_CPU_DEVICES": str(devices),
                        "JAX_ENABLE_COMPILATION_CACHE": "false",
                    },
                ) as process:
                    ((took, loss),) = process.ask("first_turn", (self.options.model, devices))
                    if name == "tensorflow":
                        self.report.versions["TensorFlow"] = process.version
                seconds[name].append(took)
                losses.append(loss)
        check_equal("the losses of all sides", losses, [losses[0]] * len(losses), 1e-4)
        medians = {name: statistics.median(times) for name, times in seconds.items()}
        return {"devices": devices, **medians}


BENCHMARKS = (FirstCall,)
