"""How much of the input is hidden under the step: what a loop takes beyond its steps alone.

Hidden is 1 - (loop - step alone) / input. Time by the wall, as waiting is what is asked about; so
a busy machine shows here. In a turn, the median iteration of each loop is taken, and for comparison
the mean one, with all that others did on the machine in it; of all turns, the median counts.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import replicax as rx
from benchmarks.harness import Cells
from benchmarks.input.data import Rows
from benchmarks.input.replicax_streams import shuffled

HIDDEN_GOAL = 0.85
SIDE = 64  # of the matrices of the real step: small, so that the step keeps to one core


class Turn(NamedTuple):
    """Seconds of an iteration: of a loop that only reads, only takes steps, and does both."""

    input: float
    alone: float
    both: float
    wait: float  # for the batch, in the loop that does both

    @property
    def hidden(self) -> float:
        return 1 - (self.both - self.alone) / self.input


class Overlap(NamedTuple):
    """The turns of one kind of step, by the median iteration and by the mean one."""

    step: str
    medians: Sequence[Turn]
    means: Sequence[Turn]

    @property
    def hidden(self) -> float:
        return statistics.median(turn.hidden for turn in self.medians)

    def cells(self) -> Cells:
        times = (f"{1e3 * statistics.median(each):.2f}" for each in zip(*self.medians))
        by_means = statistics.median(turn.hidden for turn in self.means)
        return self.step, *times, f"{self.hidden:.0%}", f"{by_means:.0%}"

    def finding(self) -> dict[str, Any]:
        """Returns the line of the table of goals."""
        return {
            "case": "prefetch",
            "what": f"share of the input hidden under {self.step}",
            "goal": f">= {HIDDEN_GOAL:g}",
            "measured": "-",
            "wall": f"{self.hidden:.2f}",
            "met": self.hidden >= HIDDEN_GOAL,
        }


HEADINGS = ("step", "input", "step alone", "both", "of it waiting", "hidden", "hidden, by means")


def sleeping(seconds: float) -> Callable[[Any], None]:
    return lambda batch: time.sleep(seconds)


def computing(rounds: int) -> Callable[[Any], None]:
    """Returns a step of `rounds` small matrix products, and the wait for its result."""

    @jax.jit
    def step(values: jax.Array) -> jax.Array:
        matrix = values.reshape(-1)[: SIDE * SIDE].reshape(SIDE, SIDE)
        return jax.lax.fori_loop(0, rounds, lambda _, m: jnp.tanh(m @ matrix), matrix).sum()

    return lambda batch: jax.block_until_ready(step(batch[0]))


def loop_times(
    source: Callable[[], Any], step: Callable[[Any], None], count: int
) -> tuple[list[float], list[float]]:
    """Returns the seconds of each iteration, and of waiting for its batch."""
    wholes, waits = [], []
    for _ in range(count):
        begin = time.perf_counter()
        batch = source()
        waits.append(time.perf_counter() - begin)
        step(batch)
        wholes.append(time.perf_counter() - begin)
    return wholes, waits


def measure_overlap(rows: Rows, count: int, repeats: int) -> list[Overlap]:
    """Measures on one device; steps are as long as the input, and three times as long."""
    strategy = rx.distribute.OneDeviceStrategy("CPU:0")
    dataset = shuffled(rows).batch(rows.batch)
    iterator = iter(strategy.experimental_distribute_dataset(dataset))

    def draw() -> Any:
        return next(iterator)

    def nothing(batch: Any) -> None:
        pass

    held = draw()
    draining = statistics.median(loop_times(draw, nothing, count)[0])
    trial = computing(1000)
    trial(held)
    once = statistics.median(loop_times(lambda: held, trial, count)[0])
    found = []
    for times in (1.1, 3):
        rounds = max(round(1000 * times * draining / once), 1)
        steps = {
            f"a sleep of {times:g} times the input": sleeping(times * draining),
            f"a jitted step of about {times:g} times the input": computing(rounds),
        }
        for name, step in steps.items():
            step(held)
            medians, means = [], []
            for _ in range(repeats):
                drained, _ = loop_times(draw, nothing, count)
                alone, _ = loop_times(lambda: held, step, count)
                both, wait = loop_times(draw, step, count)
                turn = (drained, alone, both, wait)
                medians.append(Turn(*map(statistics.median, turn)))
                means.append(Turn(*map(statistics.mean, turn)))
            found.append(Overlap(name, medians, means))
    return found
