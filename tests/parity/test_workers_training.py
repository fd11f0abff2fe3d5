"""Workers learn what the devices of one process learn from the same batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import replicax as rx

from ..under_test import cpus
from ._layout import LAYOUTS, Layout
from ._plan import SCENARIOS, TWENTY_STEPS, pairs
from ._worker_of_replicax import ReplicaxInJob

CASES = [
    pytest.param(layout, executor, id=f"{layout.name}-{executor}")
    for layout in LAYOUTS.values()
    for executor, name in pairs(layout)
    if name == f"{TWENTY_STEPS}[{layout.name}]"
]


def _on_one_worker(layout: Layout, executor: str) -> Any:
    strategy = rx.distribute.MirroredStrategy(cpus(layout.replicas))
    (scenario,) = (each for each in SCENARIOS if each.full_name == f"{TWENTY_STEPS}[{layout.name}]")
    return scenario.play(ReplicaxInJob(layout, 0, strategy).under(executor))


@pytest.mark.parametrize(("layout", "executor"), CASES)
def test_many_workers_learn_what_one_learns(layout: Layout, executor: str, played: Any) -> None:
    by_worker = played(layout).observed[executor, f"{TWENTY_STEPS}[{layout.name}]"]
    assert all(other == by_worker[0] for other in by_worker), "the workers differ in some bit"
    expected = _on_one_worker(layout, executor)
    assert len(expected["losses"]) == 20
    np.testing.assert_allclose(by_worker[0]["losses"], expected["losses"], rtol=1e-6)
    for got, wanted in zip(by_worker[0]["weights"], expected["weights"], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
