"""Keras layers, losses and models inside of the `model_fn` of an estimator."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from replicax.compat.v1 import estimator
from replicax.compat.v1.estimator import EstimatorSpec, ModeKeys
from tests.integrations.keras_programs import X, Y, keras, layers, same
from tests.replicas import mirrored


def by_layers(x: Any) -> Any:
    hidden = layers.Dense(3, "tanh", kernel_initializer="ones")(x)
    return layers.Dense(1, kernel_initializer="ones")(hidden)


def by_a_model(x: Any) -> Any:
    inputs = keras.Input((4,))
    return keras.Model(inputs, by_layers(inputs))(x)


def line(folder: Path, network: Any, replicas: int) -> estimator.Estimator:
    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        found = network(features)
        if mode == ModeKeys.PREDICT:
            return EstimatorSpec(mode, predictions=found)
        loss = keras.losses.MeanSquaredError()(labels, found)
        return EstimatorSpec(mode, loss=loss, train_op=rx.Optimizer(optax.sgd(0.1)))

    strategy = mirrored(replicas) if replicas else None
    config = estimator.RunConfig(train_distribute=strategy, eval_distribute=strategy)
    return estimator.Estimator(model_fn, folder, config)


def all_rows(input_context: Any) -> Any:
    data = rx.data.Dataset.from_tensor_slices((X[:12], Y[:12])).repeat(2)
    return data.batch(12 // input_context.num_replicas_in_sync)


def expected() -> Any:
    """The losses and weights of plain Keras, trained on the same two batches."""
    inputs = keras.Input((4,))
    model = keras.Model(inputs, by_layers(inputs))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    for _ in range(2):
        model.train_on_batch(X[:12], Y[:12])
    return model.get_weights()[:4], model.evaluate(X[:12], Y[:12], verbose=0)


@pytest.mark.parametrize("network", [by_layers, by_a_model])
@pytest.mark.parametrize("replicas", [0, 2])
def test_layers_are_made_once_trained_saved_and_restored(
    network: Any, replicas: int, tmp_path: Path
):
    names = keras.layers.Dense(1).name
    made = line(tmp_path, network, replicas)
    made.train(all_rows)
    weights, loss = expected()
    saved = ["dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"]
    same([made.get_variable_value(name) for name in saved], weights)
    again = line(tmp_path, network, replicas)  # another estimator reads them by name
    np.testing.assert_allclose(again.evaluate(all_rows)["loss"], loss, rtol=1e-5)
    assert np.shape(list(again.predict(lambda: rx.data.Dataset.from_tensors(X)))) == (14, 1)
    # Outside, Keras counts on, and its variables are plain ones.
    assert keras.layers.Dense(1).name != names
    assert type(keras.Variable(1.0)) is keras.Variable


def spec(**given: Any) -> EstimatorSpec:
    return EstimatorSpec(**{"mode": ModeKeys.TRAIN, "loss": 1.0, **given})


def test_optimizers_and_metrics_of_keras_are_refused():
    optimizer = keras.optimizers.Adam(0.1)
    for train_op in (optimizer, optimizer.apply_gradients):
        with pytest.raises(TypeError, match=r"of Keras.*Write .*rx.Optimizer\(optax.adam"):
            spec(train_op=train_op)
    with pytest.raises(TypeError, match=r"a metric of rx.metrics; got <Mean .* of Keras. Make one"):
        spec(mode=ModeKeys.EVAL, eval_metric_ops={"mean": keras.metrics.Mean()})


def test_a_model_from_elsewhere_has_nothing_to_train(tmp_path: Path):
    strategy = mirrored(2)
    with strategy.scope():
        dense = keras.Sequential([keras.Input((4,)), layers.Dense(1)])

    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        loss = jnp.mean(dense(features))
        return EstimatorSpec(mode, loss=loss, train_op=rx.Optimizer(optax.sgd(0.1)))

    config = estimator.RunConfig(train_distribute=strategy)
    with pytest.raises(ValueError, match="no trainable variables.*in model_fn itself"):
        estimator.Estimator(model_fn, tmp_path, config).train(all_rows, steps=1)
