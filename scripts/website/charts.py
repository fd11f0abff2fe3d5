"""A table of ratios as a bar chart."""

from __future__ import annotations

import html
import math

_LABELS, _BARS, _ROW = 540, 420, 22
_LEAST, _MOST = 1 / 64, 8.0  # ratios that the chart has room for


def chart_of(table: str) -> str:
    """A row for each row of the table: a bar to the mean, a mark at the worst, on a log scale."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    height = (len(rows) + 2) * _ROW
    parts: list[str] = []
    for power in range(-6, 4):
        x, value = _x(2.0**power), f"1/{2**-power}" if power < 0 else str(2**power)
        kind = "one" if power == 0 else "scale"
        parts.append(f'<path class="{kind}" d="M{x:.0f} {_ROW}V{height - _ROW / 2}"/>')
        parts.append(f'<text class="at" x="{x:.0f}" y="{_ROW * 0.7:.0f}">{value}</text>')
    for index, (what, beside, on, _, mean, worst, *_rest) in enumerate(rows, start=1):
        y = index * _ROW
        label = f"{what} / {beside}, {on}"
        short = label if len(label) < 92 else label[:90] + "…"
        better = "faster" if float(mean) <= 1 else "slower"
        left, right = sorted([_x(float(mean)), _x(1.0)])
        x = _x(float(worst))
        parts.append(
            f"<text y='{y + 15}'><title>{html.escape(label)}</title>{html.escape(short)}</text>"
            f"<rect class='{better}' x='{left:.1f}' y='{y + 5}' width='{right - left:.1f}' "
            f"height='12'><title>mean {mean}, worst {worst}</title></rect>"
            f"<path class='worst' d='M{x:.1f} {y + 2}v18'/>"
        )
    return (
        f'<svg class="chart" role="img" aria-label="Our time divided by theirs" '
        f'viewBox="0 0 {_LABELS + _BARS + 20} {height}">{"".join(parts)}</svg>\n\n'
        "*Bars: the mean, left of 1 where we are faster. Marks: the worst case.*"
    )


def _x(ratio: float) -> float:
    least, most = math.log2(_LEAST), math.log2(_MOST)
    at = min(max(math.log2(max(ratio, _LEAST)), least), most)
    return _LABELS + _BARS * (at - least) / (most - least)
