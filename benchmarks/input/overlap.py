"""How much of the input is hidden under the step: what a loop takes beyond its steps alone.

Hidden is 1 - (loop - step alone) / input. Time by the wall, as waiting is what is asked about; so
a busy machine shows here. In a turn, the median iteration of each loop is taken, and for comparison
the mean one, with all that others did on the machine in it; of all turns, the median counts.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import replicax as rx
from benchmarks.harness.tables import Cells, Row
from benchmarks.input.data import Rows
from benchmarks.input.findings import finding

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


HEADINGS = ("step", "input", "step alone", "both", "of it waiting", "hidden", "hidden, by means")


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


def measure_overlap(rows: Rows, count: int, repeats: int) -> tuple[list[Cells], list[Row]]:
    """Measures on one device, with steps as long as the input, and three times as long.

    Returns a table, and the lines of the table of goals.
    """
    strategy = rx.distribute.OneDeviceStrategy("CPU:0")
    dataset = rx.data.Dataset.from_tensor_slices(rows.columns).shuffle(rows.count).repeat()
    iterator = iter(strategy.experimental_distribute_dataset(dataset.batch(rows.batch)))

    def draw() -> Any:
        return next(iterator)

    def nothing(batch: Any) -> None:
        pass

    held = draw()
    draining = statistics.median(loop_times(draw, nothing, count)[0])
    trial = computing(1000)
    trial(held)
    once = statistics.median(loop_times(lambda: held, trial, count)[0])
    cells: list[Cells] = [HEADINGS]
    lines = []
    for times in (1.1, 3):
        sleep = times * draining
        steps = {
            f"a sleep of {times:g} times the input": lambda batch, sleep=sleep: time.sleep(sleep),
            f"a jitted step of about {times:g} times the input": computing(
                max(round(1000 * sleep / once), 1)
            ),
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
            hidden, by_means = (
                statistics.median(turn.hidden for turn in turns) for turns in (medians, means)
            )
            milliseconds = (f"{1e3 * statistics.median(each):.2f}" for each in zip(*medians))
            cells.append((name, *milliseconds, f"{hidden:.0%}", f"{by_means:.0%}"))
            what, goal = f"share of the input hidden under {name}", f">= {HIDDEN_GOAL:g}"
            met = hidden >= HIDDEN_GOAL
            lines.append(finding("prefetch", what, goal, "-", f"{hidden:.2f}", met))
    return cells, lines
