"""Drawings in text, as SVG that fits the page.

In a page, `<!-- drawing -->` stands above a text block that is one. Characters that make lines
become lines, everything else stays text, in its place: so the page is readable as a file, too.
"""

from __future__ import annotations

import html
import re

MARKED = re.compile(r"^<!-- drawing -->\n```text\n(?P<text>.*?)^```$", re.M | re.S)

WIDTH, HEIGHT = 8.4, 18.0  # of a character

# A run of these is a line, if it has a `-` beside another one or an end with an arrow.
_ACROSS = re.compile(r"[<+]?(?:-[-+]+|(?:- )+-)[>+]?|[<>]-+|-+>|\+-\+")
_DOWN = "|+"
_FITS_A_PHONE = 80  # columns that can be read there; a wider drawing scrolls


def as_svg(text: str, label: str) -> str:
    """Returns a drawing as one line of HTML."""
    lines = text.rstrip("\n").split("\n")
    columns = max(map(len, lines))
    parts: list[str] = []
    rest = [list(line.ljust(columns)) for line in lines]
    for row, line in enumerate(lines):
        for match in _ACROSS.finditer(line):
            parts += _across(row, match.start(), match.end(), match[0])
            rest[row][match.start() : match.end()] = " " * len(match[0])
    grid = [line.ljust(columns) for line in lines]
    for row, line in enumerate(grid):
        for column, character in enumerate(line):
            if character in _DOWN and _is_part_of_line(grid, row, column):
                parts += _down(grid, row, column)
                rest[row][column] = " "
    for row, characters in enumerate(rest):
        for match in re.finditer(r"\S+(?: \S+)*", "".join(characters)):
            x, y = match.start() * WIDTH, (row + 0.75) * HEIGHT
            length = len(match[0]) * WIDTH
            parts.append(
                f'<text x="{x:.1f}" y="{y:.1f}" textLength="{length:.1f}">'
                f"{html.escape(match[0])}</text>"
            )
    size = f"0 0 {columns * WIDTH:.0f} {len(lines) * HEIGHT:.0f}"
    style = f"max-width:{columns * WIDTH:.0f}px"
    kind = "drawing wide" if columns > _FITS_A_PHONE else "drawing"
    return (
        f'<svg class="{kind}" role="img" aria-label="{html.escape(label)}" viewBox="{size}" '
        f'style="{style}">{"".join(parts)}</svg>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, dashed: bool = False) -> str:
    extra = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"{extra}/>'


def _across(row: int, start: int, end: int, characters: str) -> list[str]:
    y = (row + 0.5) * HEIGHT
    left, right = start * WIDTH, end * WIDTH
    if characters[0] == "+":
        left += WIDTH / 2
    if characters[-1] == "+":
        right -= WIDTH / 2
    parts = [_line(left, y, right, y, dashed="- -" in characters)]
    if "<" in characters[0]:
        parts.append(f'<path d="M{left + 7:.1f} {y - 4:.1f}L{left:.1f} {y:.1f}l7 4"/>')
    if ">" in characters[-1]:
        parts.append(f'<path d="M{right - 7:.1f} {y - 4:.1f}L{right:.1f} {y:.1f}l-7 4"/>')
    return parts


def _is_part_of_line(grid: list[str], row: int, column: int) -> bool:
    """Whether a `|` or a crossing is one, and not a sign in a text."""
    line = grid[row]
    if line[column] == "|":
        return True
    return "-" in (line[max(column - 1, 0)], line[column + 1 : column + 2]) or any(
        _beside(grid, row, column)
    )


def _beside(grid: list[str], row: int, column: int) -> tuple[bool, bool]:
    """Whether a line goes on above, and below."""
    above = row > 0 and grid[row - 1][column] in _DOWN
    below = row + 1 < len(grid) and grid[row + 1][column] in _DOWN
    return above, below


def _down(grid: list[str], row: int, column: int) -> list[str]:
    x, y = (column + 0.5) * WIDTH, row * HEIGHT
    above, below = (True, True) if grid[row][column] == "|" else _beside(grid, row, column)
    top, end = y + (0 if above else HEIGHT / 2), y + (HEIGHT if below else HEIGHT / 2)
    return [] if top == end else [_line(x, top, x, end)]
