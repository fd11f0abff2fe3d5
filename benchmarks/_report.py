"""Tables, ratios and goals, as all benchmarks print them."""

import os
import platform
import statistics
from collections.abc import Sequence

import jax
import optax

Cells = tuple[str, ...]


def as_text(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def geometric_mean(ratios: Sequence[float | None]) -> float | None:
    known = [ratio for ratio in ratios if ratio is not None]
    return statistics.geometric_mean(known) if known else None


def format_table(cells: Sequence[Cells], markdown: bool) -> str:
    """Lines of cells, the first with the headings; numbers stand on the right."""
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = []
    for line in cells:
        padded = [line[0].ljust(widths[0])]
        padded += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        lines.append("| " + " | ".join(padded) + " |" if markdown else "  ".join(padded))
    if markdown:
        rule = ["-" * widths[0]] + ["-" * (width - 1) + ":" for width in widths[1:]]
        lines.insert(1, "| " + " | ".join(rule) + " |")
    return "\n".join(lines)


def goal_line(goal: str, reached: float, met: bool, where: str = "") -> str:
    return f"{'met' if met else 'MISSED'}: {goal}; {reached:.2f}{where}"


def machine_facts(tensorflow_version: str | None) -> dict[str, str]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    facts = {
        "cores": f"{cores} ({platform.machine()})",
        "Python": platform.python_version(),
        "JAX": jax.__version__,
        "optax": optax.__version__,
    }
    if tensorflow_version is not None:
        facts["TensorFlow"] = tensorflow_version
    return facts
