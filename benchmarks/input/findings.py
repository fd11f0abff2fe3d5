"""What input should reach, and how a measurement is set beside it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.harness.sides import Cost
from benchmarks.harness.tables import Cells, Column, Comparison, Row, Table, Verdict, columns

OURS, LIMIT, TENSORFLOW = "replicax", "NumPy", "tf.data"
OTHERS = ("Grain", "torch")
SIDES = (OURS, LIMIT, TENSORFLOW, *OTHERS)

# For each pipeline, the cost of each side that has it.
Costs = Mapping[str, Mapping[str, Cost]]

TITLES = {
    "a": "(a) rows of 784 floats",
    "b": "(b) rows of 16 floats",
    "c": "(c) images of bytes, batch.map",
    "c vectorized": "(c) map(vectorized=True).batch",
    "c element": "(c) map.batch",
    "a devices": "(a) to 4 devices",
    "b devices": "(b) to 4 devices",
    "c devices": "(c) to 4 devices",
    "c on device": "(c) to 4 devices, map(on_device=True)",
    "d raw unchecked": "(d) records, no checksums",
    "d raw": "(d) records",
    "d parse": "(d) batch.map(parse_example)",
    "d parse plain": "(d) the same in plain Python",
    "d parse single": "(d) map(parse_single_example).batch",
    "e": "(e) lines of text",
    "g sample": "(g) rows of 16 floats, sample_from_datasets",
    "g bucket": "(g) bucket_by_sequence_length, an epoch",
    "g ragged": "(g) ragged_batch, an epoch",
    "g sequences": "(g) batch.map(parse_sequence_example), an epoch",
}
# Of a pipeline of ours and a side: at most so many times the limit's cost, or at least so many
# times faster than a library; None: no goal. The last is the side's pipeline, if it has another.
GOALS: tuple[tuple[str, str, float | None, str], ...] = (
    ("a", LIMIT, 1.3, ""),
    ("a", TENSORFLOW, 7, ""),
    ("b", LIMIT, 1.5, ""),
    ("b", TENSORFLOW, 50, ""),
    ("c", LIMIT, 1.3, ""),
    ("c", TENSORFLOW, 4, ""),
    ("c vectorized", LIMIT, 1.3, ""),
    ("c vectorized", TENSORFLOW, 4, "c"),
    ("c element", TENSORFLOW, None, ""),
    ("a devices", LIMIT, 2.6, ""),
    ("a devices", TENSORFLOW, 10, ""),
    ("b devices", LIMIT, 5, ""),
    ("b devices", TENSORFLOW, 30, ""),
    ("c devices", LIMIT, 2.6, ""),
    ("c devices", TENSORFLOW, 4, ""),
    ("c on device", TENSORFLOW, 1, "c"),
    ("d raw unchecked", TENSORFLOW, 2.5, "d raw"),
    ("d raw", TENSORFLOW, 1.2, ""),
    ("d parse", TENSORFLOW, 4, ""),
    ("d parse plain", TENSORFLOW, 0.8, "d parse"),
    ("d parse single", TENSORFLOW, 5, ""),
    ("e", LIMIT, 1.3, ""),
    ("e", TENSORFLOW, 10, ""),
    ("g sample", TENSORFLOW, None, ""),
    ("g bucket", TENSORFLOW, None, ""),
    ("g ragged", TENSORFLOW, None, ""),
    ("g sequences", TENSORFLOW, None, ""),
)
# Of one worker of two.
FASTER_GOALS = {"records FILE": 4.0, "text FILE": 8.0}
DATA_GOALS = {"records": 2.0, "text": 2.0}
INDEXED_GOAL = 1.2

_COSTS = "times the cost of "
_FASTER = "times faster than "
FED = "times the step on data on the devices"


def finding(
    case: str, what: str, goal: str, measured: str, wall: str, met: bool | None = None
) -> Row:
    """Returns a line of the table; `measured` is processor time, and `met` None without a goal."""
    about = {"case": case, "what": what, "goal": goal}
    return {**about, "measured": measured, "wall": wall, "met": met}


def costs_finding(
    case: str, what: str, ours: Cost, theirs: Cost, most: float | None, digits: int = 2
) -> Row:
    """Returns a line: our cost divided by theirs, which should be at most so much."""
    wall, cpu = (mine / other for mine, other in zip(ours, theirs))
    goal, met = ("", None) if most is None else (f"<= {most:g}", cpu <= most)
    return finding(case, what, goal, f"{cpu:.{digits}f}", f"{wall:.{digits}f}", met)


def faster_finding(case: str, peer: str, ours: Cost, theirs: Cost, least: float | None) -> Row:
    """Returns a line: how many times faster we are, which should be at least so many."""
    wall, cpu = (other / mine for mine, other in zip(ours, theirs))
    goal, met = ("", None) if least is None else (f">= {least:g}", cpu >= least)
    return finding(case, _FASTER + peer, goal, f"{cpu:.2f}", f"{wall:.2f}", met)


def stream_findings(costs: Costs) -> Iterator[Row]:
    """Yields a line for each goal, and for each pipeline of the sides that have no goals."""
    others = [(name, side, None, "") for side in OTHERS for name in TITLES]
    for name, side, bound, other in (*GOALS, *others):
        ours, theirs = costs.get(name, {}).get(OURS), costs.get(other or name, {}).get(side)
        if ours is not None and theirs is not None:
            if side == LIMIT:
                yield costs_finding(TITLES[name], _COSTS + side, ours, theirs, bound)
            else:
                yield faster_finding(TITLES[name], side, ours, theirs, bound)


def worker_findings(costs: Costs) -> Iterator[Row]:
    """Yields the lines of one worker of two."""
    for name, goal in FASTER_GOALS.items():
        if TENSORFLOW in costs[name]:
            ours, theirs = costs[name][OURS], costs[name][TENSORFLOW]
            yield faster_finding(f"(f) {name}", TENSORFLOW, ours, theirs, goal)
    for source, goal in DATA_GOALS.items():
        data, file = costs[f"{source} DATA"][OURS], costs[f"{source} FILE"][OURS]
        yield costs_finding(f"(f) {source} DATA", f"{_COSTS}FILE", data, file, goal)
    what = f"{_COSTS}half the rows and no other worker"
    rows, half = costs["rows DATA"][OURS], costs["half the rows"][OURS]
    yield costs_finding("(f) rows in memory, DATA", what, rows, half, INDEXED_GOAL)


def ceilings(costs: Costs) -> list[str]:
    """Returns how much faster than tf.data NumPy itself is: nobody can be faster than that."""
    lines = []
    for name, sides in costs.items():
        if LIMIT in sides and TENSORFLOW in sides and "devices" not in name:
            ratio = sides[TENSORFLOW].cpu / sides[LIMIT].cpu
            lines.append(f"{TITLES[name]}: {LIMIT} alone is {ratio:.1f} times faster than tf.data.")
    return lines


def cost_cells(costs: Costs, scale: float, digits: int = 0) -> list[Cells]:
    """Returns a table of costs, by the processor and by the wall."""
    sides = [side for side in SIDES if any(side in row for row in costs.values())]

    def cell(cost: Cost | None) -> str:
        if cost is None:
            return "-"
        return f"{scale * cost.cpu:.{digits}f} / {scale * cost.wall:.{digits}f}"

    rows = [
        (TITLES.get(name, name), *(cell(row.get(side)) for side in sides))
        for name, row in costs.items()
    ]
    return [("CPU / wall", *sides), *rows]


@dataclass(frozen=True)
class Findings(Table):
    """A table whose rows say themselves what they compare, and whether a goal is met."""

    def comparisons(self, rows: Sequence[Row]) -> list[Comparison]:
        found = []
        for row in rows:
            if peer := _peer_of(row):
                ratio, what = float(row["measured"]), row["what"]
                ratio = 1 / ratio if what.startswith(_FASTER) else ratio
                case = row["case"] + (what.removeprefix(FED) if what.startswith(FED) else "")
                found.append(Comparison(case, peer, ratio))
        return found

    def verdicts(self, rows: Sequence[Row]) -> list[Verdict]:
        found = []
        for row in rows:
            if row["met"] is not None:
                goal = f"{row['case']}: {row['what']}"
                number = row["measured"] if row["measured"] != "-" else row["wall"]
                found.append(Verdict(goal, float(number), row["met"], "", _peer_of(row)))
        return found

    def goal_lines(self, rows: Sequence[Row]) -> list[str]:
        verdicts = self.verdicts(rows)
        return [f"{sum(each.met for each in verdicts)} of {len(verdicts)} goals are met."]


def _peer_of(row: Row) -> str:
    """Returns who a line compares us with, if with anyone."""
    if row["what"] == f"{_COSTS}{LIMIT}":
        return "NumPy, copying the rows"
    if row["what"].startswith(_FASTER):
        return row["what"].removeprefix(_FASTER)
    return "the same step without input" if row["what"].startswith(FED) else ""


INPUT = Findings(
    "findings",
    "Processor time of all threads, the best turn of each side; all sides read the same rows.",
    (
        Column("case", lambda row: f"{row['case']}: {row['what']}"),
        *columns("", "goal", "measured"),
        Column("by the wall", "wall"),
        Column("", lambda row: {True: "met", False: "MISSED", None: ""}[row["met"]]),
    ),
    what="input",
)
