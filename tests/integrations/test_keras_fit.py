"""Keras models made in a scope: the methods of a model on all replicas, as on one device."""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import replicax as rx
from tests.integrations.keras_programs import (
    LABELS,
    X,
    Y,
    classifier,
    fitted,
    keras,
    layers,
    mlp,
    ready,
    same,
    same_as_on_one_device,
    seeded,
    two_logical_devices,
)
from tests.replicas import mirrored
from tests.under_test import cpus


class Subclassed(keras.Model):
    """Layers as attributes, built at the first call."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.hidden = layers.Dense(3, "tanh")
        self.out = layers.Dense(1)

    def call(self, x: Any) -> Any:
        return self.out(self.hidden(x))


def functional() -> Any:
    inputs = keras.Input((4,))
    hidden = layers.Dense(3, "tanh")(inputs)
    return ready(keras.Model(inputs, layers.Dense(1)(layers.Concatenate()([hidden, inputs]))))


def unbuilt() -> Any:
    return ready(keras.Sequential([layers.Dense(3, "tanh"), layers.Dense(1)]))


def everything(model: Any) -> dict[str, Any]:
    """Training, evaluation and prediction."""
    found = fitted(model)
    found["evaluation"] = model.evaluate(X, Y, batch_size=14, verbose=0)
    found["prediction"] = model.predict(X, batch_size=14, verbose=0)
    return found


def mlp_with_metrics() -> Any:
    return mlp(optimizer=keras.optimizers.SGD(0.1, momentum=0.9), metrics=["mae"])


@functools.cache
def on_one_device() -> Any:
    return everything(seeded(mlp_with_metrics))


STRATEGIES = {
    **{f"mirrored_{n}": functools.partial(mirrored, n) for n in (1, 2, 3, 4, 8)},
    "one_device": lambda: rx.distribute.OneDeviceStrategy("CPU:3"),
    "default": rx.distribute.get_strategy,
    "central_storage": lambda: rx.distribute.experimental.CentralStorageStrategy(
        cpus(2), parameter_device="CPU:0"
    ),
    "tpu": lambda: rx.distribute.TPUStrategy(),
    "two_logical_devices": two_logical_devices,
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_numbers_are_those_of_one_device(name: str):
    strategy = STRATEGIES[name]()
    found = everything(seeded(mlp_with_metrics, strategy))
    expected = on_one_device()
    same(found, expected)


@pytest.mark.parametrize("make", [functional, lambda: ready(Subclassed()), unbuilt])
def test_every_kind_of_model(make: Any):
    same_as_on_one_device(make, strategy=mirrored(2))


@pytest.mark.parametrize(("rows", "batch"), [(126, 32), (2, 32), (1, 1)])
def test_rows_that_replicas_do_not_divide(rows: int, batch: int):
    data = np.random.default_rng(1).normal(size=(rows, 4)).astype(np.float32)
    target = data.sum(axis=1, keepdims=True)

    def program(model: Any) -> Any:
        evaluation = model.evaluate(data, target, batch_size=batch, verbose=0)
        prediction = model.predict(data, batch_size=batch, verbose=0)
        assert prediction.shape == (rows, 1)
        history = fitted(model, data, target, batch_size=batch)
        return evaluation, prediction, history

    strategy = mirrored(4)
    expected = program(seeded(mlp_with_metrics))
    found = program(seeded(mlp_with_metrics, strategy))
    same(found[:2], expected[:2], atol=1e-6)
    same(found[2], expected[2])


@pytest.mark.parametrize("inside", [False, True])
def test_everything_inside_and_outside_of_the_scope(inside: bool, tmp_path: Path):
    strategy = mirrored(2)

    def program(model: Any) -> Any:
        model.compile("adam", "mse", metrics=["mae"])
        first = everything(model)
        model.save(tmp_path / "model.keras")
        model.save_weights(tmp_path / "model.weights.h5")
        loaded = keras.models.load_model(tmp_path / "model.keras")
        model.set_weights([w + 1 for w in model.get_weights()])
        model.load_weights(tmp_path / "model.weights.h5")
        return first, loaded.predict(X, verbose=0), model.predict(X, verbose=0), fitted(model)

    def make() -> Any:
        return keras.Sequential([keras.Input((4,)), layers.Dense(3, "tanh"), layers.Dense(1)])

    expected = program(seeded(make))
    if inside:
        with strategy.scope():
            found = program(seeded(make))
    else:
        found = program(seeded(make, strategy))
    same(found, expected)


def test_a_saved_model_goes_on_under_another_strategy_and_under_none(tmp_path: Path):
    def make() -> Any:
        return mlp(optimizer=keras.optimizers.Adam(0.1))

    model = seeded(make, mirrored(3))
    fitted(model)
    model.save(tmp_path / "model.keras")
    expected = fitted(model, shuffle=False)
    for strategy in (None, mirrored(2)):
        loaded = seeded(lambda: keras.models.load_model(tmp_path / "model.keras"), strategy)
        same(fitted(loaded, shuffle=False), expected)


def test_batches_without_a_compiled_loop():
    def program(model: Any) -> Any:
        return [
            model.train_on_batch(X[:8], LABELS[:8]),
            model.train_on_batch(X[:5], LABELS[:5], class_weight={0: 1.0, 1: 2.0, 2: 0.5}),
            model.train_on_batch(X[:8], LABELS[:8], sample_weight=np.arange(8.0)),
            model.test_on_batch(X, LABELS, return_dict=True),
            model.predict_on_batch(X[:5]),
            model.predict_on_batch(X[:8]),
            model.get_weights(),
        ]

    same_as_on_one_device(lambda: classifier(metrics=["accuracy"]), program)


@pytest.mark.parametrize("compiled", [{"run_eagerly": True}, {"jit_compile": False}], ids=str)
def test_without_compiling(compiled: dict[str, Any]):
    same_as_on_one_device(lambda: mlp(**compiled), everything, mirrored(2))


def test_the_model_can_be_called_and_looked_at(capsys: pytest.CaptureFixture[str]):
    model = seeded(mlp, mirrored(2))
    plain = seeded(mlp)
    same(np.asarray(model(X)), np.asarray(plain(X)), atol=1e-6)
    model.summary()
    assert "Total params: 19" in capsys.readouterr().out
    assert model.count_params() == plain.count_params()
    assert [v.path for v in model.weights] == [v.path for v in model.variables]
