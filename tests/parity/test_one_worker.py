"""One worker alone: `MultiWorkerMirroredStrategy` does what `MirroredStrategy` does."""

from __future__ import annotations

from typing import Any

import pytest

import replicax as rx

from ..processes import result, run_workers
from ..under_test import cpus
from ._layout import Layout
from ._observation import differences
from ._plan import SCENARIOS
from ._worker_of_replicax import ReplicaxInJob

CHOSEN = (
    "workers_collectives.all_gather[2x1-0]",
    "workers_reducing.reduce_matrices[2x1-MEAN]",
    "workers_running.merge_and_update[2x1]",
    "workers_training.metrics[2x1-Mean]",
    "workers_training.steps[2x1-momentum]",
    "workers_values.kind_of_results[2x1]",
    "workers_variable_updates.many_steps[2x1]",
)
ALONE = Layout(1, 8)


def _library(strategy: Any) -> ReplicaxInJob:
    return ReplicaxInJob(ALONE, 0, strategy)


@pytest.mark.parametrize("name", CHOSEN)
def test_without_a_cluster(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    (scenario,) = (each for each in SCENARIOS if each.full_name == name)
    expected = scenario.play(_library(rx.distribute.MirroredStrategy(cpus(8))).under("compiled"))
    got = scenario.play(_library(rx.distribute.MultiWorkerMirroredStrategy()).under("compiled"))
    assert not list(differences(expected, got))


def _describe() -> None:
    strategy = rx.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        total = rx.Variable(0.0, aggregation=rx.VariableAggregation.SUM)
    strategy.run(lambda: total.assign_add(1.0))
    result("replicas", strategy.num_replicas_in_sync)
    result("total", float(total.read_value()))
    result("task", [strategy.cluster_resolver.task_type, strategy.cluster_resolver.task_id])
    result("duties", [strategy.extended.should_checkpoint, strategy.extended.should_save_summary])


def test_a_cluster_of_one() -> None:
    (worker,) = run_workers(_describe, 1, devices=2)
    assert worker.results == {
        "replicas": 2,
        "total": 2.0,
        "task": ["worker", 0],
        "duties": [True, True],
    }
