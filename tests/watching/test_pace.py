"""How fast a loop goes, by a clock that the test turns."""

import pytest

from replicax._src.watching import _pace
from replicax._src.watching._pace import Pace, duration


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(_pace, "clock", clock)
    return clock


def _step(pace: Pace, clock: Clock, waiting: float, working: float, examples: int | None) -> None:
    pace.wait()
    clock.pass_(waiting)
    pace.go_on()
    clock.pass_(working)
    pace.step(examples)


def test_rates_leave_out_the_first_step(clock: Clock):
    pace = Pace()
    _step(pace, clock, 5.0, 95.0, 8)
    assert pace.rates(recent=True) is None
    for _ in range(4):
        _step(pace, clock, 0.25, 0.75, 8)
    rates = pace.rates(recent=False)
    assert rates is not None
    assert rates == (1.0, 8.0, 0.25)
    assert pace.seconds == 104.0


def test_a_single_step_is_better_than_nothing(clock: Clock):
    pace = Pace()
    _step(pace, clock, 1.0, 3.0, 8)
    assert pace.rates(recent=False) == (0.25, 2.0, 0.25)


def test_recent_rates_forget_what_was_long_ago(clock: Clock):
    pace = Pace()
    for _ in range(30):
        _step(pace, clock, 0.0, 10.0, None)
        pace.remember()
    for _ in range(40):
        _step(pace, clock, 0.0, 1.0, None)
        pace.remember()
    rates = pace.rates(recent=True)
    assert rates is not None and rates.steps == 1.0 and rates.examples is None
    whole = pace.rates(recent=False)
    assert whole is not None and whole.steps < 0.25


def test_time_stands_still_after_the_end(clock: Clock):
    pace = Pace()
    for _ in range(3):
        _step(pace, clock, 0.0, 1.0, 2)
    pace.stop()
    clock.pass_(100.0)
    assert pace.rates(recent=False) == (1.0, 2.0, 0.0)
    assert pace.seconds == 3.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0:00"), (7, "0:07"), (59.7, "1:00"), (754, "12:34"), (3723, "1:02:03")],
)
def test_duration(seconds: float, text: str):
    assert duration(seconds) == text
