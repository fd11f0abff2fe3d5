"""A Keras model of a strategy as a program that loads without either."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import replicax as rx
from tests.exported import loaded

keras: Any = pytest.importorskip("keras")


def test_a_keras_model(tmp_path: Path):
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((3,)),
                keras.layers.Dense(4, activation="relu"),
                keras.layers.BatchNormalization(),
                keras.layers.Dropout(0.5),
                keras.layers.Dense(2),
            ]
        )
    predict = rx.function(lambda x: model(x, training=False))
    predict.export(tmp_path / "out", rx.TensorSpec([None, 3]))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(loaded(tmp_path / "out")(x), model.predict(x, verbose=0), rtol=1e-5)
    keras.backend.clear_session()
