"""Is `fit` of a Keras model under a strategy as fast as with Keras's own means?"""

import argparse
import contextlib
import os
import sys
from dataclasses import replace

from benchmarks.harness import (
    Benchmark,
    Column,
    Goal,
    Options,
    Processes,
    Report,
    Row,
    Table,
    start_alike,
    take_turns,
)

TENSORFLOW = "TensorFlow / replicax"


def _keras_table(clock: str, title: str, what: str, goals: tuple[Goal, ...]) -> Table:
    return Table(
        "rows",
        title,
        (
            Column("model", "title"),
            Column("batch", "batch"),
            Column("replicas", "replicas"),
            Column("replicax", "replicax", ".2f"),
            Column("DataParallel", "data_parallel", ".2f"),
            Column("TensorFlow", "tensorflow", ".2f"),
            Column("replicax / DataParallel", "over_data_parallel", ".2f", "Keras's DataParallel"),
            Column(TENSORFLOW, "speedup", ".2f", "Keras on TensorFlow", faster=True),
        ),
        what=what,
        goals=goals,
        labels=3,
        only=lambda row: row["clock"] == clock,
        mean=True,
    )


KERAS_WALL = _keras_table(
    "wall",
    "Median milliseconds of a step of fit; the losses of all agree.",
    "a step of Keras fit",
    (
        Goal("at most 1.03 times Keras's DataParallel", "replicax / DataParallel", 1.03),
        Goal(
            "at least 1.3 times faster than TensorFlow on 2 or more replicas",
            TENSORFLOW,
            1.3,
            at_least=True,
            only=lambda row: row["replicas"] > 1,
        ),
    ),
)
KERAS_GPU = replace(KERAS_WALL, what="a step of Keras fit, on a GPU")
KERAS_CPU = _keras_table(
    "cpu",
    "Median milliseconds of processor time of such a step, of all threads.",
    "a step of Keras fit, processor time",
    (),
)

CHECKED_BATCHES = 2
TOLERANCE = 1e-3
SIDES = {"replicax": "Replicax", "data_parallel": "DataParallel", "tensorflow": "TensorFlow"}


class KerasFit(Benchmark):
    """A step of `fit` on NumPy arrays, of small and large batches, on virtual CPU devices: of a
    model that was made in the scope of our `MirroredStrategy`; the same with
    `keras.distribution.DataParallel`, on JAX too; and with Keras on TensorFlow under its
    `MirroredStrategy`. Steps are counted from the second epoch on, so that what happens once in a
    `fit` counts for nobody. Each has a process of its own; a second table has the processor time.
    All get `NPROC`, the number of XLA's threads, of at least twice the number of devices
    (`--threads`): with as many threads as 2 cores have, DataParallel on 4 devices waits forever.
    """

    name = "keras_fit"
    title = "Keras `fit`"
    tables = (KERAS_WALL, KERAS_CPU)
    peers = ("tensorflow",)
    rounds = 11
    seconds = 0.3
    replicas = (1, 2, 4)
    quick = {"cases": ["tiny_mlp", "tiny_cnn"], "replicas": [2], "rounds": 2, "seconds": 0.01}

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        from benchmarks.keras_fit.models import CASES

        standard = [name for name in CASES if not name.startswith("tiny")]
        text = f"by default {', '.join(standard)}"
        parser.add_argument("--cases", nargs="+", choices=CASES, default=standard, help=text)
        text = "they divide the batches: DataParallel takes no others"
        replicas = list(self.replicas)
        parser.add_argument("--replicas", nargs="+", type=int, default=replicas, help=text)
        text = "seconds that an answer may take"
        parser.add_argument("--limit", type=float, default=180, help=text)
        text = "NPROC of all processes (default: the cores, or twice the replicas if that is more)"
        parser.add_argument("--threads", type=int, help=text)
        parser.set_defaults(max_steps=1000)

    def measure(self, options: Options, report: Report) -> None:
        if not options.pythons:
            print("TensorFlow is left out: name an interpreter that has it: --tensorflow-python.")
        rows: dict[tuple[str, str, int], Row] = {}
        for replicas in options.replicas:
            with contextlib.ExitStack() as stack:
                sides = {
                    name: stack.enter_context(self._side(name, replicas, options))
                    for name in ("replicax", "data_parallel", *options.pythons)
                }
                report.versions["Keras"] = sides["replicax"].ask("keras_version")[0]
                if "tensorflow" in sides:
                    report.versions["TensorFlow"] = sides["tensorflow"].version
                for name in options.cases:
                    for row in self._rows(name, replicas, sides, options, report):
                        rows[row["clock"], name, replicas] = row
        order = [
            rows[clock, name, replicas]
            for clock in ("wall", "cpu")
            for name in options.cases
            for replicas in options.replicas
        ]
        for table in self.tables:
            report.add(table, order)

    def _side(self, name: str, replicas: int, options: Options) -> Processes:
        return Processes(
            f"benchmarks.keras_fit.sides:{SIDES[name]}",
            replicas,
            python=options.pythons.get(name, sys.executable),
            limit=options.limit,
            gpu=self.gpu,
            KERAS_BACKEND="tensorflow" if name == "tensorflow" else "jax",
            JAX_PLATFORMS="cuda" if self.gpu else "cpu",
            JAX_NUM_CPU_DEVICES=str(replicas),
            # DataParallel waits forever with fewer threads than it has devices.
            NPROC=str(options.threads or max(os.cpu_count() or 1, 2 * replicas)),
            # Three processes share a GPU.
            XLA_PYTHON_CLIENT_PREALLOCATE="false",
        )

    def _rows(
        self,
        name: str,
        replicas: int,
        sides: dict[str, Processes],
        options: Options,
        report: Report,
    ) -> list[Row]:
        """Returns a row by each clock."""
        from benchmarks.keras_fit.models import CASES

        case = CASES[name]
        if case.batch % replicas:
            raise SystemExit(f"{replicas} replicas do not divide the batch of {name}.")
        what = f"{case.title}, batch {case.batch}, replicas: {replicas}"
        report.progress(what)
        tolerances = dict.fromkeys(sides, TOLERANCE)
        start_alike(sides, (name,), CHECKED_BATCHES, what, "data_parallel", tolerances)
        turns = take_turns(sides, options)
        about = {"case": name, "title": case.title, "batch": case.batch, "replicas": replicas}
        rows = []
        for clock in ("wall", "cpu"):
            fields = turns.row(
                tuple(SIDES),
                1e3 / case.batches,
                clock,
                over_data_parallel=("replicax", "data_parallel"),
                speedup=("tensorflow", "replicax"),
            )
            rows.append({"clock": clock, **about, **fields})
        return rows


class KerasFitGpu(KerasFit):
    """The same on one GPU, beside `keras.distribution.DataParallel` on the same one."""

    name = "keras_fit_gpu"
    title = "Keras `fit` on a GPU"
    tables = (KERAS_GPU, KERAS_CPU)
    peers = ()
    gpu = True
    replicas = (1,)
    quick = {**KerasFit.quick, "replicas": [1]}


BENCHMARKS = (KerasFit, KerasFitGpu)
