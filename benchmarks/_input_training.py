"""Training from a data set, and on one batch that is on the devices already."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from _input_goals import Finding
from _input_stream import Cost, cost_of
from _step_models import Dense, Model
from _step_variants import Replicax, launch_many

import replicax as rx

GOAL = 1.1
EPOCH = 64  # batches


class Training(NamedTuple):
    """Seconds of a step."""

    model: Model
    replicas: int
    fed: Cost
    held: Cost
    goal: float | None

    def finding(self) -> Finding:
        cpu, wall = (one / other for one, other in zip(self.fed, self.held))
        times = f"{1e3 * self.held.wall:.2f} ms"
        return Finding(
            f"training, replicas: {self.replicas}",
            f"times the step on data on the devices ({self.model.title}, {times})",
            "" if self.goal is None else f"<= {self.goal:g}",
            f"{cpu:.3f}",
            f"{wall:.3f}",
            None if self.goal is None else cpu <= self.goal,
        )


def fed_step(variant: Replicax, model: Model) -> Callable[[], Any]:
    """The step of `benchmarks/step.py`, with a new batch each time."""
    assert isinstance(model.net, Dense)
    rows = model.net.examples(np.random.default_rng(2), EPOCH * model.batch)
    dataset = rx.data.Dataset.from_tensor_slices(rows)
    dataset = dataset.shuffle(len(rows[0])).repeat().batch(model.batch)
    iterator = iter(variant.strategy.experimental_distribute_dataset(dataset))
    return lambda: variant.function(next(iterator))


def measure_training(
    model: Model, replicas: int, seconds: float, rounds: int, goal: float | None = GOAL
) -> Training:
    """The two take turns; the best of each."""
    devices = jax.devices()[:replicas]
    fed_variant, held_variant = (Replicax(model, devices) for _ in range(2))
    steps = {"fed": fed_step(fed_variant, model), "held": held_variant.step}
    for step in steps.values():
        launch_many(step, 3)
    once = cost_of(lambda: launch_many(steps["held"], 5), 5).wall
    count = max(round(seconds / once), 3)
    best: dict[str, Cost] = {}
    for _ in range(rounds):
        for name, step in steps.items():
            cost = cost_of(lambda step=step: launch_many(step, count), count)
            best[name] = cost.best(best.get(name, cost))
    return Training(model, replicas, best["fed"], best["held"], goal)
