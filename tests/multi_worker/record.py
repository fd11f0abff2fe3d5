"""Records what TensorFlow does: `python -m tests.multi_worker.record [part of a name]`.

Plays every scenario (or those with the given text in their name) in jobs of real TensorFlow workers
and writes one JSON file a topic under `recorded/`: what each worker of each layout observed, beside
what replicax does instead where it differs on purpose.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from ..parity._observation import differences
from ._job import Played, play
from ._layout import LAYOUTS, Layout
from ._registry import Scenario
from .scenarios import all_scenarios

RECORDED = Path(__file__).parent / "recorded"
RESTARTS = 40


def main() -> None:
    """Plays scenarios in TensorFlow and replaces what was recorded of them."""
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    scenarios = list(all_scenarios())
    version, entries = _recorded() if part else ("", {})
    problems: list[str] = []
    for layout in LAYOUTS.values():
        chosen = [each for each in scenarios if layout.name in each.layouts]
        wanted = [each for each in chosen if part in each.name and not each.not_in_tensorflow]
        played = play("tensorflow", layout, [("eager", each.name) for each in wanted], RESTARTS)
        version = played.version or version
        for scenario in wanted:
            observed, found = _of(scenario, layout, played)
            entries.setdefault(scenario.name, {})[layout.name] = {"tensorflow": observed}
            problems += found
        for scenario in chosen:
            entry = entries.setdefault(scenario.name, {}).setdefault(layout.name, {})
            problems += _add_ours(entry, scenario, layout)
        print(
            f"{len(wanted)} scenarios in {layout.name}, {len(played.broken)} restarts", flush=True
        )
    _write(
        version,
        {
            each.name: {name: entries[each.name][name] for name in each.layouts}
            for each in scenarios
        },
    )
    print("\n".join([f"recorded from TensorFlow {version}", *problems]))
    sys.exit(1 if problems else 0)


def _recorded() -> tuple[str, dict[str, Any]]:
    files = [json.loads(path.read_text()) for path in RECORDED.glob("*.json")]
    entries = {name: entry for file in files for name, entry in file["scenarios"].items()}
    return files[0]["tensorflow"], entries


def _of(scenario: Scenario, layout: Layout, played: Played) -> tuple[list[Any], list[str]]:
    pair = ("eager", scenario.name)
    observed = played.observed.get(pair, [None])
    problems = [
        f"{scenario.name} in {layout.name}: {why}"
        for seen in observed
        if (why := _broken(seen, played.broken.get(pair, "not played")))
    ]
    return observed, problems[:1]


def _broken(seen: Any, otherwise: str) -> str:
    if isinstance(seen, dict) and "broke" in seen:
        return seen["broke"]
    return otherwise if seen is None else ""


def _add_ours(entry: dict[str, Any], scenario: Scenario, layout: Layout) -> list[str]:
    for stale in ("ours", "reason"):
        entry.pop(stale, None)
    if (difference := scenario.difference(layout)) is None:
        return []
    reason = scenario.not_in_tensorflow or difference.reason
    entry |= {"ours": scenario.ours(layout), "reason": reason}
    if list(differences(entry["ours"], entry.get("tensorflow"))):
        return []
    return [f"{scenario.name} in {layout.name} is ours but TensorFlow agrees"]


def _write(version: str, entries: dict[str, Any]) -> None:
    topics: dict[str, list[str]] = defaultdict(list)
    for name, layouts in entries.items():
        # One layout of one scenario a line: a change of behaviour is then one line in a diff.
        lines = ",\n".join(f"      {json.dumps(k)}: {json.dumps(v)}" for k, v in layouts.items())
        topics[name.partition(".")[0]].append(f"    {json.dumps(name)}: {{\n{lines}\n    }}")
    RECORDED.mkdir(exist_ok=True)
    for stale in RECORDED.glob("*.json"):
        stale.unlink()
    for topic, bodies in topics.items():
        body = ",\n".join(bodies)
        text = f'{{\n  "tensorflow": "{version}",\n  "scenarios": {{\n{body}\n  }}\n}}\n'
        (RECORDED / f"{topic}.json").write_text(text)


if __name__ == "__main__":
    main()
