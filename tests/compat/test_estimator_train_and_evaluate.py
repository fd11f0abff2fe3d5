"""`train_and_evaluate`: checkpoints are evaluated as they come, and the last one in any case."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replicax.compat.v1 import estimator
from tests.compat.regression import BATCH, Losses, fixed_batch, line, losses_by_hand, points

STEPS = 6


class Evaluations(estimator.SessionRunHook):
    """Keeps after which steps of the training an evaluation came."""

    def __init__(self, training: Losses):
        self._training = training
        self.after: list[int] = []

    def begin(self) -> None:
        self.after.append(self._training.steps[-1])


def train_and_evaluate(folder: Path, replicas: int, **eval_options: Any) -> tuple[Any, list[int]]:
    training = Losses()
    evaluations = Evaluations(training)
    results, exports = estimator.train_and_evaluate(
        line(folder, replicas, save_checkpoints_steps=2),
        estimator.TrainSpec(fixed_batch, max_steps=STEPS, hooks=[training]),
        estimator.EvalSpec(fixed_batch, hooks=[evaluations], **eval_options),
    )
    assert exports == []
    return results, evaluations.after


@pytest.mark.parametrize("replicas", [0, 2])
def test_training_and_evaluation_take_turns(replicas: int, tmp_path: Path):
    results, after = train_and_evaluate(tmp_path, replicas, throttle_secs=0)
    assert after == [2, 4, 6]
    wanted, _ = losses_by_hand(BATCH, passes=STEPS + 1)
    assert sorted(results) == ["error", "global_step", "loss"]
    np.testing.assert_allclose(results["loss"], wanted[STEPS], rtol=1e-4)


def test_evaluation_does_not_disturb_the_training(tmp_path: Path):
    training = Losses()
    estimator.train_and_evaluate(
        line(tmp_path, 2, save_checkpoints_steps=1),
        estimator.TrainSpec(fixed_batch, max_steps=STEPS, hooks=[training]),
        estimator.EvalSpec(points(13), throttle_secs=0),
    )
    wanted, _ = losses_by_hand(BATCH, passes=STEPS)
    np.testing.assert_allclose(training.losses, wanted, rtol=1e-5)


def test_evaluations_that_come_too_soon_are_left_out_but_for_the_last(tmp_path: Path):
    results, after = train_and_evaluate(tmp_path, 0, throttle_secs=3600)
    assert after == [2, 6]
    assert results["global_step"] == STEPS


def test_steps_of_an_evaluation(tmp_path: Path):
    results, _ = estimator.train_and_evaluate(
        line(tmp_path, 2),
        estimator.TrainSpec(fixed_batch, max_steps=1),
        estimator.EvalSpec(points(2 * BATCH), steps=1),
    )
    assert results is not None
    np.testing.assert_allclose(results["loss"], losses_by_hand(BATCH, passes=2)[0][1], rtol=1e-5)


def test_it_goes_on_from_a_checkpoint_and_has_nothing_to_do_at_the_end(tmp_path: Path):
    line(tmp_path).train(fixed_batch, steps=3)
    results, after = train_and_evaluate(tmp_path, 0, throttle_secs=0)
    assert after == [5, 6]
    assert results["global_step"] == STEPS
    assert train_and_evaluate(tmp_path, 0) == (None, [])


def test_mistakes(tmp_path: Path):
    model = line(tmp_path)
    train, evaluate = estimator.TrainSpec(fixed_batch, 1), estimator.EvalSpec(fixed_batch)
    with pytest.raises(TypeError, match="takes an Estimator, a TrainSpec and an EvalSpec; got"):
        estimator.train_and_evaluate(model, evaluate, train)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="switched off. Set RunConfig"):
        off = line(tmp_path, save_checkpoints_steps=None)
        estimator.train_and_evaluate(off, train, evaluate)
    with pytest.raises(ValueError, match="`max_steps` must be .* greater than 0"):
        estimator.TrainSpec(fixed_batch, 0)
    with pytest.raises(ValueError, match="`steps` must be .* greater than 0"):
        estimator.EvalSpec(fixed_batch, 0)
    with pytest.raises(ValueError, match="`exporters` write a SavedModel"):
        estimator.EvalSpec(fixed_batch, exporters=["latest"])
    with pytest.raises(ValueError, match="must not be negative"):
        estimator.EvalSpec(fixed_batch, throttle_secs=-1)
