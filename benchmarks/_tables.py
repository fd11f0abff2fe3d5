"""What a table of a benchmark is: its columns, who is compared in them, the goals it is held to.

Benchmarks print such tables of what they measured, and `report.py` makes the same tables again from
stored results. So nothing here needs JAX, or anything else that is measured.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from _report import Cells, Section, format_value, geometric_mean, goal_line

Row = Mapping[str, Any]


def always(row: Row) -> bool:
    """Of all rows."""
    return True


@dataclass(frozen=True)
class Column:
    """One column.

    Args:
      heading: its first line.
      value: the field of a row, or how its value is made from a row; None: not measured.
      form: how a number is written, as for `format`.
      peer: in a column of ratios, who we are compared with.
      faster: whether the ratio says how many times faster we are. If not, it is our time in times
        of theirs.
    """

    heading: str
    value: str | Callable[[Row], Any]
    form: str = ""
    peer: str = ""
    faster: bool = False

    def of(self, row: Row) -> Any:
        return self.value(row) if callable(self.value) else row.get(self.value)


class Verdict(NamedTuple):
    """What became of a goal."""

    goal: str
    reached: float
    met: bool
    where: str
    peer: str = ""

    @property
    def line(self) -> str:
        return goal_line(self.goal, self.reached, self.met, self.where)


class Comparison(NamedTuple):
    """Our time in times of a peer's, in one case: above 1 we are slower."""

    case: str
    peer: str
    ratio: float


@dataclass(frozen=True)
class Goal:
    """A number to reach in every row, or in the geometric mean of them.

    Args:
      text: the goal, in words.
      value: the heading of a column, or how the number is made from a row.
      bound: the most that it may be, or the least.
      at_least: whether it is the least.
      mean: whether it is for the geometric mean. If not, for the worst row.
      only: which rows count.
    """

    text: str
    value: str | Callable[[Row], float | None]
    bound: float
    at_least: bool = False
    mean: bool = False
    only: Callable[[Row], bool] = always


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

    def rows(self, rows: Sequence[Any]) -> list[Row]:
        """Those of the given rows that belong here; a row is a mapping or a named tuple."""
        mappings = [row if isinstance(row, Mapping) else row._asdict() for row in rows]
        return [row for row in mappings if self.only(row)]

    def cells(self, rows: Sequence[Any]) -> list[Cells]:
        """The headings and the lines, without columns in which nothing was measured."""
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
        """Which row it is, in words."""
        first, *others = self.columns[: self.labels]
        name = first.of(row)
        parts = [name if isinstance(name, str) else f"{first.heading}: {name}"]
        return ", ".join(parts + [f"{each.heading}: {each.of(row)}" for each in others])

    def comparisons(self, rows: Sequence[Any]) -> list[Comparison]:
        """Every ratio to a peer."""
        found = []
        for row in self.rows(rows):
            for column in self.columns:
                value = column.of(row)
                if column.peer and value:
                    ratio = 1 / value if column.faster else value
                    found.append(Comparison(self.case(row), column.peer, ratio))
        return found

    def verdicts(self, rows: Sequence[Any]) -> list[Verdict]:
        """What became of each goal that these rows say something about."""
        found = (self._verdict(goal, self.rows(rows)) for goal in self.goals)
        return [verdict for verdict in found if verdict is not None]

    def _verdict(self, goal: Goal, rows: Sequence[Row]) -> Verdict | None:
        column = None
        value_of: Callable[[Row], Any]
        if callable(goal.value):
            value_of = goal.value
        else:
            (column,) = (each for each in self.columns if each.heading == goal.value)
            value_of = column.of
        found = [(value_of(row), row) for row in rows if goal.only(row)]
        counted = [(value, row) for value, row in found if value is not None]
        if not counted:
            return None
        where = ""
        if goal.mean:
            reached = geometric_mean([value for value, _ in counted]) or 0.0
        else:
            pick = min if goal.at_least else max
            reached, worst = pick(counted, key=lambda pair: pair[0])
            if len(rows) > 1:
                where = f" at worst ({self.case(worst)})"
        met = reached >= goal.bound if goal.at_least else reached <= goal.bound
        return Verdict(goal.text, reached, met, where, column.peer if column else "")


def section_of(table: Table, title: str, rows: list[Any]) -> Section:
    """What a benchmark prints of a table's rows."""
    goals = [verdict.line for verdict in table.verdicts(rows)]
    return Section(table.key, title, rows, table.cells(rows), goals)
