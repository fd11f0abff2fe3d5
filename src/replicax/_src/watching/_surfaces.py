"""Where progress is drawn: on a terminal, in a notebook, or as lines in a log.

Nothing here runs in a thread: a surface draws when it is told to, by the loop that it shows. rich
is loaded when the first surface is chosen; without it there are lines.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from typing import Any, Protocol

_INSTALL = 'rx.progress: a live bar needs the package rich. Run `pip install "replicax[progress]"`.'


class Drawn(Protocol):
    """What a surface draws."""

    total: int | None

    @property
    def description(self) -> str:
        """What stands in front."""
        ...

    @property
    def steps(self) -> int:
        """How many are done."""
        ...

    def facts(self, last: bool) -> list[str]:
        """What is to be said beside the bar; after its end, if it is the `last` time."""
        ...


class Surface:
    """Base, and the surface of workers that show nothing."""

    seconds_between = float("inf")
    """How often to draw."""
    waits_for_values = False
    """Whether values that are not computed yet are waited for when it draws."""

    def begin(self, drawn: Drawn) -> None:
        """Shows it for the first time."""

    def draw(self, drawn: Drawn) -> None:
        """Shows how it stands."""

    def end(self, drawn: Drawn, keep: bool) -> None:
        """Takes it off, and leaves a last line behind if that is to be kept."""


class Lines(Surface):
    """For logs and pipes: a line now and then."""

    seconds_between = 10.0
    waits_for_values = True

    def __init__(self, console: Any = None) -> None:
        self._console = console

    def draw(self, drawn: Drawn) -> None:
        self._print(line_of(drawn, last=False))

    def end(self, drawn: Drawn, keep: bool) -> None:
        if keep:
            self._print(line_of(drawn, last=True))

    def _print(self, line: str) -> None:
        if self._console is None:
            print(line, flush=True)
        else:
            _print_on(self._console, line)


class Terminal(Surface):
    """Bars at the bottom of a terminal, those of loops in loops one below the other.

    There is one for each console: rich has room for one live display. Loops of several threads
    share it, one at a time: of two displays, one would never give the output of `print` back.
    """

    seconds_between = 0.1

    def __init__(self, console: Any) -> None:
        self._console = console
        self._drawn: list[Drawn] = []
        self._live: Any = None
        self._drawn_at = 0.0
        self._lock = threading.RLock()

    def begin(self, drawn: Drawn) -> None:
        from rich.live import Live

        with self._lock:
            self._drawn.append(drawn)
            if self._live is None:
                live = Live(
                    get_renderable=self._renderable,
                    console=self._console,
                    auto_refresh=False,
                    transient=True,
                )
                live.start()
                self._live = live
                atexit.register(self._close)  # for a loop that nobody ends: the cursor comes back
            self._draw_unless_just_drawn()

    def draw(self, drawn: Drawn) -> None:
        with self._lock:
            if self._live is not None:
                self._drawn_at = time.monotonic()
                self._live.refresh()

    def end(self, drawn: Drawn, keep: bool) -> None:
        with self._lock:
            if drawn in self._drawn:
                self._drawn.remove(drawn)
            if not self._drawn:
                self._close()
            else:
                self._draw_unless_just_drawn()
            if keep:
                _print_on(self._console, line_of(drawn, last=True))

    def _draw_unless_just_drawn(self) -> None:
        """An inner loop of milliseconds does not flicker."""
        if time.monotonic() - self._drawn_at >= self.seconds_between:
            self.draw(self._drawn[-1])

    def _renderable(self) -> Any:
        return bars_of(self._drawn)

    def _close(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            atexit.unregister(self._close)
            self._drawn_at = 0.0
            live.stop()


class Notebook(Surface):
    """The output of a notebook's cell, which is replaced each time."""

    seconds_between = 0.25

    def __init__(self) -> None:
        self._handle: Any = None

    def begin(self, drawn: Drawn) -> None:
        from IPython.display import display  # type: ignore[import-not-found]

        self._handle = display(bars_of([drawn]), display_id=True)

    def draw(self, drawn: Drawn) -> None:
        if self._handle is not None:
            self._handle.update(bars_of([drawn]))

    def end(self, drawn: Drawn, keep: bool) -> None:
        if self._handle is not None:
            self._handle.update(bars_of([drawn] if keep else [], last=True))


_terminals: list[Terminal] = []
_choosing = threading.Lock()  # there is one terminal for each console
_told_to_install = False


def surface_for(console: Any = None) -> Surface:
    """The surface for a `rich.console.Console`, by default for where `print` prints."""
    global _told_to_install
    if console is None:
        try:
            import rich
        except ImportError:
            if sys.stdout.isatty() and not _told_to_install:
                _told_to_install = True
                print(_INSTALL)
            return Lines()
        console = rich.get_console()
        if not console.is_jupyter and not console.is_terminal:
            return Lines()  # without the line breaks that a console puts in
    if console.is_jupyter:
        return Notebook()
    if not console.is_terminal or console.is_dumb_terminal:
        return Lines(console)
    with _choosing:
        for terminal in _terminals:
            if terminal._console is console:
                return terminal
        _terminals[:] = [each for each in _terminals if each._drawn]  # and forget those of the past
        made = Terminal(console)
        _terminals.append(made)
    return made


def line_of(drawn: Drawn, last: bool) -> str:
    """One line of a log."""
    facts = ", ".join(drawn.facts(last))
    steps = f"step {count_of(drawn)}"
    start = f"{drawn.description}: {steps}" if drawn.description else steps
    return f"{start}, {facts}" if facts else start


def count_of(drawn: Drawn) -> str:
    """How far it is."""
    return f"{drawn.steps:,}" if drawn.total is None else f"{drawn.steps:,}/{drawn.total:,}"


def bars_of(drawn: list[Drawn], last: bool = False) -> Any:
    """What rich draws: a row for each."""
    from replicax._src.watching._bars import Bars

    return Bars(
        [
            (each.description, each.steps, each.total, count_of(each), "  ".join(each.facts(last)))
            for each in drawn
        ]
    )


def _print_on(console: Any, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
