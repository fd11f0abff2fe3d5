"""How long does a sum over the replicas take, by its size: latency, and bytes per second?

A training step sums its gradients over the replicas. On paper, a ring of n replicas sends
2 (n - 1) / n of the bytes over each link, in 2 (n - 1) messages:

    time = 2 (n - 1) latency + 2 (n - 1) / n * bytes / bandwidth

This measures such sums as a compiled step makes them (`all_reduce` in an `rx.function`): between
virtual CPU devices of one process, between worker processes over loopback, and between the
accelerators of this machine, if there are any. A time is the least of several rounds, since other
programs can only add to it: where replicas outnumber the cores, each waits for all the others to
get a turn, and a median says more about the machine's guests than about the sum. Both constants are
fitted to these times, for the formula above; `docs/scaling.md` uses them. Every variant must first
sum right.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _report import Cells, format_table, machine_facts
from _workers import Workers

SCRIPT = "_all_reduce_side.py"
SIZES = [1 << power for power in (10, 14, 17, 20, 22, 24, 26)]
QUICK_SIZES = [1 << 10, 1 << 17]


class Row(NamedTuple):
    """The least seconds of one sum, for each size, and what the formula makes of them."""

    what: str
    replicas: int
    seconds: dict[int, float]
    latency: float
    bandwidth: float


def fitted(replicas: int, seconds: dict[int, float]) -> tuple[float, float]:
    """The latency and the bandwidth of the formula, by least squares of relative errors."""
    messages, share = 2 * (replicas - 1), 2 * (replicas - 1) / replicas
    rows = np.array([[messages, share * size] for size in seconds])
    times = np.array(list(seconds.values()))
    (latency, per_byte), *_ = np.linalg.lstsq(rows / times[:, None], np.ones(len(times)))
    return max(latency, 0.0), 1 / per_byte if per_byte > 0 else float("inf")


def measure(what: str, workers: Workers, options: argparse.Namespace) -> Row:
    answer: dict[str, Any] = {}
    for size in options.sizes:
        answer = workers.ask(prepare=size)[0]
    turns: dict[int, list[float]] = {size: [] for size in options.sizes}

    def slowest(size: int, calls: int) -> float:
        return max(each["seconds"] for each in workers.ask(time=[size, calls]))

    for _ in range(options.rounds):
        for size, seen in turns.items():
            seen.append(slowest(size, 1))
            calls = round(options.seconds / seen[-1] / answer["sums"])
            if calls > 1:  # else one call was long enough
                seen.append(slowest(size, calls))
    seconds = {size: min(seen) for size, seen in turns.items()}
    return Row(what, answer["replicas"], seconds, *fitted(answer["replicas"], seconds))


def variants(options: argparse.Namespace) -> Iterator[tuple[str, int, dict[str, str]]]:
    """What each is called, its number of processes, and variables of their environment."""
    if "accelerators" in options.only and any(Path("/dev").glob("nvidia[0-9]*")):
        yield "accelerators", 1, {"DEVICES": "accelerators"}
    if "devices" in options.only:
        for count in options.devices:
            yield f"{count} virtual devices", 1, {"DEVICES": str(count)}
    if "workers" in options.only:
        for count in options.workers:
            # XLA's threads; one more, as they wait in collectives too.
            threads = max(1, (os.cpu_count() or 1) // count) + 1
            variables = {"DEVICES": "1", "NPROC": str(threads)}
            yield f"{count} workers, loopback", count, variables


def size_text(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def table(rows: Sequence[Row], sizes: Sequence[int]) -> list[Cells]:
    heads = (*(size_text(size) for size in sizes), "latency, us", "GB/s")
    cells: list[Cells] = [("a sum over (ms)", *heads)]
    for row in rows:
        times = [f"{row.seconds[size] * 1e3:.3f}" for size in sizes]
        cells.append((row.what, *times, f"{row.latency * 1e6:.0f}", f"{row.bandwidth / 1e9:.2f}"))
    return cells


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    kinds = ("accelerators", "devices", "workers")
    parser.add_argument("--only", nargs="+", choices=kinds, default=list(kinds))
    parser.add_argument("--devices", nargs="+", type=int, default=[2, 4, 8])
    parser.add_argument("--workers", nargs="+", type=int, default=[2])
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="bytes")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.1, help="of each size in a round")
    parser.add_argument("--limit", type=float, default=300, help="seconds for an answer")
    parser.add_argument("--quick", action="store_true", help="to see that it runs")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    if options.quick:
        options.sizes, options.devices, options.workers = QUICK_SIZES, [2], [2]
        options.rounds, options.seconds = 2, 0.01
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_options(arguments)
    facts = machine_facts(None)
    before = os.getloadavg()[0]
    rows: list[Row] = []
    for what, count, variables in variants(options):
        print(f"{what} ...", file=sys.stderr, flush=True)
        with Workers(SCRIPT, sys.executable, count, options.limit, **variables) as workers:
            row = measure(what, workers, options)
        rows += [row] if row.replicas > 1 else []  # one accelerator has nobody to sum with
    facts["load average"] = f"{before:.1f} before, {os.getloadavg()[0]:.1f} after"
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    print(f"\n{format_table(table(rows, options.sizes), options.markdown)}")
    if options.json:
        found: dict[str, Any] = {"machine": facts, "rows": [row._asdict() for row in rows]}
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
