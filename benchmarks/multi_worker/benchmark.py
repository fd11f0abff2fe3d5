"""Is a training step over several processes as fast as elsewhere, and what else do they cost?"""

import argparse
import contextlib
import statistics
import sys
import tempfile
import time

from benchmarks.harness.benchmark import PEERS, Benchmark, core_count
from benchmarks.harness.processes import Processes
from benchmarks.harness.tables import Column, Row, Table, at_least, at_most, columns
from benchmarks.training.models import MODELS

CHECKED_STEPS = 3
SIDES = {
    "replicax": "jax_workers:ReplicaxWorker",
    "by_hand": "jax_workers:ByHandWorker",
    "torch": "torch_worker:TorchWorker",
    "tensorflow": "tensorflow_worker:TensorFlowWorker",
}
RATIOS = {
    "over_by_hand": ("replicax", "by_hand"),
    "over_torch": ("replicax", "torch"),
    "speedup": ("tensorflow", "replicax"),
}


def _is_largest(row: Row) -> bool:
    return row["model"] == "largest"


def _is_smaller(row: Row) -> bool:
    return not _is_largest(row)


def _found_share(row: Row) -> float:
    """Returns the least share of its programs that a worker found in the warm cache."""
    counts = [count.split("/") for count in row["found"].split(", ")]
    return min(int(found) / max(int(wanted), 1) for found, wanted in counts)


BY_HAND, DDP, TENSORFLOW = "replicax / by hand", "replicax / DDP", "TensorFlow / replicax"
_WORKER_COLUMNS = (
    Column("model", "title"),
    *columns(".2f", "replicax", "by hand"),
    Column("DDP", "torch", ".2f"),
    Column("TensorFlow", form=".2f"),
    Column(BY_HAND, "over_by_hand", ".2f", "JAX by hand"),
    Column(DDP, "over_torch", ".2f", "torch DDP"),
    Column(TENSORFLOW, "speedup", ".2f", "TensorFlow", faster=True),
)
WORKER_STEPS = Table(
    "steps",
    "Median milliseconds of a step; the losses of all agree.",
    _WORKER_COLUMNS,
    what="a step over processes",
    mean=True,
    goals=(
        at_most("at most 1 times the step by hand", BY_HAND, 1.0),
        at_most("at most 1.05 times DDP, but for the largest model", DDP, 1.05, _is_smaller),
        at_most("at most 1.2 times DDP on the largest model", DDP, 1.2, _is_largest),
        at_least("at least 1.5 times faster than TensorFlow", TENSORFLOW, 1.5),
    ),
)
WORKER_WORK = Table(
    "work",
    "Its processor time on a worker, which a busy machine disturbs less.",
    _WORKER_COLUMNS,
    what="a step over processes, processor time",
    mean=True,
)
STOPS, SHARE = "stops the loop", "share of its speed"
SAVES = Table(
    "saves",
    "Median seconds of a save.",
    (
        Column("MB", "megabytes", "g"),
        Column(STOPS, "stopped", ".2f"),
        Column("on the disk", "written", ".2f"),
        Column("np.savez + fsync", "savez", ".2f"),
        Column(SHARE, "speed", ".2f"),
    ),
    goals=(
        at_most("an asynchronous save stops the loop for at most 0.3 s", STOPS, 0.3),
        at_least("and reaches the disk at 50% of the speed of np.savez or more", SHARE, 0.5),
    ),
)
STARTS = Table(
    "starts",
    "Seconds from the start to the end of the first step.",
    (
        Column("", "library"),
        Column("workers"),
        Column("strategy made", "made", ".2f"),
        Column("empty cache", "cold", ".2f"),
        Column("warm cache", "warm", ".2f"),
        Column("programs found, by worker", "found"),
    ),
    goals=(
        at_most(
            "with a warm cache at most 1.2 times the start until the strategy is made",
            lambda row: row.get("made") and row["warm"] / row["made"],
            1.2,
            lambda row: row["library"] == "replicax",
        ),
        at_least(
            "the share of its programs that every worker finds is 1",
            _found_share,
            1.0,
            lambda row: row["library"] == "replicax",
        ),
    ),
)


VARIABLES = Table(
    "variables",
    "Median seconds in which all workers make variables of 16 x 16 numbers.",
    (
        Column("initial values", "values"),
        Column("variables", "count"),
        Column("seconds", form=".3f"),
    ),
    goals=(at_most("500 variables are made in at most 0.3 s", "seconds", 0.3),),
)


class MultiWorker(Benchmark):
    """Processes on one machine, over loopback. A training step with Adam on 2 workers, of an MLP
    in three sizes and of fifty small layers: ours (`MultiWorkerMirroredStrategy` in an
    `rx.function`), whose gradients are packed; *by hand* (`jax.shard_map`, one `psum` for each
    gradient, the state donated); *DDP*, PyTorch's `DistributedDataParallel` over gloo; and
    *TensorFlow*, its `MultiWorkerMirroredStrategy` in a `tf.function`. All have the same number of
    threads and give the loss over all workers after each step. A second table has the processor
    time of a worker: with more programs than cores, waiting for a turn is most of the wall time.
    `saves` asks how long an asynchronous save stops the loop and how fast it is on the disk, beside
    `np.savez` and `os.fsync` of the same arrays. `starts` is the time from the start of 3 workers
    to the end of their first step, with an empty compilation cache and with the one that this left,
    and how much of it passes before they have made the strategy (by hand: joined the cluster).
    `variables` is how long it takes to make variables: all workers start from the values of the
    first one, whether they have computed the same or others.
    """

    name, title = "multi_worker", "Many workers"
    tables = (WORKER_STEPS, WORKER_WORK, SAVES, STARTS, VARIABLES)
    peers = ("torch", "tensorflow")
    parts = ("steps", "saves", "starts", "variables")
    seconds, max_steps = 0.2, 100
    quick = dict(
        models=["tiny"],
        rounds=2,
        seconds=0.01,
        max_steps=3,
        megabytes=1,
        saves=1,
        variables=20,
        starts=1,
        start_workers=2,
        start_model="tiny_start",
        started=("replicax",),
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        models = ["small", "middle", "largest", "deep_narrow"]
        text = f"of dense layers; by default {', '.join(models)}"
        add("--models", nargs="+", choices=MODELS, default=models, help=text)
        add("--workers", type=int, default=2)
        add("--threads", type=int, help="of each worker (default: an equal share of the cores)")
        add("--megabytes", type=float, default=200, help="of the state that is saved")
        add("--saves", type=int, default=7, help="turns of the saves")
        add("--folder", help="where to save (default: a temporary folder)")
        add("--variables", type=int, default=500, help="that are made")
        add("--starts", type=int, default=3, help="starts with a warm cache")
        add("--start-workers", type=int, default=3)
        add("--limit", type=float, default=180, help="seconds that an answer may take")
        parser.set_defaults(start_model="many_widths", started=("by_hand", "replicax"))

    def measure(self) -> None:
        options, report = self.options, self.report
        options.threads = options.threads or max(core_count() // options.workers, 1)
        report.conditions["workers"] = str(options.workers)
        report.conditions["threads of each"] = str(options.threads)
        if "steps" in options.only:
            self._steps()
        if "saves" in options.only:
            report.add(SAVES, [self._saves()])
        if "starts" in options.only:
            title = f"{STARTS.title} The model: {MODELS[options.start_model].title}."
            report.add(STARTS, [self._start(name) for name in options.started], title)
        if "variables" in options.only:
            report.add(VARIABLES, self._variables())
        report.note_load()

    def _workers(self, side: str, count: int, **more: str) -> Processes:
        threads = str(self.options.threads)
        variables = {
            # XLA's threads; one more, as they wait in collectives too. Others have more for that.
            "NPROC": str(self.options.threads + 1),
            "OMP_NUM_THREADS": threads,
            "TF_NUM_INTRAOP_THREADS": threads,
            "TF_NUM_INTEROP_THREADS": threads,
        }
        return Processes(
            f"benchmarks.multi_worker.{SIDES[side]}",
            python=self.options.pythons.get(side, sys.executable),
            workers=count,
            limit=self.options.limit,
            variables=variables | more,
        )

    def _steps(self) -> None:
        rows: dict[str, list[Row]] = {"wall": [], "cpu": []}
        with contextlib.ExitStack() as stack:
            sides = {}
            for name in ("replicax", "by_hand", *self.options.pythons):
                self.report.progress(f"workers: {name}")
                sides[name] = stack.enter_context(self._workers(name, self.options.workers))
                if name in PEERS:
                    self.report.versions[PEERS[name]] = sides[name].version
            for name in self.options.models:
                title, most = MODELS[name].title, {"tensorflow": 1e-2}
                turns = self.turns(sides, (name,), CHECKED_STEPS, title, "by_hand", most)
                for clock in rows:
                    about = {"model": name, "title": title, "clock": clock}
                    rows[clock].append(about | turns.row(SIDES, 1e3, clock, **RATIOS))
        self.report.add(WORKER_STEPS, rows["wall"])
        self.report.add(WORKER_WORK, rows["cpu"])

    def _saves(self) -> Row:
        self.report.progress(f"saves of {self.options.megabytes:g} MB")
        times = []
        # Beside the results, as /tmp may be in memory.
        with (
            tempfile.TemporaryDirectory(dir=self.options.folder) as folder,
            self._workers("replicax", self.options.workers) as workers,
        ):
            workers.ask("make_state", self.options.megabytes, folder)
            for turn in range(self.options.saves + 1):
                stopped, written = (max(each) for each in zip(*workers.ask("save")))
                savez = workers.ask("savez")[0]
                if turn:  # the first makes the directories
                    times.append((stopped, written, savez, savez / written))
        medians = (statistics.median(each) for each in zip(*times))
        fields = zip(("stopped", "written", "savez", "speed"), medians)
        return {"megabytes": self.options.megabytes, **dict(fields)}

    def _variables(self) -> list[Row]:
        count = self.options.variables
        self.report.progress(f"{count} variables")
        seconds: dict[str, list[float]] = {"the same": [], "of each worker": []}
        with self._workers("replicax", self.options.workers) as workers:
            for _ in range(self.options.rounds + 1):
                for values, found in seconds.items():
                    found.append(max(workers.ask("make_variables", count, values == "the same")))
        return [
            {"values": values, "count": count, "seconds": statistics.median(found[1:])}
            for values, found in seconds.items()  # the first compiles
        ]

    def _start(self, side: str) -> Row:
        self.report.progress(f"start: {side}")
        seconds, made, found = [], [], ""
        with tempfile.TemporaryDirectory() as folder:
            cache = {
                "JAX_COMPILATION_CACHE_DIR": folder,
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            }
            for _ in range(self.options.starts + 1):
                begin = time.perf_counter()
                with self._workers(side, self.options.start_workers, **cache) as workers:
                    made.append(time.perf_counter() - begin)
                    workers.start((self.options.start_model,), 1)
                    seconds.append(time.perf_counter() - begin)
                    found = ", ".join(workers.ask("cache_use"))
        return {
            "library": side.replace("_", " "),
            "workers": self.options.start_workers,
            "made": statistics.median(made[1:]),
            "cold": seconds[0],
            "warm": statistics.median(seconds[1:]),
            "found": found,  # programs found in the warm cache, of those wanted, by worker
        }


BENCHMARKS = (MultiWorker,)
