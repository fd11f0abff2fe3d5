"""The harness that benchmarks plug into.

A benchmark is a subclass of `Benchmark`, and what it compares are subclasses of `Side`. The harness
has the rest: the command line, the turns that sides take, the processes and interpreters of peers,
the tables, the stored results, and the page that is made of them.
"""

from benchmarks.harness.benchmark import Benchmark, Chapter, Options, Report
from benchmarks.harness.processes import Processes
from benchmarks.harness.sides import (
    Cost,
    Side,
    Turns,
    Work,
    check_equal,
    start_alike,
    take_turns,
)
from benchmarks.harness.tables import Cells, Column, Comparison, Goal, Row, Table, Verdict

__all__ = [
    "Benchmark",
    "Cells",
    "Chapter",
    "Column",
    "Comparison",
    "Cost",
    "Goal",
    "Options",
    "Processes",
    "Report",
    "Row",
    "Side",
    "Table",
    "Turns",
    "Verdict",
    "Work",
    "check_equal",
    "start_alike",
    "take_turns",
]
