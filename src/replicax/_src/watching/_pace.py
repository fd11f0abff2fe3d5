"""How fast a loop goes, and how much of its time it waits for its input."""

from __future__ import annotations

import collections
import time
from typing import NamedTuple, final

clock = time.perf_counter  # tests put another one here

_RECENT_SECONDS = 15.0


class Rates(NamedTuple):
    """Steps and examples by second, and the part of the time that was spent waiting for input."""

    steps: float
    examples: float | None
    waiting: float


class _Mark(NamedTuple):
    """What had been done by a certain time."""

    time: float
    steps: int = 0
    examples: int = 0
    waited: float = 0.0


@final
class Pace:
    """Counts steps, examples and seconds of waiting.

    The first step compiles, and the first element starts the input. So rates are those since the
    end of the first step; while the loop goes on, those of the last seconds.
    """

    def __init__(self) -> None:
        self.began = self._waits_since = clock()
        self.steps = 0
        self._examples = 0
        self._counts_examples = False
        self._waited = 0.0
        self._recent: collections.deque[_Mark] = collections.deque()
        self._first = _Mark(self.began)
        self._end: _Mark | None = None

    def wait(self) -> None:
        """Notes that the loop asks for its next element."""
        self._waits_since = clock()

    def go_on(self) -> None:
        """Notes that it has got the element, or that there is none."""
        self._waited += clock() - self._waits_since

    def step(self, examples: int | None) -> None:
        """Notes that a step is done."""
        self.steps += 1
        if examples is not None:
            self._counts_examples = True
            self._examples += examples
        if self.steps == 1:
            self._first = self._now()
            self._recent.clear()

    def stop(self) -> None:
        """Notes that the loop is over: time no longer counts."""
        self._end = self._now()

    def remember(self) -> None:
        """Makes the present what is recent the next time; called now and then."""
        now = self._now()
        while len(self._recent) > 1 and now.time - self._recent[0].time > _RECENT_SECONDS:
            self._recent.popleft()
        self._recent.append(now)

    def rates(self, recent: bool) -> Rates | None:
        """Returns those of the last seconds or of the whole loop; None while nothing is known."""
        since = self._recent[0] if recent and self._recent else self._first
        if not recent and self.steps == 1:  # better with the time to compile than nothing
            since = _Mark(self.began)
        now = self._now()
        seconds, steps = now.time - since.time, now.steps - since.steps
        if seconds <= 0 or steps <= 0:
            return None
        examples = (now.examples - since.examples) / seconds if self._counts_examples else None
        return Rates(steps / seconds, examples, min(1.0, (now.waited - since.waited) / seconds))

    @property
    def seconds(self) -> float:
        """How long it has gone on."""
        return self._now().time - self.began

    def _now(self) -> _Mark:
        return self._end or _Mark(clock(), self.steps, self._examples, self._waited)


def duration(seconds: float) -> str:
    """Returns a number of seconds as 0:07, 12:34 or 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
