"""What `input.py` wants to reach, and how a measurement is set beside it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from _input_stream import Cost
from _report import Cells

OURS, LIMIT, TENSORFLOW = "replicax", "NumPy", "tf.data"
SIDES = (OURS, LIMIT, TENSORFLOW, "Grain", "torch")

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
}


class Finding(NamedTuple):
    """A line of the table of goals; `met` is None where no goal was set."""

    case: str
    what: str
    goal: str
    measured: str
    wall: str
    met: bool | None


class Goal(NamedTuple):
    """At most so many times the limit's cost, or at least so many times faster than a library.

    Args:
        pipeline: of ours.
        side: what it is compared with.
        bound: the number to reach: the most for the limit, the least for a library; None: no goal.
        other: the pipeline of the other side, if it has another name.
    """

    pipeline: str
    side: str
    bound: float | None
    other: str = ""

    def finding(self, costs: Costs) -> Finding | None:
        ours = costs.get(self.pipeline, {}).get(OURS)
        theirs = costs.get(self.other or self.pipeline, {}).get(self.side)
        if ours is None or theirs is None:
            return None
        if self.side == LIMIT:
            ratios = Cost(*(mine / other for mine, other in zip(ours, theirs)))
            what, sign = f"times the cost of {self.side}", "<="
            met = None if self.bound is None else ratios.cpu <= self.bound
        else:
            ratios = Cost(*(other / mine for mine, other in zip(ours, theirs)))
            what, sign = f"times faster than {self.side}", ">="
            met = None if self.bound is None else ratios.cpu >= self.bound
        goal = "" if self.bound is None else f"{sign} {self.bound:g}"
        title = TITLES[self.pipeline]
        return Finding(title, what, goal, f"{ratios.cpu:.2f}", f"{ratios.wall:.2f}", met)


GOALS = (
    Goal("a", LIMIT, 1.3),
    Goal("a", TENSORFLOW, 7),
    Goal("b", LIMIT, 1.5),
    Goal("b", TENSORFLOW, 50),
    Goal("c", LIMIT, 1.3),
    Goal("c", TENSORFLOW, 4),
    Goal("c vectorized", LIMIT, 1.3),
    Goal("c vectorized", TENSORFLOW, 4, "c"),
    Goal("c element", TENSORFLOW, None),
    Goal("a devices", LIMIT, 2.6),
    Goal("a devices", TENSORFLOW, 10),
    Goal("b devices", LIMIT, 5),
    Goal("b devices", TENSORFLOW, 30),
    Goal("c devices", LIMIT, 2.6),
    Goal("c devices", TENSORFLOW, 4),
    Goal("c on device", TENSORFLOW, 1, "c"),
    Goal("d raw unchecked", TENSORFLOW, 2.5, "d raw"),
    Goal("d raw", TENSORFLOW, 1.2),
    Goal("d parse", TENSORFLOW, 4),
    Goal("d parse plain", TENSORFLOW, 0.8, "d parse"),
    Goal("d parse single", TENSORFLOW, 5),
    Goal("e", LIMIT, 1.3),
    Goal("e", TENSORFLOW, 10),
)


def findings(costs: Costs) -> list[Finding]:
    found = [finding for goal in GOALS if (finding := goal.finding(costs)) is not None]
    for side in SIDES[3:]:
        more = (Goal(name, side, None).finding(costs) for name in TITLES)
        found += [finding for finding in more if finding is not None]
    return found


def ceilings(costs: Costs) -> list[str]:
    """How much faster than tf.data NumPy itself is: nobody can be faster than that."""
    lines = []
    for name, sides in costs.items():
        if LIMIT in sides and TENSORFLOW in sides and "devices" not in name:
            ratio = sides[TENSORFLOW].cpu / sides[LIMIT].cpu
            lines.append(f"{TITLES[name]}: {LIMIT} alone is {ratio:.1f} times faster than tf.data.")
    return lines


def cost_cells(costs: Costs) -> list[Cells]:
    """Microseconds of a batch: by the processor, and by the wall."""
    sides = [side for side in SIDES if any(side in found for found in costs.values())]

    def cell(cost: Cost | None) -> str:
        return "-" if cost is None else f"{1e6 * cost.cpu:.0f} / {1e6 * cost.wall:.0f}"

    rows: Sequence[Cells] = [
        (TITLES[name], *(cell(found.get(side)) for side in sides)) for name, found in costs.items()
    ]
    return [("CPU / wall", *sides), *rows]
