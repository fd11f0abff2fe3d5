"""What does not go together gets a clear message."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import replicax as rx
from tests.integrations.keras_programs import X, Y, keras, layers, mlp, ready, seeded
from tests.replicas import mirrored
from tests.scripts import run_python
from tests.under_test import Executor


def fit(model: Any) -> None:
    model.fit(X, Y, verbose=0)


def network(*more: Any) -> Any:
    return keras.Sequential([keras.Input((4,)), *more, layers.Dense(1)])


def with_optimizer_from_outside(strategy: Any) -> Any:
    optimizer = keras.optimizers.Adam(0.1)
    with strategy.scope():
        return ready(network(), optimizer=optimizer)


def with_metric_from_outside(strategy: Any) -> Any:
    metric = keras.metrics.MeanAbsoluteError()
    with strategy.scope():
        return ready(network(), metrics=[metric])


def with_layer_from_outside(strategy: Any) -> Any:
    layer = layers.Dense(3, name="from_outside")
    layer.build((None, 4))
    with strategy.scope():
        return ready(network(layer))


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (with_optimizer_from_outside, "adam.*/iteration"),
        (with_metric_from_outside, "mean_absolute_error.*/total"),
        (with_layer_from_outside, "from_outside/kernel"),
    ],
)
def test_parts_that_were_made_outside_of_the_scope(make: Any, named: str):
    with pytest.raises(ValueError, match=named) as raised:
        fit(make(mirrored(2)))
    message = str(raised.value)
    assert "was made outside of any scope" in message
    assert "inside `with strategy.scope():`" in message


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict", "train_on_batch"])
def test_a_model_that_was_made_outside_is_not_trained_in_a_scope(method: str):
    model = mlp()
    arguments = (X,) if method == "predict" else (X, Y)
    with (
        mirrored(2).scope(),
        pytest.raises(RuntimeError, match=rf"{method}\(\).*was made outside of it.*Make the model"),
    ):
        getattr(model, method)(*arguments)


def test_a_model_of_another_strategy_in_a_scope():
    first, second = mirrored(2), mirrored(3)
    model = seeded(mlp, first)
    with second.scope(), pytest.raises(RuntimeError, match="MirroredStrategy on CPU:0, CPU:1>"):
        fit(model)


def test_a_layer_of_another_strategy_in_a_model():
    with mirrored(2).scope():
        layer = layers.Dense(3, name="of_the_first")
        layer.build((None, 4))
    with mirrored(3).scope():
        model = ready(network(layer))
    with pytest.raises(ValueError, match="of_the_first/kernel.*was made in the scope of <Mirrored"):
        fit(model)


def test_fit_in_a_replica():
    strategy = mirrored(2)
    model = seeded(mlp, strategy)
    for call in (model.fit, model.evaluate, model.predict):
        with pytest.raises(
            RuntimeError, match=rf"{call.__name__}\(\) .*in a replica.*outside of strategy.run"
        ):
            strategy.run(lambda call=call: call(X, Y if call is not model.predict else None))


def test_an_optimizer_from_outside_in_a_loop_of_ones_own():
    strategy = mirrored(2)
    outside = keras.optimizers.SGD(0.1)
    with strategy.scope():
        model, inside = network(), keras.optimizers.SGD(0.1)
    plain = network()

    def step(optimizer: Any, variables: Any) -> None:
        optimizer.apply([np.zeros(v.shape, np.float32) for v in variables], variables)

    with pytest.raises(
        ValueError, match="optimizer.*made outside of the strategy's scope.*inside `with"
    ):
        strategy.run(lambda: step(outside, model.trainable_variables))
    with pytest.raises(ValueError, match="(?s)made in the strategy's scope.*inside `with"):
        strategy.run(lambda: step(inside, plain.trainable_variables))


def test_a_metric_from_outside_in_a_loop_of_ones_own(executor: Executor):
    metric = keras.metrics.Mean(name="from_outside")
    with pytest.raises(ValueError, match="'from_outside/.*' (is read|was assigned) in .*inside"):
        executor.run(mirrored(2), lambda: metric.update_state(X))


def test_a_metric_from_outside_of_scopes_in_a_function():
    metric = keras.metrics.Mean()
    use = rx.function(lambda x: metric(x))
    np.testing.assert_allclose(use(X), X.mean(), rtol=1e-5)
    np.testing.assert_allclose(use(X + 1), X.mean() + 0.5, rtol=1e-5)
    metric.reset_state()
    np.testing.assert_allclose(use(X + 1), X.mean() + 1, rtol=1e-5)
    made_there = rx.function(lambda x: keras.metrics.Mean()(x))
    np.testing.assert_allclose(made_there(X), X.mean(), rtol=1e-5)


def test_a_layer_from_outside_of_scopes_draws_anew_in_a_function():
    layer = layers.Dropout(0.5)
    use = rx.function(lambda x: layer(x, training=True))
    assert not np.array_equal(use(X), use(X))


def test_fit_in_a_function_is_left_to_python():
    model, other = (seeded(mlp, mirrored(2)) for _ in range(2))

    def program(model: Any) -> Any:
        model.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
        return model.evaluate(X, Y, verbose=0)

    assert rx.function(lambda: program(model))() == program(other)


def test_losses_by_variables_of_a_plain_model():
    plain = network()
    with mirrored(1).scope(), pytest.raises(TypeError, match="differentiates with respect to rx"):
        rx.value_and_grad(lambda: plain(X).sum(), plain.trainable_variables)


def test_another_backend_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KERAS_BACKEND", "numpy")
    program = """
import warnings
import keras
import replicax as rx

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        pass
    with rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        pass
print(len(caught), caught[0].message)
"""
    printed = run_python(["-c", program], tmp_path)
    assert printed.startswith("1 Keras runs on its numpy backend")
    assert "KERAS_BACKEND=jax" in printed


def test_another_version_is_named(monkeypatch: pytest.MonkeyPatch):
    with mirrored(2).scope():
        pass  # so that the hooks are there already
    from replicax._src.integrations.keras import _hooks

    monkeypatch.setattr(keras, "__version__", "9.1.0")
    for name in [name for name in vars(_hooks) if name.startswith("_hook_")]:
        monkeypatch.setattr(_hooks, name, lambda: None)
    monkeypatch.setattr(_hooks._checkpoints, "install", lambda: None)
    with pytest.warns(UserWarning, match="tested with Keras .* not with 9.1.0.*pip install"):
        _hooks.install()


def test_a_model_that_was_made_outside_is_not_frozen_into_a_program():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
    ask = rx.function(lambda x: model(x))
    ask(X)
    model.set_weights([np.ones((4, 1)), np.zeros(1)])
    np.testing.assert_allclose(ask(X), X.sum(axis=1, keepdims=True), rtol=1e-5)


def test_keras_functions_without_state_work_in_a_program():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
    values = [variable.value for variable in model.trainable_variables]
    outputs, _ = rx.function(lambda values, x: model.stateless_call(values, [], x))(values, X)
    np.testing.assert_allclose(outputs, model(X), rtol=1e-5)


def test_gradients_of_a_model_that_was_made_outside():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
    with mirrored(2).scope():
        pass
    loss, gradients = rx.value_and_grad(lambda: model(X).sum(), model.trainable_variables)
    np.testing.assert_allclose(loss, np.sum(model(X)), rtol=1e-5)
    np.testing.assert_allclose(gradients[0][:, 0], X.sum(axis=0), rtol=1e-5)
