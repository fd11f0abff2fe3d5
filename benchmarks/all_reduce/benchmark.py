"""How long does a sum over the replicas take, by its size: latency, and bytes per second?"""

import argparse
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.benchmark import Benchmark
from benchmarks.harness.processes import Processes
from benchmarks.harness.tables import Column, Row, Table


def _milliseconds(size: int) -> Callable[[Row], float | None]:
    return lambda row: 1e3 * row["seconds"][str(size)] if str(size) in row["seconds"] else None


def _size_text(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


SUMS = Table(
    "rows",
    "Least milliseconds of a sum over the replicas by its size, and the constants that fit them.",
    (
        Column("a sum over (ms)", "what"),
        *(Column(_size_text(1 << i), _milliseconds(1 << i), ".3f") for i in range(10, 31)),
        Column("latency, us", lambda row: 1e6 * row["latency"], ".0f"),
        Column("GB/s", lambda row: row["bandwidth"] / 1e9, ".2f"),
    ),
)


class AllReduce(Benchmark):
    """A sum as a compiled step makes it (`all_reduce` in an `rx.function`): over virtual CPU
    devices of one process, over worker processes on loopback, and over the accelerators of this
    machine, if there are any. A time is the least of several rounds, since other programs can only
    add to it. The constants fit these times by the formula of a ring of n replicas: time =
    2 (n - 1) latency + 2 (n - 1) / n * bytes / bandwidth.
    """

    name, title, tables = "all_reduce", "Sums over the replicas", (SUMS,)
    parts = ("accelerators", "devices", "workers")
    rounds, seconds = 15, 0.1
    quick = {"sizes": [1 << 10, 1 << 17], "devices": [2], "rounds": 2, "seconds": 0.01}

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        sizes = [1 << power for power in (10, 14, 17, 20, 22, 24, 26)]
        parser.add_argument("--devices", nargs="+", type=int, default=[2, 4, 8])
        parser.add_argument("--workers", nargs="+", type=int, default=[2])
        text = "bytes, powers of 2"
        parser.add_argument("--sizes", nargs="+", type=int, default=sizes, help=text)
        parser.add_argument("--limit", type=float, default=300, help="seconds for an answer")

    def measure(self) -> None:
        rows = []
        for what, processes, devices, variables in self._variants():
            self.report.progress(what)
            with Processes(
                "benchmarks.all_reduce.sums:Sums",
                devices,
                workers=processes,
                limit=self.options.limit,
                gpu=devices == 0,
                variables=variables,
            ) as workers:
                row = self._row(what, workers)
            rows += [row] if row["replicas"] > 1 else []  # one accelerator has nobody to sum with
        self.report.note_load()
        self.report.add(SUMS, rows)

    def _variants(self) -> Iterator[tuple[str, int, int, dict[str, str]]]:
        """Yields what each is called, its processes, devices (0: accelerators), and variables."""
        cpu_only = os.environ.get("JAX_PLATFORMS") == "cpu"
        accelerators = not cpu_only and any(Path("/dev").glob("nvidia[0-9]*"))
        if "accelerators" in self.options.only and accelerators:
            yield "accelerators", 1, 0, {}
        for count in self.options.devices if "devices" in self.options.only else ():
            yield f"{count} virtual devices", 1, count, {}
        for count in self.options.workers if "workers" in self.options.only else ():
            # XLA's threads; one more, as they wait in collectives too.
            threads = max(1, (os.cpu_count() or 1) // count) + 1
            yield f"{count} workers, loopback", count, 1, {"NPROC": str(threads)}

    def _row(self, what: str, workers: Processes) -> dict[str, Any]:
        replicas = workers.ask("replicas")[0]
        least = {}
        for size in self.options.sizes:
            workers.start((size,), 1)
            seconds = []
            for _ in range(self.options.rounds):
                seconds.append(workers.turn(1).wall)
                calls = round(self.options.seconds / seconds[-1])
                if calls > 1:  # else one call was long enough
                    seconds.append(workers.turn(calls).wall)
            least[size] = min(seconds) / workers.ask("sums_in_a_call")[0]
        latency, bandwidth = fitted(replicas, least)
        return {
            "what": what,
            "replicas": replicas,
            "seconds": {str(size): seconds for size, seconds in least.items()},  # as in JSON
            "latency": latency,
            "bandwidth": bandwidth,
        }


def fitted(replicas: int, seconds: dict[int, float]) -> tuple[float, float]:
    """Returns the latency and the bandwidth of the formula, by least squares of relative errors."""
    messages, share = 2 * (replicas - 1), 2 * (replicas - 1) / replicas
    rows = np.array([[messages, share * size] for size in seconds])
    times = np.array(list(seconds.values()))
    (latency, per_byte), *_ = np.linalg.lstsq(rows / times[:, None], np.ones(len(times)))
    return max(float(latency), 0.0), float(1 / per_byte) if per_byte > 0 else float("inf")


BENCHMARKS = (AllReduce,)
