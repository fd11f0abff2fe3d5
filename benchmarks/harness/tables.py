"""Tables of results: their columns, who is compared in them, and the goals they are held to.

A benchmark prints such tables of what it measured, and the page is made of the same tables from
stored results. So nothing here needs JAX, or anything else that is measured.
"""

import functools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

Row = Mapping[str, Any]
Cells = tuple[str, ...]


def always(row: Row) -> bool:
    """Selects every row."""
    return True


@dataclass(frozen=True)
class Column:
    """One column.

    Args:
      heading: its first line.
      value: the field of a row, or a function that makes the value from a row; None as a value
        means that nothing was measured. By default the heading, in lower case and with
        underscores.
      form: how a number is written, as for `format`.
      peer: in a column of ratios, who we are compared with.
      faster: whether the ratio says how many times faster we are. If not, it is our time divided
        by theirs.
    """

    heading: str
    value: str | Callable[[Row], Any] = ""
    form: str = ""
    peer: str = ""
    faster: bool = False

    def of(self, row: Row) -> Any:
        """Returns the value of a row."""
        if callable(self.value):
            return self.value(row)
        return row.get(self.value or self.heading.lower().replace(" ", "_"))


def columns(form: str, *headings: str) -> tuple[Column, ...]:
    """Returns columns of fields that are named as their headings."""
    return tuple(Column(heading, form=form) for heading in headings)


class Verdict(NamedTuple):
    """Whether a goal is met, and the number that was reached."""

    goal: str
    reached: float
    met: bool
    where: str
    peer: str = ""

    @property
    def line(self) -> str:
        return f"{'met' if self.met else 'MISSED'}: {self.goal}; {self.reached:.2f}{self.where}"


class Comparison(NamedTuple):
    """Our time divided by a peer's, in one case: above 1 we are slower."""

    case: str
    peer: str
    ratio: float


@dataclass(frozen=True)
class Goal:
    """A number to reach in every row, or in the geometric mean of them.

    Args:
      text: the goal, in words.
      value: the heading of a column, or a function that makes the number from a row.
      bound: the most that it may be, or the least.
      only: which rows count.
      mean: whether it is for the geometric mean. If not, for the worst row.
      at_least: whether `bound` is the least.
    """

    text: str
    value: str | Callable[[Row], float | None]
    bound: float
    only: Callable[[Row], bool] = always
    mean: bool = False
    at_least: bool = False


at_most = Goal
at_least = functools.partial(Goal, at_least=True)


@dataclass(frozen=True)
class Table:
    """One table.

    Args:
      key: the name of its rows in the results of a benchmark.
      title: what the numbers are; a benchmark may say more about its run.
      columns: from left to right; the first `labels` of them say which row it is.
      what: what is compared in it, in a few words; without that it is not compared with anyone.
      goals: what its rows are held to.
      only: which rows belong to it, if several tables share a key.
      mean: whether the last line has the geometric means of the ratios.
    """

    key: str
    title: str
    columns: tuple[Column, ...]
    what: str = ""
    goals: tuple[Goal, ...] = ()
    labels: int = 1
    only: Callable[[Row], bool] = always
    mean: bool = False

    def rows(self, rows: Sequence[Row]) -> list[Row]:
        """Returns those of the given rows that belong to this table."""
        return [row for row in rows if self.only(row)]

    def cells(self, rows: Sequence[Row]) -> list[Cells]:
        """Returns the headings and the lines, without columns in which nothing was measured."""
        mine = self.rows(rows)
        columns = [
            column
            for index, column in enumerate(self.columns)
            if index < self.labels or any(column.of(row) is not None for row in mine)
        ]
        cells: list[Cells] = [tuple(column.heading for column in columns)]
        cells += [
            tuple(format_value(column.of(row), column.form) for column in columns) for row in mine
        ]
        if self.mean and len(mine) > 1:
            means = (
                format_value(geometric_mean([column.of(row) for row in mine]), column.form)
                if column.peer
                else ""
                for column in columns[1:]
            )
            cells.append(("geometric mean", *means))
        return cells

    def case(self, row: Row) -> str:
        """Returns which row it is, in words."""
        first, *others = self.columns[: self.labels]
        name = first.of(row)
        parts = [name if isinstance(name, str) else f"{first.heading}: {name}"]
        return ", ".join(parts + [f"{each.heading}: {each.of(row)}" for each in others])

    def comparisons(self, rows: Sequence[Row]) -> list[Comparison]:
        """Returns every ratio to a peer."""
        return [
            Comparison(self.case(row), column.peer, 1 / value if column.faster else value)
            for row in self.rows(rows)
            for column in self.columns
            if column.peer and (value := column.of(row))
        ]

    def verdicts(self, rows: Sequence[Row]) -> list[Verdict]:
        """Returns a verdict on each goal that these rows say something about."""
        verdicts = (self._verdict(goal, self.rows(rows)) for goal in self.goals)
        return [verdict for verdict in verdicts if verdict is not None]

    def goal_lines(self, rows: Sequence[Row]) -> list[str]:
        """Returns the verdicts in words."""
        return [verdict.line for verdict in self.verdicts(rows)]

    def _verdict(self, goal: Goal, rows: Sequence[Row]) -> Verdict | None:
        peer = ""
        if callable(goal.value):
            value_of = goal.value
        else:
            (column,) = (each for each in self.columns if each.heading == goal.value)
            value_of, peer = column.of, column.peer
        values = [(value_of(row), row) for row in rows if goal.only(row)]
        known = [(value, row) for value, row in values if value is not None]
        if not known:
            return None
        where = ""
        if goal.mean:
            reached = geometric_mean([value for value, _ in known]) or 0.0
        else:
            pick = min if goal.at_least else max
            reached, worst = pick(known, key=lambda pair: pair[0])
            if len(rows) > 1:
                where = f" at worst ({self.case(worst)})"
        met = reached >= goal.bound if goal.at_least else reached <= goal.bound
        return Verdict(goal.text, reached, met, where, peer)


def format_value(value: Any, form: str = "") -> str:
    """Returns a number or a text as it stands in a table; "-" where nothing was measured."""
    return "-" if value is None else format(value, form)


def geometric_mean(ratios: Sequence[float | None]) -> float | None:
    """Returns the mean of the ratios that were measured."""
    known = [ratio for ratio in ratios if ratio is not None]
    return statistics.geometric_mean(known) if known else None


def format_table(cells: Sequence[Cells], markdown: bool, texts: int = 1) -> str:
    """Returns lines of cells, headings first; those after the first `texts` are on the right."""
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = []
    for line in cells:
        padded = [cell.ljust(width) for cell, width in zip(line[:texts], widths)]
        padded += [cell.rjust(width) for cell, width in zip(line[texts:], widths[texts:])]
        lines.append("| " + " | ".join(padded) + " |" if markdown else "  ".join(padded))
    if markdown:
        rule = ["-" * width for width in widths[:texts]]
        rule += ["-" * (width - 1) + ":" for width in widths[texts:]]
        lines.insert(1, "| " + " | ".join(rule) + " |")
    return "\n".join(lines)
