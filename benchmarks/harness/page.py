"""The page of all results: made of what is stored, what benchmarks say of themselves, and notes."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness.catalog import benchmarks, chapters, order_of
from benchmarks.harness.processes import FOLDER as BENCHMARKS
from benchmarks.harness.results import Result
from benchmarks.harness.tables import (
    Cells,
    Comparison,
    Table,
    format_table,
    format_value,
    geometric_mean,
)

NOTES = BENCHMARKS / "NOTES.md"

# What nobody can be faster than: part of the same work.
_LOWER_BOUNDS = (
    "JAX's gradients and nothing else",
    "NumPy, copying the rows",
    "the same step without input",
)


def _is_jax(peer: str) -> bool:
    return peer not in _LOWER_BOUNDS and peer.lower().startswith("jax")


_KINDS: dict[str, Callable[[str], bool]] = {
    "Other libraries": lambda peer: peer not in _LOWER_BOUNDS and not _is_jax(peer),
    "JAX, written by hand": _is_jax,
    "A part of the same work": _LOWER_BOUNDS.__contains__,
}

# Peers whose version is known by another name.
_LIBRARIES = {"tf.data": "TensorFlow"}


def compose(results: Sequence[Result], notes: dict[str, str]) -> str:
    """Returns the page, in Markdown.

    Args:
      results: in any order.
      notes: the text of each chapter by the name of the benchmark, and "page" for the beginning.
    """
    ordered = sorted(results, key=_order)
    compared = list(_compared(ordered))
    parts = ["# Results", notes.get("page", "")]
    parts += ["## At a glance", notes.get("glance", ""), _glance(compared)]
    parts += ["## Slower than a peer", notes.get("slower", ""), *_slower(compared)]
    for name in dict.fromkeys(result.benchmark for result in ordered):
        chapter = chapters().get(name)
        title = chapter.title if chapter else name.replace("_", " ").capitalize()
        parts += [f"## {title}", chapter.description() if chapter else "", notes.get(name, "")]
        for result in ordered:
            if result.benchmark == name:
                parts += _result_parts(result)
    return "\n\n".join(part for part in parts if part) + "\n"


def read_notes(path: Path = NOTES) -> dict[str, str]:
    """Returns the hand-written notes: a heading `## name` and the text below it, by chapter."""
    notes = {}
    for part in ("\n" + path.read_text()).split("\n## ")[1:]:
        name, _, text = part.partition("\n")
        notes[name.strip()] = text.strip()
    return notes


def _tables(result: Result) -> Sequence[Table]:
    chapter = chapters().get(result.benchmark)
    return chapter.tables if chapter else ()


def _order(result: Result) -> tuple[Any, ...]:
    """Sorts by chapter, then machines with few cores first."""
    digits = "".join(filter(str.isdigit, result.machine)) or "0"
    return order_of(result.benchmark), int(digits), result.machine, result.run


# All ratios


class _Compared(NamedTuple):
    """All ratios to one peer in one table of a result."""

    what: str
    peer: str
    result: Result
    comparisons: list[Comparison]
    met: list[bool]


def _compared(results: Sequence[Result]) -> Iterator[_Compared]:
    for result in results:
        for table in _tables(result):
            rows = result.measured.get(table.key, [])
            found = table.comparisons(rows) if table.what else []
            verdicts = table.verdicts(rows)
            for peer in dict.fromkeys(each.peer for each in found):
                ratios = [each for each in found if each.peer == peer]
                met = [verdict.met for verdict in verdicts if verdict.peer == peer]
                yield _Compared(table.what, peer, result, ratios, met)


def _beside(each: _Compared) -> str:
    """Returns the peer with its version."""
    versions = each.result.versions
    library = _LIBRARIES.get(each.peer, "")
    known = [name for name in versions if name == library or name in each.peer]
    return f"{each.peer} ({versions[known[-1]]})" if known else each.peer


def _glance(compared: Sequence[_Compared]) -> str:
    cells: list[Cells] = [("what", "beside", "on", "command", "mean", "worst", "goals met")]
    for each in compared:
        ratios = [one.ratio for one in each.comparisons]
        met = f"{sum(each.met)} of {len(each.met)}" if each.met else ""
        cells.append(
            (each.what, _beside(each), each.result.where, _short_command(each.result))
            + (f"{geometric_mean(ratios):.2f}", f"{max(ratios):.2f}", met)
        )
    return format_table(cells, markdown=True, texts=4) if compared else "Nothing yet."


def _short_command(result: Result) -> str:
    if result.benchmark in benchmarks():
        return f"`make bench BENCH={result.benchmark}`"
    return f"`{result.command}`" if result.command else "-"


def _slower(compared: Sequence[_Compared]) -> Iterator[str]:
    """Yields a list for each kind of peer."""
    for kind, belongs in _KINDS.items():
        bullets = []
        for each in compared:
            ratios = sorted(each.comparisons, key=lambda one: -one.ratio)
            cases = [f"**{_above_one(one.ratio)}** {one.case}" for one in ratios if one.ratio > 1]
            if cases and belongs(each.peer):
                text = f"{each.what} beside {_beside(each)}, on {each.result.where}: "
                bullets.append(_bullet(text + "; ".join(cases) + "."))
        if bullets:
            yield f"### {kind}"
            yield "\n".join(bullets)


def _bullet(text: str) -> str:
    return textwrap.fill(
        text, 110, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False
    )


def _above_one(ratio: float) -> str:
    """Returns a ratio with as many digits as it takes to see that it is above 1."""
    digits = next((count for count in (2, 3) if round(ratio, count) > 1), 4)
    return f"{ratio:.{digits}f}"


# The chapters


def _result_parts(result: Result) -> Iterator[str]:
    yield f"### {result.where[:1].upper()}{result.where[1:]}"
    facts = [f"{name} {value}" for name, value in (result.versions | result.conditions).items()]
    command = f"`{result.command}`" if result.command else "The command was not kept"
    end = ". Copied from the page of that day, rounded as it was." if result.transcribed else "."
    about = textwrap.fill(", ".join([result.date, *facts]) + end, 110, break_on_hyphens=False)
    yield f"{command},\n{about}"
    titles = result.measured.get("titles", {})
    shown = set()
    for table in _tables(result):
        if rows := result.measured.get(table.key):
            shown.add(table.key)
            yield titles.get(table.key, table.title)
            yield _markdown(table.cells(rows))
            if lines := table.goal_lines(rows):
                yield "\n".join(map(_bullet, lines))
    for key, rows in result.measured.items():
        if key not in shown and isinstance(rows, list) and rows and isinstance(rows[0], dict):
            yield titles.get(key, f"{key.replace('_', ' ').capitalize()}:")
            yield _markdown(_any_cells(rows))
    for title, cells in result.measured.get("tables", {}).items():
        yield f"{title}:"
        yield _markdown([tuple(line) for line in cells])
    if bullets := [*result.measured.get("lines", []), *result.notes]:
        yield "Of this run:"
        yield "\n".join(map(_bullet, bullets))


def _any_cells(rows: Sequence[dict[str, Any]]) -> list[Cells]:
    """Returns a table of rows that no benchmark has a table for."""

    def text(value: Any) -> str:
        return format_value(value, ".3g" if isinstance(value, float) else "")

    headings = tuple(name.replace("_", " ") for name in rows[0])
    return [headings, *(tuple(text(row.get(name)) for name in rows[0]) for row in rows)]


def _markdown(cells: Sequence[Cells]) -> str:
    return format_table(cells, markdown=True)
