"""Outside of strategies Keras does what it does without replicax, bit for bit."""

from pathlib import Path

import pytest

from tests.scripts import run_python

PROGRAM = """
import keras
import numpy as np
import replicax as rx
from keras import layers


def results():
    keras.utils.clear_session()
    keras.utils.set_random_seed(0)
    x = np.random.normal(size=(14, 4)).astype("float32")
    y = np.eye(3)[np.arange(14) % 3]
    inputs = keras.Input((4,))
    hidden = layers.Dense(5, "relu", kernel_regularizer="l2", activity_regularizer="l2")(inputs)
    hidden = layers.Dropout(0.5)(layers.BatchNormalization()(hidden))
    model = keras.Model(inputs, layers.Dense(3, "softmax")(hidden))
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.AdamW(0.1, clipnorm=1.0))
    model.compile(optimizer, "categorical_crossentropy", metrics=["accuracy", "auc"])
    history = model.fit(
        x, y, batch_size=8, epochs=2, verbose=0, validation_split=0.3, class_weight={1: 2.0}
    ).history
    mean = keras.metrics.Mean()
    mean.update_state(2.0)
    values = [
        *model.get_weights(),
        model.train_on_batch(x, y, sample_weight=np.arange(14.0)),
        model.evaluate(x, y, verbose=0),
        model.predict(x, verbose=0),
        mean.result(),
        *(np.asarray(variable) for variable in model.optimizer.variables),
    ]
    bits = [np.asarray(value).tobytes() for value in values]
    return [type(v).__mro__ for v in model.variables], history, bits


before = results()
with rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    other = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
assert type(other.variables[0]) is not type(keras.Variable(1.0))
assert results() == before
print("the same")
"""


def test_a_plain_program_gives_the_same_numbers_after_a_scope(tmp_path: Path):
    assert run_python(["-c", PROGRAM], tmp_path, warm=True, keras=True) == "the same\n"


LATE = """
import warnings
import replicax as rx

with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    with rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        import keras
print([str(warning.message) for warning in seen if "replicax" not in str(warning.category)])
with rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    print(type(keras.Variable(1.0)).__mro__[1].__name__)
"""


ALONE = """
import keras
import numpy as np
import optax
import replicax as rx


def made():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


model = made()
{first}
x = np.ones((8, 3), np.float32)
model.fit(x, x.sum(1), verbose=0)
path = rx.train.Checkpoint(model=model, optimizer=model.optimizer).save("ckpt")
again = made()
rx.train.Checkpoint(model=again, optimizer=again.optimizer).restore(path)
print(all((a == b).all() for a, b in zip(model.get_weights(), again.get_weights())))
"""
GRADIENTS = """
loss = lambda: keras.ops.mean(model(np.ones((8, 3), np.float32)) ** 2)
before, gradients = rx.value_and_grad(loss, model.trainable_variables)
model.optimizer.apply_gradients(zip(gradients, model.trainable_variables))
assert loss() < before
"""
UPDATES = """
kernel = model.trainable_variables[0]
before = model.get_weights()[0]
rx.Optimizer(optax.sgd(1.0)).apply_gradients([(np.ones((3, 1), np.float32), kernel)])
np.testing.assert_allclose(model.get_weights()[0], before - 1, rtol=1e-6)
"""
ASSIGNMENTS = """
rx.assign(model.trainable_variables, [np.full((3, 1), 5), np.full(1, 5)])
assert all((each == 5).all() for each in model.get_weights())
"""
FIRST = {
    "checkpoint": "",
    "gradients": GRADIENTS,
    "updates": UPDATES,
    "assignments": ASSIGNMENTS,
}


@pytest.mark.parametrize("first", FIRST.values(), ids=list(FIRST))
def test_a_plain_model_is_the_first_that_replicax_sees_of_keras(first: str, tmp_path: Path):
    program = ALONE.format(first=first)
    assert run_python(["-c", program], tmp_path, warm=True, keras=True) == "True\n"


def test_keras_that_is_imported_inside_of_a_scope_gets_a_warning(tmp_path: Path):
    first, second = run_python(["-c", LATE], tmp_path, warm=True).splitlines()
    assert "keras was imported inside of a strategy's scope" in first
    assert "Import it before" in first
    assert second == "Replicated"
