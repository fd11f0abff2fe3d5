"""`Estimator`: the numbers of a loop by hand, on any number of replicas, every row once."""

import contextlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from replicax.compat.v1 import estimator
from replicax.compat.v1.estimator import EstimatorSpec, ModeKeys
from tests.compat.regression import (
    BATCH,
    ROWS,
    Losses,
    X,
    Y,
    fixed_batch,
    line,
    losses_by_hand,
    losses_of,
    mirrored,
    model_fn,
    points,
)
from tests.old_names import warns_of
from tests.under_test import cpus

# Replicas (0: no strategy) and rows. The last batch is whole; is smaller on one of the replicas;
# leaves one of them, or all but one, with nothing.
CASES = [(0, 29), (1, 32), (2, 32), (2, 29), (4, 29), (4, 26)]


# --- training -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("replicas", "rows"), CASES)
def test_the_numbers_of_a_loop_by_hand(replicas: int, rows: int, tmp_path: Path):
    """Training, evaluating and predicting count every row once, and in order."""
    model = line(tmp_path, replicas)
    losses, weights = losses_by_hand(rows)
    np.testing.assert_allclose(losses_of(model, points(rows)), losses, rtol=1e-5)
    np.testing.assert_allclose(model.get_variable_value("line/w"), weights, rtol=1e-5)

    predicted = X[:rows] @ weights + model.get_variable_value("line/b")
    difference = predicted - Y[:rows]
    for _ in range(2):  # the second one starts again
        found = model.evaluate(points(rows))
        assert sorted(found) == ["error", "global_step", "loss"]
        assert found["global_step"] == 4
        np.testing.assert_allclose(found["loss"], np.mean(difference**2), rtol=1e-4)
        np.testing.assert_allclose(found["error"], np.mean(abs(difference)), rtol=1e-4)

    with mirrored(replicas).scope() if replicas else contextlib.nullcontext():
        predictions = list(model.predict(points(rows)))
    np.testing.assert_array_equal(np.stack([each["x"] for each in predictions]), X[:rows])
    np.testing.assert_allclose([each["y"] for each in predictions], predicted, rtol=1e-4, atol=1e-5)


def test_one_batch_for_many_replicas(tmp_path: Path):
    """The first and only step: most replicas have nothing, and the model is built from that."""
    np.testing.assert_allclose(
        losses_of(line(tmp_path, 4), points(2)), losses_by_hand(2)[0], rtol=1e-5
    )


def test_a_strategy_of_tensorflow_1(tmp_path: Path):
    strategy = rx.compat.v1.distribute.MirroredStrategy(cpus(2))
    config = estimator.RunConfig(train_distribute=strategy)
    model = estimator.Estimator(model_fn, tmp_path, config, params={"rate": 0.1})
    np.testing.assert_allclose(losses_of(model, points(ROWS)), losses_by_hand(ROWS)[0], rtol=1e-5)


def test_steps_count_on_and_max_steps_do_not(tmp_path: Path):
    model = line(tmp_path, 2)
    hook = Losses()
    model.train(fixed_batch, hooks=[hook], steps=2)
    model.train(fixed_batch, hooks=[hook], steps=2)
    model.train(fixed_batch, hooks=[hook], max_steps=5)
    model.train(fixed_batch, hooks=[hook], max_steps=5)
    assert hook.steps == [1, 2, 3, 4, 5]
    assert model.get_variable_value("global_step") == 5


def test_the_end_of_the_data_ends_training(tmp_path: Path):
    assert len(losses_of(line(tmp_path), points(ROWS), steps=100)) == 4


@pytest.mark.parametrize("replicas", [1, 2])
def test_train_op_may_be_a_function_of_the_gradients(replicas: int, tmp_path: Path):
    """Gradients clipped, and a variable left alone: as `compute_gradients` was used."""

    def clipped(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        w = rx.Variable(jnp.zeros(3), name="w")
        b = rx.Variable(0.0, name="b")
        optimizer = rx.Optimizer(optax.sgd(1.0))
        loss = jnp.mean((features["x"] @ w + b - labels) ** 2)

        def train_op(pairs: Any) -> None:
            assert [variable.name for _, variable in pairs] == ["w:0", "b:0"]
            optimizer.apply_gradients([(jnp.clip(g, -0.1, 0.1), v) for g, v in pairs[:1]])

        return EstimatorSpec(mode, loss=loss, train_op=train_op)

    config = estimator.RunConfig(train_distribute=mirrored(replicas))
    model = estimator.Estimator(clipped, tmp_path, config).train(fixed_batch, steps=3)
    # On every replica the gradient is clipped, and then summed over the replicas.
    np.testing.assert_allclose(
        model.get_variable_value("w"), [0.3 * replicas, -0.3 * replicas, 0.3 * replicas], rtol=1e-5
    )
    assert model.get_variable_value("b") == 0


@pytest.mark.parametrize("replicas", [0, 2])
def test_assignments_in_model_fn_happen_once_a_step(replicas: int, tmp_path: Path):
    def counting(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        w = rx.Variable(jnp.zeros(3), name="w")
        mean = rx.Variable(0.0, trainable=False, aggregation="MEAN", name="mean")
        calls = rx.Variable(0.0, trainable=False, aggregation="MEAN", name="calls")
        mean.assign(jnp.mean(features["x"]))
        calls.assign_add(jnp.float32(1))
        loss = jnp.mean((features["x"] @ w - labels) ** 2)
        return EstimatorSpec(mode, loss=loss, train_op=rx.Optimizer(optax.sgd(0.1)))

    config = estimator.RunConfig(train_distribute=mirrored(replicas))
    model = estimator.Estimator(counting, tmp_path, config).train(points(ROWS))
    assert model.get_variable_value("calls") == 4
    np.testing.assert_allclose(model.get_variable_value("mean"), X[-BATCH:].mean(), rtol=1e-5)


def test_variables_without_names_are_told_apart_by_their_order(tmp_path: Path):
    def unnamed(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        w, b = rx.Variable(jnp.zeros(3)), rx.Variable(0.0)
        predicted = features["x"] @ w + b
        if mode == ModeKeys.PREDICT:
            return EstimatorSpec(mode, predictions=predicted)
        loss = jnp.mean((predicted - labels) ** 2)
        return EstimatorSpec(mode, loss=loss, train_op=rx.Optimizer(optax.sgd(0.1)))

    config = estimator.RunConfig(train_distribute=mirrored(2))
    model = estimator.Estimator(unnamed, tmp_path, config).train(points(ROWS))
    w, b = model.get_variable_value("Variable"), model.get_variable_value("Variable_1")
    assert (w.shape, b.shape) == ((3,), ())
    predictions = np.stack(list(model.predict(points(ROWS))))
    np.testing.assert_allclose(predictions, X @ w + b, rtol=1e-5)


def test_features_may_hold_text(tmp_path: Path):
    """Such steps run as Python, with the same numbers; the text comes out with the predictions."""
    names = [b"row %d" % row for row in range(BATCH)]

    def input_fn() -> Any:
        features = {"x": X[:BATCH], "name": np.array(names, object)}
        return rx.data.Dataset.from_tensor_slices((features, Y[:BATCH])).batch(BATCH // 2)

    def with_names(features: Any, labels: Any, mode: str, params: Any) -> EstimatorSpec:
        spec = model_fn(features, labels, mode, params)
        if mode == ModeKeys.PREDICT:
            return EstimatorSpec(mode, {**spec.predictions, "name": features["name"]})
        return spec

    strategy = mirrored(2)
    config = estimator.RunConfig(train_distribute=strategy, eval_distribute=strategy)
    model = estimator.Estimator(with_names, tmp_path, config, params={"rate": 0.1})
    np.testing.assert_allclose(losses_of(model, input_fn), losses_by_hand(BATCH)[0], rtol=1e-5)
    np.testing.assert_allclose(
        model.evaluate(input_fn)["loss"], losses_by_hand(BATCH, passes=2)[0][1], rtol=1e-5
    )
    assert [each["name"] for each in model.predict(input_fn)] == names


def test_sync_on_read_variables_are_saved_unless_they_are_of_metrics(tmp_path: Path):
    """A count of the user's own goes on in the next call, and evaluation sees it."""

    def counting(features: Any, labels: Any, mode: str, params: Any) -> EstimatorSpec:
        rows = rx.Variable(
            0.0, trainable=False, synchronization="ON_READ", aggregation="SUM", name="rows"
        )
        if mode == ModeKeys.TRAIN:
            rows.assign_add(jnp.float32(len(labels)))
        return model_fn(features, labels, mode, params)

    config = estimator.RunConfig(train_distribute=mirrored(2))
    model = estimator.Estimator(counting, tmp_path, config, params={"rate": 0.1})
    for _ in range(2):
        model.train(points(ROWS))
    assert model.get_variable_value("rows") == 2 * ROWS
    assert not any("mean_absolute_error" in name for name in model.get_variable_names())
    model.evaluate(fixed_batch)


@pytest.mark.parametrize("replicas", [0, 2])
def test_the_losses_of_replicas_are_averaged(replicas: int, tmp_path: Path):
    distribute, found = rx.compat.v1.distribute, set()

    def asking(features: Any, labels: Any, mode: str, params: Any) -> EstimatorSpec:
        found.add(distribute.get_loss_reduction())
        return model_fn(features, labels, mode, params)

    config = estimator.RunConfig(train_distribute=mirrored(replicas))
    with warns_of("rx.compat.v1.distribute.get_loss_reduction"):
        estimator.Estimator(asking, tmp_path, config, {"rate": 0.1}).train(fixed_batch, steps=1)
        assert found == {distribute.ReduceOp.MEAN}
        assert distribute.get_loss_reduction() is distribute.ReduceOp.SUM


def test_assignments_in_a_loop(tmp_path: Path):
    def looping(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        w = rx.Variable(jnp.zeros(3), name="w")
        total = rx.Variable(0.0, trainable=False, aggregation="SUM", name="total")

        def body(carry: Any, row: Any) -> Any:
            total.assign_add(jnp.float32(1))
            return carry + total * 0, None

        extra, _ = jax.lax.scan(body, jnp.float32(0), features["x"])
        loss = jnp.mean((features["x"] @ w - labels) ** 2) + jax.lax.stop_gradient(extra)
        return EstimatorSpec(mode, loss=loss, train_op=rx.Optimizer(optax.sgd(0.1)))

    config = estimator.RunConfig(train_distribute=mirrored(2))
    model = estimator.Estimator(looping, tmp_path, config).train(points(ROWS))
    assert model.get_variable_value("total") == ROWS


def test_random_numbers_go_on(tmp_path: Path):
    """A generator made in model_fn: other numbers in each step, saved with the model."""

    def noisy(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        w = rx.Variable(0.0, name="w")
        loss = rx.random.Generator.from_seed(3).uniform([]) + 0 * w
        return EstimatorSpec(mode, loss=loss, train_op=rx.Optimizer(optax.sgd(0.1)))

    whole = losses_of(estimator.Estimator(noisy, tmp_path / "whole"), fixed_batch, steps=4)
    model = estimator.Estimator(noisy, tmp_path / "parts")
    parts = [loss for _ in range(2) for loss in losses_of(model, fixed_batch, steps=2)]
    assert len(set(whole)) == 4
    assert parts == whole


def test_arguments_are_passed_by_name(tmp_path: Path):
    seen: dict[str, Any] = {}

    def input_fn(mode: str, params: Any, config: Any) -> Any:
        seen["input"] = mode, params, config.tf_random_seed
        return fixed_batch()

    def with_config(features: Any, labels: Any, mode: str, params: Any, config: Any) -> Any:
        seen["model"] = config.tf_random_seed
        return model_fn(features, labels, mode, params)

    config = estimator.RunConfig(tf_random_seed=7)
    model = estimator.Estimator(with_config, tmp_path, config, params={"rate": 0.1})
    model.train(input_fn, steps=1)
    assert seen == {"input": ("train", {"rate": 0.1}, 7), "model": 7}
    assert model.config.model_dir == model.model_dir == str(tmp_path)


# --- evaluating -----------------------------------------------------------------------------------


def test_evaluation_of_some_steps_only(tmp_path: Path):
    model = line(tmp_path, 2).train(points(ROWS))
    part, whole = model.evaluate(points(ROWS), steps=2), model.evaluate(points(2 * BATCH))
    assert part == whole
    assert part != model.evaluate(points(ROWS))


def test_evaluation_changes_nothing(tmp_path: Path):
    model = line(tmp_path, 2).train(fixed_batch, steps=2)
    before = model.get_variable_value("line/w")
    model.evaluate(fixed_batch)
    assert model.latest_checkpoint() == str(tmp_path / "model.ckpt-2")
    losses = losses_of(model, fixed_batch, steps=2)
    np.testing.assert_allclose(losses, losses_by_hand(BATCH, passes=4)[0][2:], rtol=1e-5)
    assert not np.array_equal(model.get_variable_value("line/w"), before)


def test_an_earlier_checkpoint_can_be_evaluated(tmp_path: Path):
    model = line(tmp_path, save_checkpoints_steps=1)
    losses = losses_of(model, fixed_batch, steps=3)
    for step in (0, 1, 2):
        found = model.evaluate(fixed_batch, checkpoint_path=tmp_path / f"model.ckpt-{step}")
        assert found["global_step"] == step
        np.testing.assert_allclose(found["loss"], losses[step], rtol=1e-5)


def test_a_model_that_is_not_trained_has_its_initial_values(tmp_path: Path):
    model = line(tmp_path, 2)
    found = model.evaluate(fixed_batch)
    assert found["global_step"] == 0
    np.testing.assert_allclose(found["loss"], losses_by_hand(BATCH)[0][0], rtol=1e-5)
    assert model.latest_checkpoint() is None
    assert len(list(model.predict(fixed_batch))) == BATCH


# --- predicting -----------------------------------------------------------------------------------


def test_predictions_by_key_and_by_batch(tmp_path: Path):
    model = line(tmp_path)
    assert [sorted(each) for each in model.predict(points(2), ["y"])] == [["y"], ["y"]]
    batches = list(model.predict(points(12), yield_single_examples=False))
    assert [each["x"].shape for each in batches] == [(8, 3), (4, 3)]
    with pytest.raises(ValueError, match=r"None of predict_keys=\['z'\] is among.*: y, x"):
        next(model.predict(points(2), ["z"]))


def test_in_the_scope_of_a_strategy_that_one_is_used(tmp_path: Path):
    """The input is asked for the share of one of two replicas."""
    asked: list[int] = []

    def input_fn(input_context: Any) -> Any:
        asked.append(input_context.num_replicas_in_sync)
        return points(ROWS)(input_context)

    with mirrored(2).scope():
        model = line(tmp_path)
        np.testing.assert_allclose(losses_of(model, input_fn), losses_by_hand(ROWS)[0], rtol=1e-5)
        next(model.predict(input_fn))
    assert asked == [2, 2]


def test_prediction_can_be_left_in_the_middle(tmp_path: Path):
    predictions = line(tmp_path).predict(points(ROWS))
    next(predictions)
    predictions.close()  # the guards see that no thread is left


# --- hooks ----------------------------------------------------------------------------------------


class Diary(estimator.SessionRunHook):
    def __init__(self, stop_after: int | None = None):
        self.entries: list[str] = []
        self._left = stop_after

    def begin(self) -> None:
        self.entries.append("begin")

    def after_create_session(self, session: None, coord: None) -> None:
        self.entries.append("session")

    def before_run(self, run_context: Any) -> None:
        self.entries.append("before")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.entries.append("after " + " ".join(sorted(run_values.results)))
        if self._left is not None:
            self._left -= 1
            if not self._left:
                run_context.request_stop()

    def end(self, session: None) -> None:
        self.entries.append("end")


def test_hooks_see_each_step_and_may_stop(tmp_path: Path):
    model = line(tmp_path, 2)
    diary = Diary(stop_after=2)
    model.train(points(ROWS), hooks=[diary])
    step = ["before", "after global_step loss"]
    assert diary.entries == ["begin", "session", *step, *step, "end"]
    assert model.get_variable_value("global_step") == 2
    diary = Diary(stop_after=1)
    model.evaluate(points(ROWS), hooks=[diary])
    assert diary.entries == ["begin", "session", "before", "after evaluation", "end"]
    diary = Diary(stop_after=1)
    assert len(list(model.predict(points(ROWS), hooks=[diary]))) == BATCH
    assert diary.entries == ["begin", "session", "before", "after predictions", "end"]


def test_the_loss_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", logger="replicax.estimator")
    line(tmp_path, log_step_count_steps=2).train(fixed_batch, steps=5)
    lines = [each for each in caplog.messages if each.startswith("loss = ")]
    assert [each.rpartition(" ")[2] for each in lines] == ["2", "4"]
