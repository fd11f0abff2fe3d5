"""The table of plans in docs/scaling.md: a transformer of 8 billion parameters on many devices.

    python -m scripts.plans_table                      # v5e and v6e: needs `replicax[plan]`
    python -m scripts.plans_table h200                 # on a machine with an H200
    python -m scripts.plans_table v5e --write          # put the rows into the page

Everything is in parts over the replicas; each replica has one row of 2048 tokens. A row of the page
that is not made again stays as it is.
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

import replicax as rx
from replicax._src.planning import Plan, amount, seconds
from scripts.planned_transformer import SIZES, training

PAGE = Path(__file__).resolve().parent.parent / "docs" / "scaling.md"
TPUS = ("2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
GPUS = ("1x8", "2x8", "4x8", "8x8", "16x8", "32x8")
MESHES = {"v5e": TPUS, "v6e": TPUS, "h200": GPUS}
HEAD = (
    "| on | devices | state | in between | peak | has | fits | gathered | scattered | estimate |\n"
    "|---|--:|--:|--:|--:|--:|---|--:|--:|--:|"
)
BEGIN, END = "<!-- made by scripts/plans_table.py -->\n", "<!-- end of the table -->\n"


def plan_on(name: str, size: str, layout: str) -> Plan:
    """The plan of the transformer on some devices."""
    state = rx.distribute.StateLayout(over_replicas=layout)
    strategy = rx.distribute.MirroredStrategy(rx.config.planned_devices(name), state_layout=state)
    found = training(strategy, SIZES[size])
    return found.step.explain(found.batch()).plan


def row(plan: Plan) -> str:
    """A line of the table."""
    state = plan.memory["parameters"] + plan.memory["optimizer"] + plan.memory["variables"]
    kinds = {kind: 0 for kind in ("all-gather", "reduce-scatter")}
    for each in plan.exchanges:
        if each.kind in kinds:
            kinds[each.kind] += each.bytes
    known = plan.problem is None
    cells = (
        f"`{plan.on}`",
        plan.devices,
        amount(state),
        amount(plan.peak - state),
        amount(plan.peak),
        "?" if plan.available is None else amount(plan.available),
        {True: "yes", False: "no", None: "?"}[plan.fits],
        amount(kinds["all-gather"]) if known else "",
        amount(kinds["reduce-scatter"]) if known else "",
        seconds(plan.step_seconds) if plan.step_seconds is not None else "",
    )
    return f"| {' | '.join(map(str, cells))} |"


def merged(page: str, rows: list[str]) -> str:
    """The page with these rows in the place of those that have the same name."""
    before, _, rest = page.partition(BEGIN)
    old, _, after = rest.partition(END)
    known = {
        found[1]: line for line in old.splitlines() if (found := re.match(r"\| `(.+?)`", line))
    }
    for line in rows:
        found = re.match(r"\| `(.+?)`", line)
        assert found is not None
        known[found[1]] = line
    order = [f"{kind}:{mesh}" for kind, meshes in MESHES.items() for mesh in meshes]
    lines = [known[name] for name in order if name in known]
    return "".join([before, BEGIN, "\n", HEAD, "\n", "\n".join(lines), "\n\n", END, after])


def main() -> None:
    """Prints the rows as they are made."""
    parser = argparse.ArgumentParser(description="The table of plans in docs/scaling.md.")
    parser.add_argument("hardware", nargs="*", default=["v5e", "v6e"])
    parser.add_argument("--size", default="8b-stacked", choices=SIZES)
    parser.add_argument("--layout", default="everything")
    parser.add_argument("--write", action="store_true", help="put the rows into docs/scaling.md")
    arguments = parser.parse_args()
    print(HEAD)
    for hardware in arguments.hardware:
        kind, _, mesh = hardware.partition(":")
        for each in [mesh] if mesh else MESHES[kind]:
            begun = time.perf_counter()
            line = row(plan_on(f"{kind}:{each}", arguments.size, arguments.layout))
            print(f"{line} {time.perf_counter() - begun:.0f} s", flush=True)
            if arguments.write:
                page = PAGE.read_text(encoding="utf-8")
                PAGE.write_text(merged(page, [line]), encoding="utf-8")


if __name__ == "__main__":
    main()
