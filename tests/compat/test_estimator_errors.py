"""Mistakes around an estimator are told with what to write instead; and `RunConfig` by itself."""

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from replicax.compat.v1 import estimator
from replicax.compat.v1.estimator import EstimatorSpec, ModeKeys
from tests.compat.regression import fixed_batch, line, mirrored, model_fn, points

TRAIN = ModeKeys.TRAIN


def broken(folder: Path, model_fn: Any, replicas: int = 0) -> estimator.Estimator:
    config = estimator.RunConfig(train_distribute=mirrored(replicas))
    return estimator.Estimator(model_fn, folder, config)


def sgd() -> rx.Optimizer:
    return rx.Optimizer(optax.sgd(0.1))


def nothing(features: Any) -> Any: ...


def with_params(features: Any, params: Any) -> Any: ...


# --- model_fn -------------------------------------------------------------------------------------


@pytest.mark.parametrize("replicas", [0, 2])
def test_model_fn_without_a_loss(replicas: int, tmp_path: Path):
    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        return EstimatorSpec(mode, train_op=sgd())

    with pytest.raises(ValueError, match=r"Missing `loss`: .*'train'.*Write EstimatorSpec\(mode, "):
        broken(tmp_path, model_fn, replicas).train(fixed_batch, steps=1)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (dict(mode="learn"), ValueError, "one of ModeKeys; got 'learn'"),
        (dict(mode=TRAIN, loss=1.0), ValueError, r"Missing `train_op`.*rx.Optimizer\(optax"),
        (dict(mode="eval"), ValueError, "Missing `loss`"),
        (dict(mode="infer"), ValueError, "Missing `predictions`"),
        (dict(mode="eval", loss=np.ones(3)), ValueError, r"one number.*shape \(3,\).*jnp.mean"),
        (dict(mode=TRAIN, loss=1.0, train_op=3), TypeError, "an rx.Optimizer, or a function"),
        (
            dict(mode="eval", loss=1.0, eval_metric_ops={"a": (1, 2)}),
            TypeError,
            r"eval_metric_ops\['a'\] must be a metric.*update_state",
        ),
        (dict(mode="eval", loss=1.0, training_hooks=[1]), ValueError, r"Estimator.train\(hooks"),
        (dict(mode="eval", loss=1.0, scaffold=1), ValueError, "does not support `scaffold`"),
    ],
)
def test_spec(arguments: dict[str, Any], error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        EstimatorSpec(**arguments)


def test_spec_takes_a_loss_of_one_item_and_no_metric_named_loss():
    assert EstimatorSpec("eval", loss=np.ones((1, 1))).loss.shape == ()
    with pytest.raises(ValueError, match="may not be called 'loss'"):
        EstimatorSpec("eval", loss=1.0, eval_metric_ops={"loss": rx.metrics.Mean()})


def test_model_fn_that_returns_something_else(tmp_path: Path):
    with pytest.raises(ValueError, match="must return an EstimatorSpec; it returned None"):
        broken(tmp_path, lambda features, labels: None).train(fixed_batch, steps=1)

    def of_one_mode(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        return EstimatorSpec(ModeKeys.EVAL, loss=rx.Variable(0.0) * 1)

    with pytest.raises(ValueError, match=r"mode 'train' and returned .*mode='eval'\)"):
        broken(tmp_path, of_one_mode).train(fixed_batch, steps=1)


def test_model_fn_that_makes_other_variables_later(tmp_path: Path):
    calls: list[int] = []

    def fickle(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        calls.append(1)
        w = rx.Variable(jnp.zeros(3), name=f"w{min(len(calls), 2)}")
        loss = jnp.mean((features["x"] @ w - labels) ** 2)
        return EstimatorSpec(mode, loss=loss, train_op=sgd())

    with pytest.raises(ValueError, match="made the variable 'w2' in a later call.*which made w1"):
        broken(tmp_path, fickle).train(fixed_batch, steps=1)

    def growing(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        calls.append(1)
        w = rx.Variable(jnp.zeros(len(calls)), name="w")
        return EstimatorSpec(mode, loss=jnp.mean(w.value()), train_op=sgd())

    calls.clear()
    with pytest.raises(ValueError, match=r"'w' with shape \(1,\) first, and now with shape \(2,\)"):
        broken(tmp_path / "other", growing).train(fixed_batch, steps=1)


@pytest.mark.parametrize("replicas", [0, 2])
def test_an_error_in_model_fn_leaves_the_estimator_whole(replicas: int, tmp_path: Path):
    fails = True

    def sometimes(features: Any, labels: Any, mode: str, params: Any) -> EstimatorSpec:
        if fails:
            raise ZeroDivisionError("of the user")
        return model_fn(features, labels, mode, params)

    config = estimator.RunConfig(train_distribute=mirrored(replicas))
    model = estimator.Estimator(sometimes, tmp_path, config, params={"rate": 0.1})
    for call in (lambda: model.train(fixed_batch, steps=1), lambda: model.evaluate(fixed_batch)):
        fails = True
        with pytest.raises(ZeroDivisionError, match="of the user"):
            call()
        fails = False
        call()
    assert model.get_variable_value("global_step") == 1


def test_model_fn_that_is_no_program(tmp_path: Path):
    outside = rx.Variable(0.0)

    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        w = rx.Variable(jnp.zeros(3), name="w")
        outside.assign(outside + 1)
        loss = jnp.mean((features["x"] @ w - labels) ** 2)
        return EstimatorSpec(mode, loss=loss, train_op=sgd())

    with pytest.raises(ValueError, match="cannot be traced as one program.*make its variables in"):
        broken(tmp_path, model_fn, 2).train(fixed_batch, steps=1)


def test_arguments_of_model_fn(tmp_path: Path):
    with pytest.raises(ValueError, match="takes rate, which nobody will pass.*`params`"):
        broken(tmp_path, lambda features, labels, rate: None)
    with pytest.raises(ValueError, match="must take `features`"):
        broken(tmp_path, lambda labels: None)
    with pytest.raises(ValueError, match="does not take `params`"):
        estimator.Estimator(nothing, tmp_path, params={"a": 1})
    with pytest.raises(TypeError, match="`model_fn` must be a function; got 3"):
        estimator.Estimator(3, tmp_path)  # type: ignore[arg-type]
    broken(tmp_path, lambda features, labels, **others: None)  # which are given nothing
    with pytest.raises(ValueError, match="does not take `labels`, but input_fn returns"):
        broken(tmp_path, lambda features: None).train(fixed_batch, steps=1)


# --- input_fn -------------------------------------------------------------------------------------


@pytest.mark.parametrize("replicas", [0, 2])
def test_input_fn_that_returns_nothing(replicas: int, tmp_path: Path):
    model = line(tmp_path, replicas)

    def input_fn() -> None:
        points(8)

    for call in (model.train, model.evaluate, lambda input_fn: next(model.predict(input_fn))):
        with pytest.raises(ValueError, match=r"returned nothing \(None\).*is a `return` missing"):
            call(input_fn)


def test_input_fn_without_data(tmp_path: Path):
    model = line(tmp_path, 2)
    for call in (model.train, model.evaluate, lambda input_fn: next(model.predict(input_fn))):
        with pytest.raises(ValueError, match="is empty: there is not one batch"):
            call(points(0))


def test_input_fn_of_other_shapes(tmp_path: Path):
    model = line(tmp_path)

    def three() -> Any:
        x = np.zeros((4, 3), np.float32)
        return rx.data.Dataset.from_tensor_slices((x, x, x)).batch(2)

    with pytest.raises(ValueError, match=r"\(features, labels\).*tuples of 3.*a dictionary"):
        model.train(three)
    with pytest.raises(ValueError, match="has no end. Pass `steps` or `max_steps`"):
        model.train(fixed_batch)
    with pytest.raises(TypeError, match="`input_fn` must be a function"):
        model.train(rx.data.Dataset.range(3), steps=1)  # type: ignore[arg-type]


# --- the estimator --------------------------------------------------------------------------------


def test_numbers_of_steps(tmp_path: Path):
    model = line(tmp_path)
    with pytest.raises(ValueError, match="`steps` or `max_steps`, not both"):
        model.train(fixed_batch, steps=1, max_steps=1)
    with pytest.raises(ValueError, match="`steps` must be .* greater than 0"):
        model.train(fixed_batch, steps=0)
    with pytest.raises(ValueError, match="`max_steps` must be .* greater than 0"):
        model.train(fixed_batch, max_steps=-1)
    for steps in (2.5, "3"):
        with pytest.raises(ValueError, match=f"whole number .*got {steps!r}"):
            model.train(fixed_batch, steps=steps)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`steps` must be .* greater than 0"):
        model.evaluate(fixed_batch, steps=0)


def test_what_is_not_supported(tmp_path: Path):
    with pytest.raises(ValueError, match=r"`warm_start_from` is not supported.*get_variable_value"):
        estimator.Estimator(nothing, tmp_path, warm_start_from="elsewhere")
    with pytest.raises(TypeError, match="`hooks` must be instances of .*SessionRunHook; got 1"):
        line(tmp_path).train(fixed_batch, hooks=[1], steps=1)  # type: ignore[list-item]
    with pytest.raises(TypeError, match="`config` must be a RunConfig; got {}"):
        estimator.Estimator(nothing, tmp_path, {})  # type: ignore[arg-type]


def test_predictions_with_different_numbers_of_rows(tmp_path: Path):
    def uneven(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        return EstimatorSpec(mode, {"a": features["x"], "b": features["x"][:2], "c": jnp.zeros(())})

    with pytest.raises(ValueError, match="same number of rows: .*'b': 2, 'c': None"):
        next(broken(tmp_path, uneven).predict(fixed_batch))

    def plain(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        return EstimatorSpec(mode, features["x"][:, 0])

    with pytest.raises(ValueError, match="predictions that are no dictionary"):
        next(broken(tmp_path, plain).predict(fixed_batch, ["a"]))


def test_the_directory(tmp_path: Path):
    def model_fn(features: Any) -> Any: ...

    config = estimator.RunConfig(model_dir=tmp_path)
    assert estimator.Estimator(model_fn, config=config).model_dir == str(tmp_path)
    with pytest.raises(ValueError, match="for the estimator and .* in its RunConfig"):
        estimator.Estimator(model_fn, tmp_path / "other", config)
    with pytest.raises(ValueError, match="empty text"):
        estimator.Estimator(model_fn, "")
    with pytest.raises(ValueError, match="Write to a folder of this machine"):
        estimator.Estimator(model_fn, "gs://bucket/model")
    assert estimator.Estimator(model_fn, f"file://{tmp_path}").model_dir == str(tmp_path)
    with pytest.warns(UserWarning, match="temporary directory"):
        estimator.Estimator(model_fn)


def test_parameters_are_copies(tmp_path: Path):
    params = {"rate": [0.1]}
    model = estimator.Estimator(with_params, tmp_path, params=params)
    params["rate"].append(1.0)
    model.params["rate"].append(2.0)
    assert model.params == {"rate": [0.1]}


# --- RunConfig ------------------------------------------------------------------------------------


def test_run_config_has_the_defaults_of_tensorflow():
    config = estimator.RunConfig()
    assert (config.save_checkpoints_steps, config.save_checkpoints_secs) == (None, 600)
    assert (config.keep_checkpoint_max, config.keep_checkpoint_every_n_hours) == (5, 10000)
    assert (config.save_summary_steps, config.log_step_count_steps) == (100, 100)
    assert config.model_dir is config.tf_random_seed is config.train_distribute is None
    assert (config.task_type, config.task_id, config.is_chief) == ("worker", 0, True)
    assert config.num_worker_replicas == 1
    assert estimator.RunConfig(save_checkpoints_steps=7).save_checkpoints_secs is None
    assert estimator.RunConfig(save_checkpoints_secs=7).save_checkpoints_steps is None
    assert estimator.RunConfig("here", 3).tf_random_seed == 3  # by position


def test_run_config_replace():
    strategy = mirrored(2)
    config = estimator.RunConfig(train_distribute=strategy, save_checkpoints_steps=7)
    other = config.replace(save_checkpoints_secs=60, tf_random_seed=1)
    assert (other.save_checkpoints_steps, other.save_checkpoints_secs) == (None, 60)
    assert other.train_distribute is strategy
    assert config.save_checkpoints_steps == 7
    assert config.replace(tf_random_seed=2).save_checkpoints_steps == 7
    with pytest.raises(ValueError, match="no property color that could be replaced"):
        config.replace(color="red")


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (dict(save_checkpoints_steps=1, save_checkpoints_secs=1), ValueError, "cannot be both set"),
        (dict(save_checkpoints_steps=-1), ValueError, "at least 0; got -1"),
        (dict(keep_checkpoint_max=-1), ValueError, "`keep_checkpoint_max` must be at least 0"),
        (dict(log_step_count_steps=0), ValueError, "at least 1"),
        (dict(train_distribute="mirrored"), TypeError, "must be a strategy, such as rx.distribute"),
        (dict(eval_distribute=3), TypeError, "`eval_distribute` must be a strategy"),
        (dict(device_fn=print), ValueError, r"RunConfig\(train_distribute=..."),
        (dict(model_dir=""), ValueError, "empty text"),
    ],
)
def test_run_config_checks_itself(arguments: Any, error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        estimator.RunConfig(**arguments)


def test_run_config_reads_tf_config(monkeypatch: pytest.MonkeyPatch):
    cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}

    def be(kind: str, index: int) -> None:
        config = {"cluster": cluster, "task": {"type": kind, "index": index}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(config))

    config = estimator.RunConfig()
    be("worker", 1)
    assert (config.task_type, config.task_id, config.is_chief) == ("worker", 1, False)
    assert config.num_worker_replicas == 3
    assert config.cluster_spec.as_dict()["chief"] == ["a:1"]
    be("chief", 0)
    assert config.is_chief
