"""Training from a data set, and on one batch that is on the devices already."""

from typing import Any

import jax
import numpy as np

import replicax as rx
from benchmarks.harness.sides import Cost
from benchmarks.input.streams import cost_of
from benchmarks.training.jax_steps import Replicax, launching, mirrored
from benchmarks.training.models import Dense, Model

EPOCH = 64  # batches


def measure_training(model: Model, replicas: int, seconds: float, rounds: int) -> tuple[Cost, Cost]:
    """Returns the best cost of a step that is fed, and of one whose data is there already."""
    assert isinstance(model.net, Dense)
    strategy = mirrored(jax.devices()[:replicas])
    fed, held = Replicax(model, strategy), Replicax(model, mirrored(jax.devices()[:replicas]))
    rows = model.net.examples(np.random.default_rng(2), EPOCH * model.batch)
    dataset: Any = rx.data.Dataset.from_tensor_slices(rows)
    dataset = dataset.shuffle(len(rows[0])).repeat().batch(model.batch)
    iterator = iter(strategy.experimental_distribute_dataset(dataset))
    works = [launching(lambda: fed.function(next(iterator))), launching(held.launch)]
    for work in works:
        work(3)
    once = cost_of(lambda: works[1](5), 5).wall
    count = max(round(seconds / once), 3)
    best: list[Cost | None] = [None, None]
    for _ in range(rounds):
        for index, work in enumerate(works):
            cost = cost_of(lambda work=work: work(count), count)
            best[index] = cost.best(best[index] or cost)
    assert best[0] is not None and best[1] is not None
    return best[0], best[1]
