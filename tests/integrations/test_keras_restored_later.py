"""Keras models that are restored before they are built, and built wherever they are first used."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import replicax as rx
from tests.integrations.keras_programs import X, Y, fitted, keras, layers, same
from tests.replicas import mirrored
from tests.under_test import Executor


def sequential() -> Any:
    return keras.Sequential([layers.Dense(3, "tanh"), layers.BatchNormalization(), layers.Dense(1)])


class Subclassed(keras.Model):
    """Makes some variables in its own `build`, and others when its layers are called."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = layers.Dense(3)
        self.last = keras.Sequential([layers.Dense(2), layers.Dense(1)])

    def build(self, input_shape: Any) -> None:
        self.scale = self.add_weight(shape=(input_shape[-1],), initializer="random_normal")

    def call(self, x: Any) -> Any:
        return self.last(self.inner(x * self.scale))


def call(model: Any) -> Any:
    return model(X)


def call_compiled(model: Any) -> Any:
    return rx.function(lambda x: model(x))(X)


def build_and_call(model: Any) -> Any:
    model.build(X.shape)
    return model(X)


def predict(model: Any) -> Any:
    return model.predict(X, verbose=0)


USES = (call, call_compiled, build_and_call, predict)


@pytest.fixture
def saved(strategy: Any, tmp_path: Path) -> Callable[[Callable[[], Any]], tuple[str, Any]]:
    """Saves what was made and called in the scope; returns where, and what it said."""

    def save(make: Callable[[], Any]) -> tuple[str, Any]:
        with strategy.scope():
            model = make()
            model(X)
        model.set_weights([0.25 + weight for weight in model.get_weights()])
        return rx.train.Checkpoint(model=model).write(tmp_path / "ckpt"), np.asarray(model(X))

    return save


PAIRS = [
    *(("mirrored_2", make, use) for make in (sequential, Subclassed) for use in USES),
    ("one_device", Subclassed, call_compiled),
    ("central_storage_2", sequential, call),
]


@pytest.mark.parametrize(("strategy", "make", "use"), PAIRS, indirect=["strategy"])
def test_first_used_outside_of_the_scope(
    strategy: Any, make: Callable[[], Any], use: Callable[[Any], Any], saved: Any
):
    path, wanted = saved(make)
    with strategy.scope():
        model = make()
    status = rx.train.Checkpoint(model=model).read(path)
    same(np.asarray(use(model)), wanted)
    same(np.asarray(model(X)), wanted)
    status.assert_consumed()
    assert all(v.__rx_variable__.distribute_strategy is strategy for v in model.variables)


@pytest.mark.parametrize("strategy", ["mirrored_2"], indirect=True)
def test_first_used_in_a_replica(strategy: Any, executor: Executor, saved: Any):
    path, wanted = saved(sequential)
    with strategy.scope():
        model = sequential()
    rx.train.Checkpoint(model=model).read(path)
    results = executor.run(strategy, lambda: model(X))
    for result in strategy.experimental_local_results(results):
        same(np.asarray(result), wanted)


@pytest.mark.parametrize("strategy", ["mirrored_2"], indirect=True)
def test_the_weights_of_one_that_was_only_built(strategy: Any, saved: Any):
    path, wanted = saved(sequential)
    with strategy.scope():
        model = sequential()
    rx.train.Checkpoint(model=model).read(path)
    model.build(X.shape)
    plain = sequential()
    plain.build(X.shape)
    plain.set_weights(model.get_weights())
    same(np.asarray(plain(X)), wanted)


def test_built_outside_and_trained():
    """Without a checkpoint, too, the variables are the strategy's."""

    def trained(outside: bool) -> Any:
        keras.utils.set_random_seed(0)
        strategy = mirrored(2)
        with strategy.scope():
            model = sequential()
            if not outside:
                model(X)
        model(X)
        model.compile("sgd", "mse")
        return fitted(model, X[:12], Y[:12], batch_size=4)

    same(trained(outside=True), trained(outside=False))


@pytest.mark.parametrize("strategy", ["mirrored_2"], indirect=True)
@pytest.mark.parametrize("use", USES)
def test_made_outside_of_any_scope(use: Callable[[Any], Any], saved: Any):
    path, wanted = saved(sequential)
    model, bystander = sequential(), sequential()
    status = rx.train.Checkpoint(model=model).read(path)
    bystander(X)  # is another one's
    for _ in range(2):
        same(np.asarray(use(model)), wanted)
    status.assert_consumed()
    with mirrored(2).scope():
        another = sequential()
    another(X)  # nor do its variables stand in the way of others


@pytest.mark.parametrize("strategy", ["mirrored_2"], indirect=True)
def test_names_that_count_up_in_wrappers(strategy: Any, tmp_path: Path):
    def make() -> Any:
        with strategy.scope():
            return keras.Sequential([layers.Bidirectional(layers.GRU(2)), layers.Dense(1)])

    def said(model: Any) -> np.ndarray:
        return np.asarray(rx.function(lambda x: model(x))(X.reshape(7, 2, 4)))

    model, again = make(), make()
    wanted = said(model)
    path = rx.train.Checkpoint(model=model).write(tmp_path / "ckpt")
    rx.train.Checkpoint(model=again).read(path)
    same(said(again), wanted)
