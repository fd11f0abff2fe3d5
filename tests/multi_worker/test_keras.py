"""Keras under several real workers: one model, one history, and only the first one writes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import replicax as rx

from ..processes import result, run_workers

ROWS = 22  # in batches of 8: the last one is not for the four replicas to divide


def _data() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    return draw.normal(size=(ROWS, 5)).astype(np.float32), draw.integers(0, 3, ROWS)


def _model() -> Any:
    keras.utils.set_random_seed(7)
    layers = [
        keras.layers.Input((5,)),
        keras.layers.Dense(6, activation="relu"),
        keras.layers.BatchNormalization(synchronized=True),
        keras.layers.Dense(3),
    ]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    return model


def _train() -> None:
    strategy = rx.distribute.MultiWorkerMirroredStrategy()
    worker = strategy.cluster_resolver.task_id
    folder = Path(os.environ["FOLDER"])
    x, y = _data()
    with strategy.scope():
        model = _model()
    np.random.seed(worker)  # the shuffling is the first worker's all the same
    callbacks = [
        keras.callbacks.ModelCheckpoint(folder / "model.keras", verbose=1),
        keras.callbacks.CSVLogger(folder / "log.csv"),
    ]
    history = model.fit(x, y, batch_size=8, epochs=2, verbose=2, callbacks=callbacks).history
    result("history", history)
    result("predicted", model.predict(x, verbose=0).tolist())
    dataset = rx.data.Dataset.from_tensor_slices((x, y.astype(np.int32))).batch(8)
    result("evaluated", [model.evaluate(data, verbose=0) for data in (dataset, dataset)])
    result("arrays", model.evaluate(x, y, batch_size=8, verbose=0))
    again: Any = keras.saving.load_model(folder / "model.keras")
    result("loaded", again.predict(x, verbose=0).tolist())


@pytest.mark.timeout(180)
def test_two_workers_train_as_one_process_does(tmp_path: Path):
    first, second = run_workers(
        _train, 2, devices=2, environment={"FOLDER": str(tmp_path), "KERAS_BACKEND": "jax"}
    )
    assert first.results == second.results
    assert "Epoch 1/2" in first.stdout and "saving model" in first.stdout
    assert "Epoch" not in second.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.csv", "model.keras"]
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 3
    strategy = rx.distribute.MirroredStrategy([f"CPU:{index}" for index in range(4)])
    with strategy.scope():
        model = _model()
    np.random.seed(0)
    x, y = _data()
    history = model.fit(x, y, batch_size=8, epochs=2, verbose=0).history
    found = first.results
    for name, values in history.items():
        np.testing.assert_allclose(found["history"][name], values, rtol=1e-5)
    predicted = model.predict(x, verbose=0)
    np.testing.assert_allclose(found["predicted"], predicted, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(found["loaded"], found["predicted"])
    expected = model.evaluate(x, y, batch_size=8, verbose=0)
    np.testing.assert_allclose([*found["evaluated"], found["arrays"]], [expected] * 3, rtol=1e-5)
