"""What `fit`, `evaluate` and `predict` of a Keras model take under a strategy."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
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
)
from tests.replicas import mirrored
from tests.scripts import run_python

WEIGHTS = np.linspace(0, 2, len(X)).astype(np.float32)


class Batches(keras.utils.PyDataset):
    """Eight rows at a time, with a smaller last batch."""

    def __len__(self) -> int:
        return math.ceil(len(X) / 8)

    def __getitem__(self, index: int) -> Any:
        rows = slice(index * 8, index * 8 + 8)
        return X[rows], Y[rows]


def generated() -> Iterator[Any]:
    for _ in range(2):
        yield from (Batches()[index] for index in range(2))


def slices(*arrays: Any) -> Any:
    return rx.data.Dataset.from_tensor_slices(arrays).batch(8)


def fitted_to(data: Any, strategy: Any, **arguments: Any) -> Any:
    model = seeded(mlp, strategy)
    return fitted(model, data, None, **{"batch_size": None, "shuffle": False, **arguments})


@pytest.fixture(scope="module")
def expected() -> Any:
    return fitted(seeded(mlp), shuffle=False)


KINDS: dict[str, Any] = {
    "py_dataset": lambda strategy: Batches(),
    "dataset": lambda strategy: slices(X, Y),
    "distributed": lambda strategy: strategy.experimental_distribute_dataset(slices(X, Y)),
    "from_function": lambda strategy: strategy.distribute_datasets_from_function(
        lambda context: rx.data.Dataset.from_tensor_slices((X, Y)).batch(
            context.get_per_replica_batch_size(8)
        )
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_objects_that_are_read_again_in_each_epoch(kind: str, expected: Any):
    strategy = mirrored(2)
    same(fitted_to(KINDS[kind](strategy), strategy), expected)


def test_generators_are_read_on(expected: Any):
    same(fitted_to(generated(), mirrored(4), steps_per_epoch=2), expected)


def test_jax_arrays(expected: Any):
    model = seeded(mlp, mirrored(2))
    same(fitted(model, jnp.asarray(X), jnp.asarray(Y), shuffle=False), expected)


def test_data_sets_that_repeat_and_steps_per_epoch():
    def program(model: Any) -> Any:
        found = fitted(
            *(model, X[:12], Y[:12]),
            **{"shuffle": False, "validation_data": (X, Y), "validation_batch_size": 4},
            **{"validation_steps": 2, "steps_per_epoch": 1, "epochs": 2, "batch_size": 12},
        )
        return found["history"]

    expected = program(seeded(mlp))
    data = rx.data.Dataset.from_tensor_slices((X[:12], Y[:12])).repeat().batch(12)
    strategy = mirrored(4)
    validation = rx.data.Dataset.from_tensor_slices((X, Y)).batch(4)
    for distribute in (lambda d: d, strategy.experimental_distribute_dataset):
        found = fitted_to(
            *(distribute(data), strategy),
            **{"steps_per_epoch": 1, "validation_steps": 2},
            validation_data=distribute(validation),
        )
        same(found["history"], expected)


def test_a_data_set_that_is_over_too_early_is_reported():
    model = seeded(mlp, mirrored(2))
    with pytest.warns(UserWarning, match="ran out of data"):
        history = model.fit(slices(X, Y), steps_per_epoch=5, epochs=1, verbose=0).history
    assert len(history["loss"]) == 1


def several_of_each() -> Any:
    first, second = keras.Input((4,), name="first"), keras.Input((4,), name="second")
    hidden = layers.Dense(3, "tanh")(layers.Add()([first, second]))
    outputs = {"class": layers.Dense(3, "softmax", name="class")(hidden)}
    outputs["size"] = layers.Dense(1, name="size")(hidden)
    model = keras.Model({"first": first, "second": second}, outputs)
    return ready(
        model,
        loss={"class": "sparse_categorical_crossentropy", "size": "mse"},
        loss_weights={"class": 0.3, "size": 2.0},
        metrics={"class": ["accuracy"], "size": ["mae", "mse"]},
    )


INPUTS = {"first": X, "second": X[::-1].copy()}
TARGETS = {"class": LABELS, "size": Y}


def test_dictionaries_and_several_outputs():
    def program(model: Any) -> Any:
        found = fitted(model, INPUTS, TARGETS, validation_data=(INPUTS, TARGETS), steps_per_epoch=2)
        found["evaluation"] = model.evaluate(INPUTS, TARGETS, return_dict=True, verbose=0)
        found["prediction"] = model.predict(INPUTS, batch_size=5, verbose=0)
        assert found["prediction"]["class"].shape == (14, 3)
        return found

    same_as_on_one_device(several_of_each, program)


def test_data_sets_of_dictionaries_with_weights():
    weights = {"class": WEIGHTS, "size": WEIGHTS[::-1].copy()}
    plain = seeded(several_of_each)
    expected = fitted(plain, INPUTS, TARGETS, sample_weight=weights, shuffle=False)
    model = seeded(several_of_each, mirrored(4))
    data = slices(INPUTS, TARGETS, weights)
    same(fitted(model, data, None, batch_size=None, shuffle=False), expected)
    assert model.predict(slices(INPUTS), verbose=0)["size"].shape == (14, 1)
    same(model.evaluate(data, verbose=0), plain.evaluate(INPUTS, TARGETS, 8, 0, weights))


@pytest.mark.parametrize("steps", [1, 4])
def test_validation_split_and_steps_per_execution(steps: int):
    def program(model: Any) -> Any:
        found = fitted(model, batch_size=2, validation_split=0.3)
        found["prediction"] = model.predict(X, batch_size=4, verbose=0)
        assert found["prediction"].shape == (14, 1)
        return found

    same_as_on_one_device(lambda: mlp(metrics=["mae"], steps_per_execution=steps), program)


def test_rows_come_back_in_order_and_each_once():
    strategy = mirrored(4)
    with strategy.scope():
        inputs = keras.Input((), dtype="int32")
        model = keras.Model(inputs, [layers.Identity()(inputs), layers.Identity()(inputs)])
    numbers = np.arange(23, dtype=np.int32)
    generator = ((numbers[i : i + 3],) for i in range(0, 23, 3))
    for data, steps in ((numbers, None), (slices(numbers), None), (generator, 8)):
        found = model.predict(data, steps=steps, verbose=0)
        for each in found:
            np.testing.assert_array_equal(each, numbers)


def test_class_weights_of_data_sets():
    strategy = mirrored(4)
    weights = {0: 1.0, 1: 3.0, 2: 0.5}
    expected = fitted(seeded(classifier), X, LABELS, class_weight=weights, shuffle=False)
    data = slices(X, LABELS)
    model = seeded(classifier, strategy)
    same(fitted(model, data, None, batch_size=None, class_weight=weights), expected)
    distributed = strategy.experimental_distribute_dataset(data)
    with pytest.raises(ValueError, match="Pass the rx.data.Dataset itself"):
        model.fit(distributed, class_weight=weights, verbose=0)


@pytest.mark.parametrize("argument", ["y", "sample_weight"])
def test_arguments_that_a_data_set_makes_pointless_are_refused(argument: str):
    model = seeded(mlp, mirrored(2))
    with pytest.raises(ValueError, match=f"`{argument}` should not be passed"):
        model.fit(slices(X, Y), **{argument: Y}, verbose=0)


def test_predict_builds_a_model():
    def make() -> Any:
        return keras.Sequential([layers.Dense(3, "tanh"), layers.Dropout(0.5), layers.Dense(1)])

    same_as_on_one_device(make, lambda model: model.predict(X, batch_size=8, verbose=0))


def test_models_made_outside_of_scopes_read_our_data_sets():
    def program(model: Any, data: Any, weights: Any) -> Any:
        fit = {"verbose": 0, "shuffle": False, "validation_data": data, "class_weight": weights}
        history = model.fit(data, epochs=2, **fit).history
        inputs = data.map(lambda x, y: x)
        return history, model.evaluate(data, verbose=0), model.predict(inputs, verbose=0)

    weights = {0: 1.0, 1: 3.0, 2: 0.5}
    data = slices(X, LABELS)
    found = program(seeded(classifier), data, weights)
    same(program(seeded(classifier, mirrored(2)), data, weights), found)
    assert found[2].shape == (14, 3)
    distributed = mirrored(2).experimental_distribute_dataset(data)
    with pytest.raises(ValueError, match="Pass the rx.data.Dataset itself"):
        seeded(classifier).fit(distributed, verbose=0)


def test_data_sets_are_read_where_no_scope_was_ever_entered(tmp_path: Path):
    (tmp_path / "program.py").write_text(
        """
import keras
import numpy as np
import replicax as rx
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
data = rx.data.Dataset.from_tensor_slices((np.ones((6, 4), "f4"), np.ones((6, 1), "f4"))).batch(4)
before = model.evaluate(data, verbose=0)
print(len(model.fit(data, verbose=0, epochs=2).history["loss"]))
print(model.evaluate(data, verbose=0) < before, model.predict(data, verbose=0).shape)
"""
    )
    found = run_python(["program.py"], tmp_path, warm=True, keras=True)
    assert found.split("\n")[:2] == ["2", "True (6, 1)"]
