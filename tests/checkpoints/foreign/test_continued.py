"""Models that were trained in TensorFlow go on here, step by step as they do there."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import replicax as rx
from tests.checkpoints.foreign import models
from tests.checkpoints.foreign.continued import assert_goes_on, assert_values, recorded
from tests.checkpoints.foreign.recordings import RECORDED

keras: Any = pytest.importorskip("keras")


@pytest.fixture
def strategy() -> Iterator[rx.distribute.Strategy]:
    yield rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    keras.backend.clear_session()


@pytest.mark.parametrize("name", models.MODELS)
def test_a_checkpoint_of_tensorflow_goes_on(name: str, strategy: rx.distribute.Strategy):
    assert_goes_on(keras, RECORDED / name, name, strategy)


def test_a_model_that_is_built_later_goes_on(strategy: rx.distribute.Strategy):
    wanted = recorded(RECORDED / "transformer")
    with strategy.scope():
        model = models.MODELS["transformer"](keras)
    checkpoint = rx.train.Checkpoint(model=model, optimizer=model.optimizer)
    status = checkpoint.read(RECORDED / "transformer" / "saved")
    losses = models.train(keras, model, "transformer", 1)
    np.testing.assert_allclose(losses, wanted["losses"], rtol=1e-4)
    status.assert_consumed()


def test_a_file_of_keras_goes_on(strategy: rx.distribute.Strategy):
    wanted = recorded(RECORDED / "wide_and_deep")
    with strategy.scope():
        model = keras.models.load_model(RECORDED / "wide_and_deep" / "model.keras")
    losses = models.train(keras, model, "wide_and_deep", 1)
    np.testing.assert_allclose(losses, wanted["losses"], rtol=1e-4)
    assert_values(models.values_of(model), wanted, "after")


def test_weights_of_h5_files_go_into_models(strategy: rx.distribute.Strategy):
    with strategy.scope():
        whole = keras.models.load_model(RECORDED / "cnn" / "model.h5", compile=False)
        transformer = models.built(keras, "transformer")
    transformer.load_weights(RECORDED / "transformer" / "model.weights.h5")
    for name, model in {"cnn": whole, "transformer": transformer}.items():
        wanted = recorded(RECORDED / name)
        for index, value in enumerate(model.get_weights()):
            if name == "cnn" and index in (4, 5):
                continue  # moving averages: those of the first replica, when it was written
            np.testing.assert_array_equal(value, wanted[f"before/weights/{index}"])
