"""What a benchmark is: a chapter of the page, options of the command line, and what is measured."""

import argparse
import contextlib
import importlib.util
import inspect
import os
import platform
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import jax
import optax

import replicax
from benchmarks.harness.processes import Processes
from benchmarks.harness.sides import AnySide, Options, Sides, Turns, start_alike, take_turns
from benchmarks.harness.tables import Cells, Row, Table

# The libraries that can be beside us: their modules, and what results call them.
PEERS = {"tensorflow": "TensorFlow", "torch": "torch", "grain": "Grain"}


class Chapter:
    """What the page has of one benchmark; the docstring of a subclass is its first paragraph.

    Attributes:
      name: of the chapter and of the files of its results.
      title: its heading.
      tables: in their order.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    tables: ClassVar[tuple[Table, ...]] = ()

    @classmethod
    def description(cls) -> str:
        return inspect.cleandoc(cls.__doc__ or "")


class Benchmark(Chapter, ABC):
    """A benchmark. The class attributes say which options it has, and `measure` does the work.

    Attributes:
      peers: the libraries that it can be given an interpreter for, of `PEERS`.
      parts: what `--only` can choose.
      chosen: the parts that are measured by default, if not all.
      rounds: turns that each side takes.
      seconds: the length of a turn, about; None: there is no such option.
      max_steps: how often the work is done in a turn at most; None: there is no such option.
      clocks: whether `--clock` chooses between the wall and the processor time.
      gpu: whether it needs a GPU; then `make bench` runs it only if it is asked for.
      quick: the defaults of options in a trial run, by their names.
    """

    peers: ClassVar[tuple[str, ...]] = ()
    parts: ClassVar[tuple[str, ...]] = ()
    chosen: ClassVar[tuple[str, ...]] = ()
    rounds: ClassVar[int] = 21
    seconds: ClassVar[float | None] = None
    max_steps: ClassVar[int | None] = None
    clocks: ClassVar[bool] = False
    gpu: ClassVar[bool] = False
    quick: ClassVar[Mapping[str, Any]] = {}

    # Of the run, while it measures.
    options: Options
    report: "Report"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Adds the options that only this benchmark has; `set_defaults` for what is no option."""

    @abstractmethod
    def measure(self) -> None:
        """Measures, and adds the rows of the tables to the report."""

    def run(self, arguments: Sequence[str]) -> "Report":
        """Measures with the given options, and returns the report."""
        self.options, self.report = self.parse(arguments), Report()
        self.measure()
        return self.report

    @property
    def unit(self) -> str:
        """What the chosen clock measures."""
        return "milliseconds" if self.options.clock == "wall" else "CPU milliseconds"

    @contextlib.contextmanager
    def beside_peers(self, sides: Sides, **peers: Sequence[Any]) -> Iterator[dict[str, AnySide]]:
        """Yields the sides, and those of the peers that take part, in their interpreters.

        Args:
          sides: in this process.
          peers: of each, the address of its side, and what that is constructed with.
        """
        everyone = dict(sides)
        with contextlib.ExitStack() as stack:
            for peer, (address, *given) in peers.items():
                if python := self.options.pythons.get(peer):
                    child = stack.enter_context(Processes(address, *given, python=python))
                    self.report.versions[PEERS[peer]] = child.version
                    everyone[peer] = child
            yield everyone

    def turns(
        self,
        sides: Sides,
        case: Sequence[Any],
        count: int,
        what: str,
        reference: str | Sequence[float],
        tolerance: float | Mapping[str, float] = 1e-4,
    ) -> Turns:
        """Starts a case on all sides as `start_alike` does, and returns what their turns cost."""
        self.report.progress(what)
        start_alike(sides, case, count, what, reference, tolerance)
        return take_turns(sides, self.options)

    def parse(self, arguments: Sequence[str]) -> Options:
        """Returns the options, with `pythons`, the interpreter of each peer that takes part."""
        parser = self._parser()
        options = parser.parse_args(arguments)
        if options.quick:
            parser.set_defaults(**self.quick)
            options = parser.parse_args(arguments)
        options.pythons = {}
        for peer in self.peers:
            python = getattr(options, f"{peer}_python")
            if not (options.no_peers or getattr(options, f"no_{peer}")):
                if python or importlib.util.find_spec(peer):
                    options.pythons[peer] = python or sys.executable
        return options

    def _parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(
            f"python benchmarks {self.name}",
            description=self.description(),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add = parser.add_argument
        if self.parts:
            chosen = list(self.chosen or self.parts)
            text = f"what is measured (default: {', '.join(chosen)})"
            add("--only", nargs="+", choices=self.parts, default=chosen, help=text)
        self.add_options(parser)
        add("--rounds", type=int, default=self.rounds, help="turns that each side takes")
        if self.seconds is not None:
            text = "length of a turn, about"
            add("--seconds", type=float, default=self.seconds, help=text)
        if self.max_steps is not None:
            add("--max-steps", type=int, default=self.max_steps, help="most steps in a turn")
        if self.clocks:
            text = (
                "cpu counts the processor time of all threads, which a busy machine disturbs less"
            )
            add("--clock", choices=("wall", "cpu"), default="wall", help=text)
        for peer in self.peers:
            text = f"an interpreter that has {PEERS[peer]} (default: this one, if it has)"
            add(f"--{peer}-python", metavar="PATH", help=text)
            add(f"--no-{peer}", action="store_true")
        add("--no-peers", action="store_true", help="without other libraries")
        add("--quick", action="store_true", help="a trial run of some seconds, to see that it runs")
        add("--json", metavar="FILE", help="write the results there too")
        add("--markdown", action="store_true", help="print the tables as Markdown")
        return parser


class Report:
    """What a benchmark measured, and what it says about the run.

    Attributes:
      versions: of what was measured.
      conditions: more about the run.
      measured: the rows of each table by its key, and whatever else is stored.
      tables: those that have rows, with their titles.
    """

    def __init__(self) -> None:
        self.versions = {
            "Python": platform.python_version(),
            "replicax": replicax.__version__,
            "JAX": jax.__version__,
            "optax": optax.__version__,
        }
        self.conditions: dict[str, str] = {}
        self.measured: dict[str, Any] = {"titles": {}}
        self.tables: list[tuple[Table, str]] = []
        self._load = os.getloadavg()[0]

    def add(self, table: Table, rows: Sequence[Row], title: str = "") -> None:
        """Adds the rows of a table; `title` says more about this run than that of the table."""
        self.measured[table.key] = [*rows]
        if title:
            self.measured["titles"][table.key] = title
        self.tables.append((table, title or table.title))

    def add_cells(self, title: str, cells: list[Cells]) -> None:
        """Adds a table that is shown as it is: headings, then lines."""
        self.measured.setdefault("tables", {})[title] = cells

    def note_load(self) -> None:
        """Says how busy the machine was, before and now."""
        text = f"{self._load:.1f} before, {os.getloadavg()[0]:.1f} after"
        self.conditions["load average"] = text

    def progress(self, text: str) -> None:
        """Tells whoever waits what is measured now."""
        print(f"{text} ...", file=sys.stderr, flush=True)

    @property
    def facts(self) -> str:
        """The machine, the versions and the conditions, on one line."""
        facts = {"cores": f"{core_count()} ({platform.machine()})"} | self.versions
        return ", ".join(f"{name} {value}" for name, value in (facts | self.conditions).items())


def core_count() -> int:
    """Returns how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
