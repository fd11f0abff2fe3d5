"""How long does a sum over the replicas take, by its size: latency, and bytes per second?"""

import argparse
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import Benchmark, Column, Options, Processes, Report, Row, Table


def _milliseconds(size: int) -> Callable[[Row], float | None]:
    def of(row: Row) -> float | None:
        seconds = row["seconds"].get(str(size))
        return None if seconds is None else 1e3 * seconds

    return of


def _size_text(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


SUMS = Table(
    "rows",
    "Least milliseconds of a sum over the replicas by its size, and the constants that fit them.",
    (
        Column("a sum over (ms)", "what"),
        *(
            Column(_size_text(1 << power), _milliseconds(1 << power), ".3f")
            for power in range(10, 31)
        ),
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

    name = "all_reduce"
    title = "Sums over the replicas"
    tables = (SUMS,)
    parts = ("accelerators", "devices", "workers")
    rounds = 15
    seconds = 0.1
    quick = {
        "sizes": [1 << 10, 1 << 17],
        "devices": [2],
        "workers": [2],
        "rounds": 2,
        "seconds": 0.01,
    }

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        sizes = [1 << power for power in (10, 14, 17, 20, 22, 24, 26)]
        parser.add_argument("--devices", nargs="+", type=int, default=[2, 4, 8])
        parser.add_argument("--workers", nargs="+", type=int, default=[2])
        parser.add_argument(
            "--sizes", nargs="+", type=int, default=sizes, help="bytes, powers of 2"
        )
        parser.add_argument("--limit", type=float, default=300, help="seconds for an answer")

    def measure(self, options: Options, report: Report) -> None:
        rows = []
        for what, processes, devices, variables in _variants(options):
            report.progress(what)
            with Processes(
                "benchmarks.all_reduce.sums:Sums",
                devices,
                workers=processes,
                limit=options.limit,
                gpu=devices == 0,
                **variables,
            ) as workers:
                row = _row(what, workers, options)
            rows += [row] if row["replicas"] > 1 else []  # one accelerator has nobody to sum with
        report.note_load()
        report.add(SUMS, rows)


def _variants(options: Options) -> Iterator[tuple[str, int, int, dict[str, str]]]:
    """Yields what each is called, its processes, its devices (0: accelerators), and variables."""
    hidden = os.environ.get("JAX_PLATFORMS") == "cpu"
    if "accelerators" in options.only and not hidden and any(Path("/dev").glob("nvidia[0-9]*")):
        yield "accelerators", 1, 0, {}
    if "devices" in options.only:
        for count in options.devices:
            yield f"{count} virtual devices", 1, count, {}
    if "workers" in options.only:
        for count in options.workers:
            # XLA's threads; one more, as they wait in collectives too.
            threads = max(1, (os.cpu_count() or 1) // count) + 1
            yield f"{count} workers, loopback", count, 1, {"NPROC": str(threads)}


def _row(what: str, workers: Processes, options: Options) -> dict[str, Any]:
    replicas, sums = 0, 0
    for size in options.sizes:
        replicas, sums = workers.ask("make", size)[0]
    turns: dict[int, list[float]] = {size: [] for size in options.sizes}
    for _ in range(options.rounds):
        for size, seconds in turns.items():
            seconds.append(max(workers.ask("seconds", size, 1)))
            calls = round(options.seconds / seconds[-1] / sums)
            if calls > 1:  # else one call was long enough
                seconds.append(max(workers.ask("seconds", size, calls)))
    least = {size: min(seconds) for size, seconds in turns.items()}
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
    import numpy as np

    messages, share = 2 * (replicas - 1), 2 * (replicas - 1) / replicas
    rows = np.array([[messages, share * size] for size in seconds])
    times = np.array(list(seconds.values()))
    (latency, per_byte), *_ = np.linalg.lstsq(rows / times[:, None], np.ones(len(times)))
    return max(float(latency), 0.0), float(1 / per_byte) if per_byte > 0 else float("inf")


BENCHMARKS = (AllReduce,)
