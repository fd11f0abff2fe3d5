"""Runs the benchmarks, stores what they measure, and composes RESULTS.md from all that is stored.

    python benchmarks/report.py run                      # all, then the page; `make bench`
    python benchmarks/report.py run step keras_fit       # some; `make bench BENCH="step keras_fit"`
    python benchmarks/report.py page                     # the page only; `make bench-report`

A result is stored as `benchmarks/results/<machine>/<run>.json` and replaced when it is measured
again on that machine; results of other machines stay. The page has nothing but what is stored there
and the notes in NOTES.md.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from _page import compose, read_notes
from _results import FOLDER, load_all
from _runs import PEERS, RUNS, RunFailed, Settings, make_run

PAGE = Path(__file__).with_name("RESULTS.md")


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure, store, and compose the page")
    run.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help=f"of {', '.join(RUNS)} (default: all that need no GPU)",
    )
    for peer, title in PEERS.items():
        run.add_argument(
            f"--{peer}-python",
            metavar="PATH",
            help=f"an interpreter that has {title} (default: this one, if it has)",
        )
    run.add_argument("--no-peers", action="store_true", help="no other library")
    run.add_argument("--replace", action="store_true", help="even if a peer gets lost from a table")
    run.add_argument("--machine", default="", help="its name (default: from its cores or its GPU)")
    run.add_argument("--rounds", type=int, help="turns of each side (default: as each script has)")
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
            if name not in RUNS:
                parser.error(f"there is no run {name!r}, only {', '.join(RUNS)}")
        options.runs = options.runs or [name for name, each in RUNS.items() if not each.gpu]
    options.page = options.page or (options.results / PAGE.name if elsewhere else PAGE)
    return options


def run_all(options: argparse.Namespace) -> list[str]:
    """Makes the runs one after the other; returns a line for each that gave no result."""
    pythons = {peer: getattr(options, f"{peer}_python") for peer in PEERS}
    settings = Settings(
        options.results,
        {peer: python for peer, python in pythons.items() if python},
        options.no_peers,
        options.machine,
        options.rounds,
        options.quick,
        options.replace,
    )
    failed = []
    begin = time.monotonic()
    for name in options.runs:
        left = None if options.limit is None else options.limit - (time.monotonic() - begin)
        print(f"== {name}", flush=True)
        try:
            if left is not None and left <= 0:
                raise RunFailed("there was no time left for it")
            print(f"stored in {make_run(name, settings, left)}\n", flush=True)
        except RunFailed as error:
            failed.append(f"{name}: {error}.")
    return failed


def write_page(results: Path, page: Path) -> None:
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(compose(load_all(results), read_notes()))
    print(f"composed {page}")


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_options(arguments)
    failed = run_all(options) if options.command == "run" else []
    write_page(options.results, options.page)
    for line in failed:
        print(f"NO RESULT of {line}", file=sys.stderr)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
