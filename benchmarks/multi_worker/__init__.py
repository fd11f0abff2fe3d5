"""Is a training step over several processes as fast as elsewhere, and what else do they cost?"""

import argparse
import contextlib
import statistics
import sys
import tempfile
import time

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
from benchmarks.harness.benchmark import core_count

BY_HAND = "replicax / by hand"
TENSORFLOW = "TensorFlow / replicax"

_WORKER_COLUMNS = (
    Column("model", "title"),
    Column("replicax", "replicax", ".2f"),
    Column("by hand", "by_hand", ".2f"),
    Column("DDP", "torch", ".2f"),
    Column("TensorFlow", "tensorflow", ".2f"),
    Column(BY_HAND, "over_by_hand", ".2f", "JAX by hand"),
    Column("replicax / DDP", "over_torch", ".2f", "torch DDP"),
    Column(TENSORFLOW, "speedup", ".2f", "TensorFlow", faster=True),
)
WORKER_STEPS = Table(
    "steps",
    "Median milliseconds of a step; the losses of all agree.",
    _WORKER_COLUMNS,
    what="a step over processes",
    mean=True,
    goals=(
        Goal("at most 1 times the step by hand", BY_HAND, 1.0),
        Goal(
            "at most 1.05 times DDP, but for the largest model",
            "replicax / DDP",
            1.05,
            only=lambda row: row["model"] != "largest",
        ),
        Goal(
            "at most 1.2 times DDP on the largest model",
            "replicax / DDP",
            1.2,
            only=lambda row: row["model"] == "largest",
        ),
        Goal("at least 1.5 times faster than TensorFlow", TENSORFLOW, 1.5, at_least=True),
    ),
)
WORKER_WORK = Table(
    "work",
    "Its processor time on a worker, which a busy machine disturbs less.",
    _WORKER_COLUMNS,
    what="a step over processes, processor time",
    mean=True,
)
SAVES = Table(
    "saves",
    "Median seconds of a save.",
    (
        Column("MB", "megabytes", "g"),
        Column("stops the loop", "stopped", ".2f"),
        Column("on the disk", "written", ".2f"),
        Column("np.savez + fsync", "savez", ".2f"),
        Column("share of its speed", "speed", ".2f"),
    ),
    goals=(
        Goal("an asynchronous save stops the loop for at most 0.3 s", "stops the loop", 0.3),
        Goal(
            "and reaches the disk at 50% of the speed of np.savez or more",
            "share of its speed",
            0.5,
            at_least=True,
        ),
    ),
)


def _found_share(row: Row) -> float:
    """Returns the least share of its programs that a worker found in the warm cache."""
    counts = [count.split("/") for count in row["found"].split(", ")]
    return min(int(found) / max(int(wanted), 1) for found, wanted in counts)


STARTS = Table(
    "starts",
    "Seconds from the start to the end of the first step.",
    (
        Column("", "library"),
        Column("workers", "workers"),
        Column("empty cache", "cold", ".2f"),
        Column("warm cache", "warm", ".2f"),
        Column("programs found, by worker", "found"),
    ),
    goals=(
        Goal(
            "the share of its programs that every worker finds is 1",
            _found_share,
            1.0,
            at_least=True,
            only=lambda row: row["library"] == "replicax",
        ),
    ),
)

CHECKED_STEPS = 3
SIDES = {
    "replicax": "jax_workers:ReplicaxWorker",
    "by_hand": "jax_workers:ByHandWorker",
    "torch": "torch_worker:TorchWorker",
    "tensorflow": "tensorflow_worker:TensorFlowWorker",
}


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
    to the end of their first step, with an empty compilation cache and with the one that this left.
    """

    name = "multi_worker"
    title = "Many workers"
    tables = (WORKER_STEPS, WORKER_WORK, SAVES, STARTS)
    peers = ("torch", "tensorflow")
    parts = ("steps", "saves", "starts")
    seconds = 0.2
    max_steps = 100
    quick = {
        "models": ["tiny"],
        "rounds": 2,
        "seconds": 0.01,
        "max_steps": 3,
        "megabytes": 1,
        "saves": 1,
        "starts": 1,
        "start_workers": 2,
        "start_model": "tiny_start",
        "started": ("replicax",),
    }

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        from benchmarks.training.models import MODELS

        add = parser.add_argument
        models = ["small", "middle", "largest", "deep_narrow"]
        text = f"of dense layers; by default {', '.join(models)}"
        add("--models", nargs="+", choices=MODELS, default=models, help=text)
        add("--workers", type=int, default=2)
        add("--threads", type=int, help="of each worker (default: an equal share of the cores)")
        text = "of the state that is saved"
        add("--megabytes", type=float, default=200, help=text)
        add("--saves", type=int, default=7, help="turns of the saves")
        add("--folder", help="where to save (default: a temporary folder)")
        add("--starts", type=int, default=3, help="starts with a warm cache")
        add("--start-workers", type=int, default=3)
        add("--limit", type=float, default=180, help="seconds that an answer may take")
        parser.set_defaults(start_model="many_widths", started=("by_hand", "replicax"))

    def measure(self, options: Options, report: Report) -> None:
        options.threads = options.threads or max(core_count() // options.workers, 1)
        report.conditions["workers"] = str(options.workers)
        report.conditions["threads of each"] = str(options.threads)
        if "steps" in options.only:
            self._steps(options, report)
        if "saves" in options.only:
            report.progress(f"saves of {options.megabytes:g} MB")
            report.add(SAVES, [self._saves(options)])
        if "starts" in options.only:
            from benchmarks.training.models import MODELS

            rows = [self._start(name, options, report) for name in options.started]
            title = f"{STARTS.title} The model: {MODELS[options.start_model].title}."
            report.add(STARTS, rows, title)
        report.note_load()

    def _workers(self, side: str, count: int, options: Options, **variables: str) -> Processes:
        threads = str(options.threads)
        return Processes(
            f"benchmarks.multi_worker.{SIDES[side]}",
            python=options.pythons.get(side, sys.executable),
            workers=count,
            limit=options.limit,
            # XLA's threads; one more, as they wait in collectives too. Others have more for that.
            NPROC=str(options.threads + 1),
            OMP_NUM_THREADS=threads,
            TF_NUM_INTRAOP_THREADS=threads,
            TF_NUM_INTEROP_THREADS=threads,
            **variables,
        )

    def _steps(self, options: Options, report: Report) -> None:
        from benchmarks.training.models import MODELS

        rows: dict[str, list[Row]] = {"wall": [], "cpu": []}
        with contextlib.ExitStack() as stack:
            sides = {}
            for name in ("replicax", "by_hand", *options.pythons):
                report.progress(f"workers: {name}")
                workers = self._workers(name, options.workers, options)
                sides[name] = stack.enter_context(workers)
            for peer, title in (("torch", "torch"), ("tensorflow", "TensorFlow")):
                if peer in sides:
                    report.versions[title] = sides[peer].version
            for name in options.models:
                title = MODELS[name].title
                report.progress(f"step: {title}")
                tolerances = {"tensorflow": 1e-2}
                start_alike(sides, (name,), CHECKED_STEPS, title, "by_hand", tolerances)
                turns = take_turns(sides, options)
                for clock in rows:
                    fields = turns.row(
                        tuple(SIDES),
                        1e3,
                        clock,
                        over_by_hand=("replicax", "by_hand"),
                        over_torch=("replicax", "torch"),
                        speedup=("tensorflow", "replicax"),
                    )
                    rows[clock].append({"model": name, "title": title, "clock": clock, **fields})
        report.add(WORKER_STEPS, rows["wall"])
        report.add(WORKER_WORK, rows["cpu"])

    def _saves(self, options: Options) -> Row:
        times = []
        # Beside the results, as /tmp may be in memory.
        with (
            tempfile.TemporaryDirectory(dir=options.folder) as folder,
            self._workers("replicax", options.workers, options) as workers,
        ):
            workers.ask("make_state", options.megabytes, folder)
            for turn in range(options.saves + 1):
                answers = workers.ask("save")
                alone = workers.ask("savez")[0]
                if turn:  # the first makes the directories
                    stopped, written = (max(each) for each in zip(*answers))
                    times.append((stopped, written, alone))
        stopped, written, savez = (statistics.median(each) for each in zip(*times))
        return {
            "megabytes": options.megabytes,
            "stopped": stopped,  # with what the next step takes longer
            "written": written,
            "savez": savez,
            "speed": statistics.median(alone / written for _, written, alone in times),
        }

    def _start(self, side: str, options: Options, report: Report) -> Row:
        report.progress(f"start: {side}")
        seconds, found = [], ""
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(options.starts + 1):
                begin = time.perf_counter()
                with self._workers(
                    side,
                    options.start_workers,
                    options,
                    JAX_COMPILATION_CACHE_DIR=folder,
                    JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
                ) as workers:
                    workers.start((options.start_model,), 1)
                    seconds.append(time.perf_counter() - begin)
                    found = ", ".join(workers.ask("cache_use"))
        return {
            "library": side.replace("_", " "),
            "workers": options.start_workers,
            "cold": seconds[0],
            "warm": statistics.median(seconds[1:]),
            "found": found,  # programs found in the warm cache, of those wanted, by worker
        }


BENCHMARKS = (MultiWorker,)
