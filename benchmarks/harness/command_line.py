"""Runs benchmarks, stores what they measure, and composes RESULTS.md from all that is stored.

    python benchmarks NAME [options]         # one benchmark: prints its tables; --help for more
    python benchmarks run                    # all, then the page; `make bench`
    python benchmarks run step keras_fit     # some; `make bench BENCH="step keras_fit"`
    python benchmarks page                   # the page only; `make bench-report`

A result is stored as `benchmarks/results/<machine>/<run>.json` and replaced when it is measured
again on that machine; results of other machines stay. The page has nothing but what is stored
there, what benchmarks say about themselves, and the notes in NOTES.md.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness.benchmark import PEERS, Benchmark, Report
from benchmarks.harness.catalog import benchmarks
from benchmarks.harness.page import compose, read_notes
from benchmarks.harness.results import FOLDER, load_all
from benchmarks.harness.runs import RunFailed, make_run
from benchmarks.harness.tables import format_table


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what the command line asks for."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and given[0] in benchmarks():
        run_benchmark(benchmarks()[given[0]], given[1:])
        return
    options = parse_options(given)
    failed = run_all(options) if options.command == "run" else []
    options.page.parent.mkdir(parents=True, exist_ok=True)
    options.page.write_text(compose(load_all(options.results), read_notes()))
    print(f"composed {options.page}")
    for line in failed:
        print(f"NO RESULT of {line}", file=sys.stderr)
    sys.exit(bool(failed))


def run_benchmark(benchmark: Benchmark, arguments: Sequence[str]) -> None:
    """Measures one benchmark here, prints its tables, and writes them if there is a file for it."""
    report = benchmark.run(arguments)
    print_report(report, benchmark.options.markdown)
    if benchmark.options.json:
        about = {"versions": report.versions, "conditions": report.conditions}
        text = json.dumps(about | report.measured, indent=2) + "\n"
        Path(benchmark.options.json).write_text(text)


def print_report(report: Report, markdown: bool) -> None:
    """Prints the facts, then each table and the verdicts on its goals."""
    bullet = "- " if markdown else ""
    print(report.facts)
    for table, title in report.tables:
        rows = report.measured[table.key]
        print(f"\n{title}\n\n{format_table(table.cells(rows), markdown)}\n")
        for line in table.goal_lines(rows):
            print(bullet + line)
    for title, cells in report.measured.get("tables", {}).items():
        print(f"\n{title}:\n\n{format_table(cells, markdown)}")
    for line in report.measured.get("lines", ()):
        print(bullet + line)


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the options of `run` and `page`."""
    parser = argparse.ArgumentParser(
        "python benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"benchmarks: {', '.join(benchmarks())}",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure, store, and compose the page")
    text = f"of {', '.join(benchmarks())} (default: all that need no GPU)"
    run.add_argument("runs", nargs="*", metavar="NAME", help=text)
    for peer, title in PEERS.items():
        text = f"an interpreter that has {title} (default: this one, if it has)"
        run.add_argument(f"--{peer}-python", metavar="PATH", help=text)
    run.add_argument("--no-peers", action="store_true", help="no other library")
    run.add_argument("--replace", action="store_true", help="even if a peer gets lost from a table")
    run.add_argument("--machine", default="", help="its name (default: from its cores or its GPU)")
    run.add_argument("--rounds", type=int, help="turns of each side (default: as each has)")
    run.add_argument("--limit", type=float, metavar="SECONDS", help="for all runs together")
    run.add_argument("--quick", action="store_true", help="a trial run; needs --results")
    page = commands.add_parser("page", help="compose the page from the stored results")
    for each in (run, page):
        each.add_argument("--results", type=Path, metavar="FOLDER", default=FOLDER)
        each.add_argument("--page", type=Path, metavar="FILE", help="(default: RESULTS.md here)")
    options = parser.parse_args(arguments)
    elsewhere = options.results.resolve() != FOLDER.resolve()
    if options.command == "run":
        if options.quick and not elsewhere:
            parser.error("--quick measures nothing worth keeping: say where with --results FOLDER")
        for name in options.runs:
            if name not in benchmarks():
                parser.error(f"there is no benchmark {name!r}, only {', '.join(benchmarks())}")
        options.runs = options.runs or [n for n, each in benchmarks().items() if not each.gpu]
    options.page = options.page or (options.results if elsewhere else FOLDER.parent) / "RESULTS.md"
    return options


def run_all(options: argparse.Namespace) -> list[str]:
    """Makes the runs one after the other; returns a line for each that gave no result."""
    failed = []
    begin = time.monotonic()
    for name in options.runs:
        left = None if options.limit is None else options.limit - (time.monotonic() - begin)
        print(f"== {name}", flush=True)
        try:
            if left is not None and left <= 0:
                raise RunFailed("there was no time left for it")
            print(f"stored in {make_run(benchmarks()[name], options, left)}\n", flush=True)
        except RunFailed as error:
            failed.append(f"{name}: {error}.")
    return failed
