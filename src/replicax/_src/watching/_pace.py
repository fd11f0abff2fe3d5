"""How fast a loop goes, and how much of its time it waits for its input."""

from __future__ import annotations

import collections
import time
from typing import NamedTuple

clock = time.perf_counter  # tests put another one here

_RECENT_SECONDS = 15.0


class Mark(NamedTuple):
    """What had been done by a certain time."""

    time: float
    steps: int
    examples: int
    waited: float


class Pace:
    """Counts steps, examples and seconds of waiting.

    The first step compiles, and the first element starts the input. So rates are those since the
    end of the first step; while the loop goes on, those of the last seconds.
    """

    def __init__(self) -> None:
        self.began = clock()
        self.steps = 0
        self.examples = 0
        self.counts_examples = False
        self._waited = 0.0
        self._waits_since: float | None = None
        self._recent: collections.deque[Mark] = collections.deque()
        self._first = Mark(self.began, 0, 0, 0.0)
        self._end: Mark | None = None

    def wait(self) -> None:
        """The loop asks for its next element."""
        self._waits_since = clock()

    def go_on(self) -> None:
        """It has got it, or there is none."""
        if self._waits_since is not None:
            self._waited += clock() - self._waits_since
            self._waits_since = None

    def step(self, examples: int | None) -> None:
        """A step is done."""
        self.steps += 1
        if examples is not None:
            self.counts_examples = True
            self.examples += examples
        if self.steps == 1:
            self._first = self.mark()
            self._recent.clear()

    def mark(self) -> Mark:
        """What has been done by now, or by the end."""
        return self._end or Mark(clock(), self.steps, self.examples, self._waited)

    def stop(self) -> None:
        """The loop is over, and time no longer counts."""
        self._end = self.mark()

    def remember(self) -> None:
        """Called now and then: the present is what is recent next time."""
        now = self.mark()
        while len(self._recent) > 1 and now.time - self._recent[0].time > _RECENT_SECONDS:
            self._recent.popleft()
        self._recent.append(now)

    def rates(self, recent: bool) -> Rates | None:
        """Of the last seconds or of the whole loop; None while nothing is known."""
        since = self._recent[0] if recent and self._recent else self._first
        if not recent and self.steps == 1:  # better with the time to compile than nothing
            since = Mark(self.began, 0, 0, 0.0)
        now = self.mark()
        seconds, steps = now.time - since.time, now.steps - since.steps
        if seconds <= 0 or steps <= 0:
            return None
        examples = (now.examples - since.examples) / seconds if self.counts_examples else None
        return Rates(steps / seconds, examples, min(1.0, (now.waited - since.waited) / seconds))

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return self.mark().time - self.began


class Rates(NamedTuple):
    """Steps and examples by second, and the part of the time that was spent waiting for input."""

    steps: float
    examples: float | None
    waiting: float


def duration(seconds: float) -> str:
    """A number of seconds as 0:07, 12:34 or 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
