"""Tables, ratios and goals, as all benchmarks print and write them."""

import json
import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

Cells = tuple[str, ...]


def as_text(value: float | None, digits: int = 2) -> str:
    return format_value(value, f".{digits}f")


def format_value(value: Any, form: str = "") -> str:
    """A number or a text in a table; "-" where nothing was measured."""
    return "-" if value is None else format(value, form)


def geometric_mean(ratios: Sequence[float | None]) -> float | None:
    known = [ratio for ratio in ratios if ratio is not None]
    return statistics.geometric_mean(known) if known else None


def format_table(cells: Sequence[Cells], markdown: bool, texts: int = 1) -> str:
    """Lines of cells, the first with the headings; after the first `texts`, on the right."""
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


def goal_line(goal: str, reached: float, met: bool, where: str = "") -> str:
    return f"{'met' if met else 'MISSED'}: {goal}; {reached:.2f}{where}"


def machine_facts(tensorflow_version: str | None) -> dict[str, str]:
    """The machine and the versions of what runs in this process."""
    # Not above: pages are composed where there is no JAX.
    import jax
    import optax

    import replicax

    facts = {
        "cores": f"{core_count()} ({platform.machine()})",
        "Python": platform.python_version(),
        "replicax": replicax.__version__,
        "JAX": jax.__version__,
        "optax": optax.__version__,
    }
    if tensorflow_version is not None:
        facts["TensorFlow"] = tensorflow_version
    return facts


def core_count() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Section(NamedTuple):
    """What is printed of one question."""

    name: str
    title: str
    rows: list[Any]
    cells: list[Cells]
    goals: list[str]


def print_sections(sections: Sequence[Section], facts: dict[str, str], markdown: bool) -> None:
    """The machine, then each table and what became of its goals."""
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    for section in sections:
        print(f"\n{section.title}\n\n{format_table(section.cells, markdown)}\n")
        for line in section.goals:
            print(f"- {line}" if markdown else line)


def write_sections(
    path: Path | None, sections: Sequence[Section], facts: dict[str, str], **more: Any
) -> None:
    """The same as JSON, with the rows as they were measured, if there is a file for it."""
    if path is None:
        return
    report: dict[str, Any] = {"machine": facts, **more}
    report["titles"] = {section.name: section.title for section in sections}
    for section in sections:
        report[section.name] = [row._asdict() for row in section.rows]
    path.write_text(json.dumps(report, indent=2) + "\n")
