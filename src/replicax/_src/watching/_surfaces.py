"""Where progress is drawn: on a terminal, in a notebook, or as lines in a log.

A surface draws when the loop that it shows tells it to; there is no thread. rich, which is an
extra, is loaded when the first surface is chosen; without it there are lines.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, final

from replicax._src._typing import override

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    from replicax._src.watching._progress import Loop

_INSTALL = 'rx.progress: a live bar needs the package rich. Run `pip install "replicax[progress]"`.'
_WIDEST, _NARROWEST, _GAP = 30, 5, 2  # of a bar, and between columns


class Surface:
    """Draws nothing, for workers that are silent; the base of those that draw."""

    seconds_between = float("inf")
    """How often to draw."""
    waits_for_values = False
    """Whether values that are not computed yet are waited for when it draws."""

    def begin(self, loop: Loop) -> None:
        """Shows a loop for the first time."""

    def draw(self, loop: Loop) -> None:
        """Shows how it stands."""

    def end(self, loop: Loop, keep: bool) -> None:
        """Takes it off, and leaves a last line behind if that is to be kept."""


@final
class Lines(Surface):
    """For logs and pipes: a line now and then."""

    seconds_between = 10.0
    waits_for_values = True

    def __init__(self, console: Console | None = None) -> None:
        self._console = console

    @override
    def draw(self, loop: Loop) -> None:
        _print_line(loop, self._console, last=False)

    @override
    def end(self, loop: Loop, keep: bool) -> None:
        if keep:
            _print_line(loop, self._console, last=True)


@final
class Terminal(Surface):
    """Bars at the bottom of a terminal, those of loops in loops one below the other.

    There is one for each console, which loops of several threads share, one at a time: of two
    displays, one would never give the output of `print` back.
    """

    seconds_between = 0.1

    def __init__(self, console: Console) -> None:
        self.console = console
        self.loops: list[Loop] = []
        self._live: Live | None = None
        self._drawn_at = 0.0
        self._lock = threading.RLock()

    @override
    def begin(self, loop: Loop) -> None:
        from rich.live import Live

        with self._lock:
            self.loops.append(loop)
            if self._live is None:
                live = Live(
                    get_renderable=lambda: _bars(self.loops, self.console.width),
                    console=self.console,
                    auto_refresh=False,
                    transient=True,
                )
                live.start()
                self._live = live
                atexit.register(self._close)  # for a loop that nobody ends: the cursor comes back
            self._draw_unless_just_drawn()

    @override
    def draw(self, loop: Loop) -> None:
        with self._lock:
            if self._live is not None:
                self._drawn_at = time.monotonic()
                self._live.refresh()

    @override
    def end(self, loop: Loop, keep: bool) -> None:
        with self._lock:
            if loop in self.loops:
                self.loops.remove(loop)
            if self.loops:
                self._draw_unless_just_drawn()
            else:
                self._close()
            if keep:
                _print_line(loop, self.console, last=True)

    def _draw_unless_just_drawn(self) -> None:
        """Draws, but so that an inner loop of milliseconds does not flicker."""
        if time.monotonic() - self._drawn_at >= self.seconds_between:
            self.draw(self.loops[-1])

    def _close(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            atexit.unregister(self._close)
            self._drawn_at = 0.0
            live.stop()


@final
class Notebook(Surface):
    """The output of a notebook's cell, which is replaced each time."""

    seconds_between = 0.25

    def __init__(self, console: Console) -> None:
        self._console = console
        self._handle: Any = None

    @override
    def begin(self, loop: Loop) -> None:
        from IPython.display import display  # type: ignore[import-not-found]

        self._handle = display(_bars([loop], self._console.width), display_id=True)

    @override
    def draw(self, loop: Loop) -> None:
        if self._handle is not None:
            self._handle.update(_bars([loop], self._console.width))

    @override
    def end(self, loop: Loop, keep: bool) -> None:
        if self._handle is not None:
            self._handle.update(_bars([loop] if keep else [], self._console.width, last=True))


_terminals: list[Terminal] = []
_choosing = threading.Lock()  # there is one terminal for each console
_told_to_install = False


def surface_for(console: Console | None = None) -> Surface:
    """Returns the surface for a console of rich, by default for where `print` prints."""
    global _told_to_install
    if console is None:
        try:
            import rich
        except ImportError:
            if sys.stdout and sys.stdout.isatty() and not _told_to_install:
                _told_to_install = True
                print(_INSTALL)
            return Lines()
        console = rich.get_console()
        if not console.is_jupyter and not console.is_terminal:
            return Lines()  # without the line breaks that a console puts in
    if console.is_jupyter:
        return Notebook(console)
    if not console.is_terminal or console.is_dumb_terminal:
        return Lines(console)
    with _choosing:
        for terminal in _terminals:
            if terminal.console is console:
                return terminal
        _terminals[:] = [each for each in _terminals if each.loops]  # and forget those of the past
        _terminals.append(Terminal(console))
        return _terminals[-1]


def _print_line(loop: Loop, console: Console | None, last: bool) -> None:
    """Prints how a loop stands, as a line of a log."""
    start = f"{loop.description}: " if loop.description else ""
    line = ", ".join([f"{start}step {_count(loop)}", *loop.facts(last)])
    if console is None:
        print(line, flush=True)
    else:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _count(loop: Loop) -> str:
    return f"{loop.steps:,}" if loop.total is None else f"{loop.steps:,}/{loop.total:,}"


def _bars(loops: list[Loop], width: int, last: bool = False) -> Table:
    """Returns a row for each loop: description, bar, number of steps, facts.

    Where there is little room, first the bars are shorter, and then the facts; lines are never
    broken.
    """
    from rich.cells import cell_len
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    texts = [(loop.description, _count(loop), "  ".join(loop.facts(last))) for loop in loops]
    first, third, fourth = (
        (max(map(cell_len, column)) for column in zip(*texts)) if texts else 3 * (0,)
    )
    left = width - first - third - 3 * _GAP
    bar = max(_NARROWEST, min(_WIDEST, left - fourth))
    grid = Table.grid(padding=(0, _GAP, 0, 0))
    for column in (first, bar, third, max(1, min(fourth, left - bar))):
        grid.add_column(width=column, no_wrap=True, overflow="ellipsis")
    for loop, (description, count, facts) in zip(loops, texts):
        pulse = loop.total is None
        drawn = ProgressBar(total=loop.total, completed=loop.steps, width=bar, pulse=pulse)
        grid.add_row(Text(description), drawn, Text(count), Text(facts))
    return grid
