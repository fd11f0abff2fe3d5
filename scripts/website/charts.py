"""A table of ratios as a bar chart."""

from __future__ import annotations

import html
import math

_BARS, _ROW, _LINE = 420, 22, 16
_BESIDE = 540  # what labels beside the bars need
_LEAST, _MOST = 1 / 64, 8.0  # ratios that the chart has room for


def chart_of(table: str) -> str:
    """A row for each row of the table: a bar to the mean, a mark at the worst, on a log scale.

    There are two charts, of which the style sheet shows one: on a phone, labels are above the bars.
    """
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    beside, narrow = _svg(rows, "beside", _BESIDE, 0), _svg(rows, "narrow", 10, _LINE)
    return (
        f"{beside}{narrow}\n\n"
        "*Bars: the mean, left of 1 where we are faster. Marks: the worst case.*"
    )


def _svg(rows: list[list[str]], kind: str, start: int, above: int) -> str:
    """Draws the rows, with bars from `start` on, and below room for a label of height `above`."""
    row = _ROW + above
    height = len(rows) * row + 2 * _ROW
    parts: list[str] = []
    for power in range(-6, 4):
        x, value = _x(2.0**power, start), f"1/{2**-power}" if power < 0 else str(2**power)
        line = "one" if power == 0 else "scale"
        parts.append(f'<path class="{line}" d="M{x:.0f} {_ROW}V{height - _ROW / 2}"/>')
        parts.append(f'<text class="at" x="{x:.0f}" y="{_ROW * 0.7:.0f}">{value}</text>')
    for index, (what, beside, on, _, mean, worst, *_rest) in enumerate(rows):
        y = index * row + _ROW
        label = f"{what} / {beside}, {on}"
        room = 70 if above else 92
        short = label if len(label) < room else label[: room - 2] + "…"
        better = "faster" if float(mean) <= 1 else "slower"
        left, right = sorted([_x(float(mean), start), _x(1.0, start)])
        x = _x(float(worst), start)
        parts.append(
            f"<text y='{y + 15}'><title>{html.escape(label)}</title>{html.escape(short)}</text>"
            f"<rect class='{better}' x='{left:.1f}' y='{y + above + 5}' "
            f"width='{right - left:.1f}' height='12'>"
            f"<title>mean {mean}, worst {worst}</title></rect>"
            f"<path class='worst' d='M{x:.1f} {y + above + 2}v18'/>"
        )
    return (
        f'<svg class="chart {kind}" role="img" aria-label="Our time divided by theirs" '
        f'viewBox="0 0 {start + _BARS + 20} {height}">{"".join(parts)}</svg>'
    )


def _x(ratio: float, start: int) -> float:
    least, most = math.log2(_LEAST), math.log2(_MOST)
    at = min(max(math.log2(max(ratio, _LEAST)), least), most)
    return start + _BARS * (at - least) / (most - least)
