"""The tables of `input.py`, and the goals they are held to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from _tables import Column, Comparison, Row, Table, Verdict

_COSTS = "times the cost of "
_FASTER = "times faster than "
_FED = "times the step on data on the devices"


def _finding_peer(row: Row) -> str:
    """Who a finding compares us with, if with anyone."""
    if row["what"] == f"{_COSTS}NumPy":
        return "NumPy, copying the rows"
    if row["what"].startswith(_FASTER):
        return row["what"].removeprefix(_FASTER)
    return "the same step without input" if row["what"].startswith(_FED) else ""


@dataclass(frozen=True)
class Findings(Table):
    """A table whose rows say themselves what they compare, and whether a goal is met."""

    def comparisons(self, rows: Sequence[Any]) -> list[Comparison]:
        found = []
        for row in self.rows(rows):
            peer = _finding_peer(row)
            if peer:
                ratio = float(row["measured"])
                ratio = 1 / ratio if row["what"].startswith(_FASTER) else ratio
                case = row["case"] + row["what"].removeprefix(_FED) * row["what"].startswith(_FED)
                found.append(Comparison(case, peer, ratio))
        return found

    def verdicts(self, rows: Sequence[Any]) -> list[Verdict]:
        found = []
        for row in self.rows(rows):
            if row["met"] is not None:
                goal = f"{row['case']}: {row['what']}"
                number = row["measured"] if row["measured"] != "-" else row["wall"]
                found.append(Verdict(goal, float(number), row["met"], "", _finding_peer(row)))
        return found


INPUT = Findings(
    "findings",
    "Processor time of all threads, the best turn of each side; all sides read the same rows.",
    (
        Column("case", lambda row: f"{row['case']}: {row['what']}"),
        Column("goal", "goal"),
        Column("measured", "measured"),
        Column("by the wall", "wall"),
        Column("", lambda row: {True: "met", False: "MISSED", None: ""}[row["met"]]),
    ),
    what="input",
)
