"""Numbers and tables as text."""

from __future__ import annotations

from collections.abc import Sequence


def amount(value: float, unit: str = "B") -> str:
    """Returns a number with three digits and a prefix: "1.5 GB"."""
    for prefix in ("", "k", "M", "G", "T", "P"):
        if abs(value) < 999.5 or prefix == "P":
            return f"{value:.3g} {prefix}{unit}"
        value /= 1000
    raise AssertionError


def seconds(value: float) -> str:
    """Returns a duration: "12 ms"."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if value * factor >= 1 or unit == "us":
            return f"{value * factor:.3g} {unit}"
    raise AssertionError


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they have to be; the first to the left, the others to the right."""
    widths = [max(len(str(row[i])) for row in (head, *rows)) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        first = f"{cells[0]:<{widths[0]}}"
        rest = [f"{cell:>{width}}" for cell, width in zip(cells[1:], widths[1:])]
        return "  ".join([first, *rest]).rstrip()

    return "\n".join([line(head), line(["-" * width for width in widths]), *map(line, rows)])


def labelled(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """Returns a title, and a line for each pair of a label and a text."""
    width = max(len(label) for label, _ in rows)
    return "\n".join([title, *(f"  {label:<{width}}  {text}" for label, text in rows)])
