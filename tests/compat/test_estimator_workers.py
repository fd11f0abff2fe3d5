"""An estimator on two workers: one model, one directory, and the first worker evaluates."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

import replicax as rx
from replicax.compat.v1 import estimator
from tests.compat.regression import (
    BATCH,
    Losses,
    fixed_batch,
    line,
    losses_by_hand,
    model_fn,
    points,
)
from tests.processes import result, run_workers

TOGETHER = "tests.compat.test_estimator_workers:train_together"


def train_together() -> None:
    """The program of the workers."""
    strategy = rx.distribute.MultiWorkerMirroredStrategy()

    def model(folder: str, **options: Any) -> estimator.Estimator:
        config = estimator.RunConfig(train_distribute=strategy, save_checkpoints_steps=2, **options)
        return estimator.Estimator(model_fn, Path(sys.argv[1]) / folder, config, {"rate": 0.1})

    first = model("first")
    training = Losses()
    results, _ = estimator.train_and_evaluate(
        first,
        estimator.TrainSpec(fixed_batch, max_steps=4, hooks=[training]),
        estimator.EvalSpec(points(13), throttle_secs=0),
    )
    first.train(fixed_batch, hooks=[training], steps=2)
    result("losses", training.losses)
    result("chief", first.config.is_chief)
    result("alone", None if results is None else float(results["loss"]))
    results, _ = estimator.train_and_evaluate(
        model("second", eval_distribute=strategy),
        estimator.TrainSpec(shared, max_steps=3),
        estimator.EvalSpec(shared, throttle_secs=0),
    )
    assert results is not None
    result("together", [float(results["loss"]), results["global_step"]])


def shared(input_context: rx.distribute.InputContext) -> rx.data.Dataset:
    """Each worker reads its part; one of them has less."""
    pipelines = input_context.num_input_pipelines
    rows = points(29)(input_context).unbatch()
    rows = rows.shard(pipelines, input_context.input_pipeline_id)
    return rows.batch(input_context.get_per_replica_batch_size(8))


def test_two_workers(tmp_path: Path):
    first, second = (each.results for each in run_workers(TOGETHER, 2, arguments=[str(tmp_path)]))
    wanted, _ = losses_by_hand(BATCH, passes=6)
    for found in (first, second):
        np.testing.assert_allclose(found["losses"], wanted, rtol=1e-5)
    assert (first["chief"], second["chief"]) == (True, False)
    here = line(tmp_path / "first", 2).evaluate(
        points(13), checkpoint_path=tmp_path / "first" / "model.ckpt-4"
    )
    np.testing.assert_allclose(first["alone"], here["loss"], rtol=1e-5)
    assert second["alone"] is None
    assert first["together"] == second["together"]
    here = line(tmp_path / "second", 2).evaluate(points(29))
    np.testing.assert_allclose(first["together"], [here["loss"], 3], rtol=1e-5)
