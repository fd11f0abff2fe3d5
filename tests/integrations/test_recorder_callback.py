"""Steps of Keras's `fit` are recorded, looked at, and run again."""

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import replicax as rx
from tests.integrations.keras_programs import X, Y, keras, layers, mlp, ready, seeded
from tests.replicas import mirrored
from tests.scripts import run_python

TRAPS = rx.debug.Traps(finite=True)


def test_a_bad_row_ends_fit_and_the_model_goes_on(tmp_path: Path):
    model = seeded(mlp, mirrored(2))
    x = X.copy()
    x[8 + 4, 1] = np.nan  # of the second batch, whose six rows go three by three
    callback = rx.debug.recorder_callback(tmp_path, traps=TRAPS)
    with pytest.raises(rx.errors.TrappedStepError) as caught:
        model.fit(x, Y, batch_size=8, shuffle=False, verbose=0, callbacks=[callback])
    text, capsule, step = str(caught.value), str(caught.value.capsule), caught.value.step
    del caught  # with Keras's thread for callbacks
    gc.collect()
    assert step == 2
    assert "the gradient of " in text and " on replica 1 (given to the optimizer at test_" in text
    model.set_weights(seeded(mlp).get_weights())
    model.fit(X, Y, batch_size=8, verbose=0)  # which is recorded no more
    assert rx.debug.load(capsule).step == 2


def test_a_bad_step_is_skipped(tmp_path: Path):
    model = seeded(mlp, mirrored(2))
    x = X.copy()
    x[3] = np.nan
    callback = rx.debug.recorder_callback(tmp_path, traps=TRAPS, on_trap="skip")
    with pytest.warns(UserWarning, match="Step 1: .*discarded"):
        model.fit(x, Y, batch_size=8, shuffle=False, verbose=0, callbacks=[callback])
    assert all(np.isfinite(each).all() for each in model.get_weights())


def test_a_scaled_loss_may_overflow(tmp_path: Path):
    def make() -> Any:
        optimizer = keras.optimizers.SGD(0.1)
        return mlp(optimizer=keras.optimizers.LossScaleOptimizer(optimizer, 2.0**127))

    model = seeded(make, mirrored(2))
    callback = rx.debug.recorder_callback(tmp_path, traps=TRAPS)
    model.fit(X[:16], Y[:16], batch_size=8, verbose=0, callbacks=[callback])
    assert float(model.optimizer.dynamic_scale) < 2.0**127, "it has overflowed"


def test_models_that_cannot_be_recorded(tmp_path: Path):
    plain: Any = seeded(mlp)
    with pytest.raises(ValueError, match="outside of any scope.*strategy.scope"):
        plain.fit(X, Y, verbose=0, callbacks=[rx.debug.recorder_callback(tmp_path)])
    eager: Any = seeded(lambda: mlp(run_eagerly=True), mirrored(2))
    with pytest.raises(ValueError, match="Leave out run_eagerly"):
        eager.fit(X, Y, verbose=0, callbacks=[rx.debug.recorder_callback(tmp_path)])
    with pytest.raises(RuntimeError, match="now it does not"):
        _ = rx.debug.recorder_callback(tmp_path).recorder


PROGRAM = """
import sys
import keras
import numpy as np
import replicax as rx

strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
keras.utils.set_random_seed(0)
with strategy.scope():
    model = keras.Sequential([
        keras.Input((6, 6, 1)), keras.layers.Conv2D(2, 3), keras.layers.BatchNormalization(),
        keras.layers.Flatten(), keras.layers.Dropout(0.2), keras.layers.Dense(3),
    ])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss, metrics=["accuracy"])
random = np.random.default_rng(0)
x = random.normal(size=(24, 6, 6, 1)).astype(np.float32)
y = (np.arange(24) % 3).astype(np.int32)
data = rx.data.Dataset.from_tensor_slices((x, y)).shuffle(24, seed=1).batch(8)
callback = rx.debug.recorder_callback(sys.argv[1])

class Save(keras.callbacks.Callback):
    def on_train_end(self, logs=None):
        callback.recorder.save(5)

class Slower(keras.callbacks.LearningRateScheduler):
    def __init__(self):
        super().__init__(lambda epoch: 0.01 / (1 + epoch))

model.fit(data, epochs=2, verbose=0, callbacks=[Save(), callback, Slower()])
"""


def test_a_step_of_a_cnn_again_has_the_same_bits(tmp_path: Path):
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    run_python([str(program), str(tmp_path / "r")], tmp_path, warm=True, keras=True)
    capsule = tmp_path / "r" / "steps" / "capsules" / "step-5"
    command = ["-m", "replicax", "replay", str(capsule), str(program), "--", str(tmp_path / "s")]
    printed = run_python(command, tmp_path, keras=True)
    assert "step 5, from a checkpoint of step 3" in printed
    assert printed.count("the recorded bits") == 2
    assert not (tmp_path / "s").exists()


def test_a_second_fit_goes_on_counting(tmp_path: Path):
    def make() -> Any:
        return ready(keras.Sequential([keras.Input((4,)), layers.Dense(1)]))

    model = seeded(make, mirrored(2))
    callback = rx.debug.recorder_callback(tmp_path)
    for _ in range(2):
        model.fit(X[:8], Y[:8], batch_size=4, verbose=0, callbacks=[callback])
    saved: list[str] = []

    class Save(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            saved.append(callback.recorder.save())

    model.fit(X[:4], Y[:4], batch_size=4, verbose=0, callbacks=[callback, Save()])
    capsule = rx.debug.load(saved[0])
    assert capsule.step == 5 and list(capsule.steps) == [5]
