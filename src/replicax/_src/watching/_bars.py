"""Bars, as rich draws them. Loaded with the first bar, since it needs rich, which is an extra."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.jupyter import JupyterMixin
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_WIDEST, _NARROWEST = 30, 5  # of a bar
_GAP = 2


class Bars(JupyterMixin):
    """A row for each loop: description, bar, number of steps, facts. Lines are never broken.

    Where there is little room, first the bars are shorter, and then the facts.
    """

    def __init__(self, rows: Sequence[tuple[str, int, int | None, str, str]]) -> None:
        """Takes description, steps, total, both of these as text, and facts of each loop."""
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        if not self._rows:
            return
        descriptions, _, _, counts, facts = zip(*self._rows)
        first, third, fourth = (
            max(map(cell_len, texts)) for texts in (descriptions, counts, facts)
        )
        gaps = 3 * _GAP
        left = options.max_width - first - third - gaps
        bar = max(_NARROWEST, min(_WIDEST, left - fourth))
        grid = Table.grid(padding=(0, _GAP, 0, 0))
        for width in (first, bar, third, max(1, min(fourth, left - bar))):
            grid.add_column(width=width, no_wrap=True, overflow="ellipsis")
        for description, steps, total, count, fact in self._rows:
            drawn = ProgressBar(total=total, completed=steps, width=bar, pulse=total is None)
            grid.add_row(Text(description), drawn, Text(count), Text(fact))
        yield grid
