"""Is `fit` of a Keras model under a strategy as fast as with Keras's own means?"""

import argparse
import contextlib
import os
import sys
from dataclasses import replace

from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.processes import Processes
from benchmarks.harness.tables import Column, Row, Table, at_least, at_most, columns
from benchmarks.keras_fit.models import CASES

CHECKED_BATCHES = 2
TOLERANCE = 1e-3
SIDES = {"replicax": "Replicax", "data_parallel": "DataParallel", "tensorflow": "TensorFlow"}
RATIOS = {
    "over_data_parallel": ("replicax", "data_parallel"),
    "speedup": ("tensorflow", "replicax"),
}
DATA_PARALLEL, TENSORFLOW = "replicax / DataParallel", "TensorFlow / replicax"


def _several(row: Row) -> bool:
    return row["replicas"] > 1


KERAS_WALL = Table(
    "rows",
    "Median milliseconds of a step of fit; the losses of all agree.",
    (
        Column("model", "title"),
        *columns("", "batch", "replicas"),
        Column("replicax", form=".2f"),
        Column("DataParallel", "data_parallel", ".2f"),
        Column("TensorFlow", form=".2f"),
        Column(DATA_PARALLEL, "over_data_parallel", ".2f", "Keras's DataParallel"),
        Column(TENSORFLOW, "speedup", ".2f", "Keras on TensorFlow", faster=True),
    ),
    what="a step of Keras fit",
    goals=(
        at_most("at most 1.03 times Keras's DataParallel", DATA_PARALLEL, 1.03),
        at_least(
            "at least 1.3 times faster than TensorFlow on 2 or more replicas",
            TENSORFLOW,
            1.3,
            _several,
        ),
    ),
    labels=3,
    only=lambda row: row["clock"] == "wall",
    mean=True,
)
KERAS_GPU = replace(KERAS_WALL, what="a step of Keras fit, on a GPU")
KERAS_CPU = replace(
    KERAS_WALL,
    title="Median milliseconds of processor time of such a step, of all threads.",
    what="a step of Keras fit, processor time",
    goals=(),
    only=lambda row: row["clock"] == "cpu",
)


class KerasFit(Benchmark):
    """A step of `fit` on NumPy arrays, of small and large batches, on virtual CPU devices: of a
    model that was made in the scope of our `MirroredStrategy`; the same with
    `keras.distribution.DataParallel`, on JAX too; and with Keras on TensorFlow under its
    `MirroredStrategy`. Steps are counted from the second epoch on, so that what happens once in a
    `fit` counts for nobody. Each has a process of its own; a second table has the processor time.
    All get `NPROC`, the number of XLA's threads, of at least twice the number of devices
    (`--threads`): with as many threads as 2 cores have, DataParallel on 4 devices waits forever.
    """

    name, title, tables = "keras_fit", "Keras `fit`", (KERAS_WALL, KERAS_CPU)
    peers = ("tensorflow",)
    rounds, seconds = 11, 0.3
    replicas = (1, 2, 4)
    quick = dict(cases=["tiny_mlp", "tiny_cnn"], replicas=[2], rounds=2, seconds=0.01)

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        standard = [name for name in CASES if not name.startswith("tiny")]
        text = f"by default {', '.join(standard)}"
        add("--cases", nargs="+", choices=CASES, default=standard, help=text)
        text = "they divide the batches: DataParallel takes no others"
        add("--replicas", nargs="+", type=int, default=list(self.replicas), help=text)
        add("--limit", type=float, default=180, help="seconds that an answer may take")
        text = "NPROC of all processes (default: the cores, or twice the replicas if that is more)"
        add("--threads", type=int, help=text)
        parser.set_defaults(max_steps=1000)

    def measure(self) -> None:
        if not self.options.pythons:
            print("TensorFlow is left out: name an interpreter that has it: --tensorflow-python.")
        rows: dict[tuple[str, str, int], Row] = {}
        for replicas in self.options.replicas:
            with contextlib.ExitStack() as stack:
                sides = {
                    name: stack.enter_context(self._side(name, replicas))
                    for name in ("replicax", "data_parallel", *self.options.pythons)
                }
                self.report.versions["Keras"] = sides["replicax"].ask("keras_version")[0]
                if "tensorflow" in sides:
                    self.report.versions["TensorFlow"] = sides["tensorflow"].version
                for name in self.options.cases:
                    for row in self._rows(name, replicas, sides):
                        rows[row["clock"], name, replicas] = row
        order = [
            rows[clock, name, replicas]
            for clock in ("wall", "cpu")
            for name in self.options.cases
            for replicas in self.options.replicas
        ]
        for table in self.tables:
            self.report.add(table, order)

    def _side(self, name: str, replicas: int) -> Processes:
        variables = {
            "KERAS_BACKEND": "tensorflow" if name == "tensorflow" else "jax",
            "JAX_PLATFORMS": "cuda" if self.gpu else "cpu",
            "JAX_NUM_CPU_DEVICES": str(replicas),
            # DataParallel waits forever with fewer threads than it has devices.
            "NPROC": str(self.options.threads or max(os.cpu_count() or 1, 2 * replicas)),
            # Three processes share a GPU.
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        }
        return Processes(
            f"benchmarks.keras_fit.sides:{SIDES[name]}",
            replicas,
            python=self.options.pythons.get(name, sys.executable),
            limit=self.options.limit,
            gpu=self.gpu,
            variables=variables,
        )

    def _rows(self, name: str, replicas: int, sides: dict[str, Processes]) -> list[Row]:
        """Returns a row by each clock."""
        case = CASES[name]
        if case.batch % replicas:
            raise SystemExit(f"{replicas} replicas do not divide the batch of {name}.")
        what = f"{case.title}, batch {case.batch}, replicas: {replicas}"
        most = dict.fromkeys(sides, TOLERANCE)
        turns = self.turns(sides, (name,), CHECKED_BATCHES, what, "data_parallel", most)
        about = {"case": name, "title": case.title, "batch": case.batch, "replicas": replicas}
        return [
            {"clock": clock, **about, **turns.row(SIDES, 1e3 / case.batches, clock, **RATIOS)}
            for clock in ("wall", "cpu")
        ]


class KerasFitGpu(KerasFit):
    """The same on one GPU, beside `keras.distribution.DataParallel` on the same one."""

    name, title, tables = "keras_fit_gpu", "Keras `fit` on a GPU", (KERAS_GPU, KERAS_CPU)
    peers, gpu, replicas = (), True, (1,)
    quick = {**KerasFit.quick, "replicas": [1]}


BENCHMARKS = (KerasFit, KerasFitGpu)
