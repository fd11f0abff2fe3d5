"""Keras layers with state or randomness on replicas, and models that are changed or copied."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import replicax as rx
from tests.integrations.keras_programs import (
    X,
    Y,
    fitted,
    keras,
    layers,
    mlp,
    ops,
    ready,
    same,
    same_as_on_one_device,
    seeded,
)
from tests.replicas import mirrored, parts_of


def with_dropout() -> Any:
    model = keras.Sequential([keras.Input((4,)), layers.Dropout(0.5), layers.Dense(1)])
    return ready(model)


class Spy(layers.Layer):
    """Keeps, for each replica, what passed through in training."""

    def __init__(self, rows: int):
        super().__init__()
        # Whole numbers have no mean: each replica keeps its own.
        self.seen = self.add_weight(
            shape=(rows, 6), initializer="zeros", trainable=False, dtype="int32"
        )

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.seen.assign(ops.cast(x, "int32"))
        return x


def test_dropout_differs_by_replica_and_from_step_to_step():
    strategy = mirrored(2)

    def make() -> Any:
        dropout = layers.Dropout(0.5)
        model = keras.Sequential([keras.Input((6,)), dropout, Spy(4), layers.Dense(1)])
        return ready(model)

    model = seeded(make, strategy)
    ones = np.ones((8, 6), np.float32)
    steps = []
    for _ in range(2):
        model.train_on_batch(ones, ones[:, :1])
        seen = model.layers[1].seen.__rx_variable__
        steps.append([np.asarray(part) for part in strategy.experimental_local_results(seen)])
    drawn = [part.tobytes() for step in steps for part in step]
    assert len(set(drawn)) == 4
    # Outside of training nothing is dropped.
    same(model.predict(ones, verbose=0), np.asarray(model(ones)))


def test_random_layers_are_reproducible():
    strategy = mirrored(2)
    first, second = (fitted(seeded(with_dropout, strategy)) for _ in range(2))
    same(first, second, atol=0)


class Noisy(layers.Layer):
    """A layer with a seed of its own, and a counter."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.seeds = keras.random.SeedGenerator(7)
        self.calls = self.add_weight(
            shape=(), dtype="int32", initializer="zeros", trainable=False, name="calls"
        )
        self.mean = self.add_weight(shape=(), initializer="zeros", trainable=False, name="mean")

    def call(self, x: Any, training: bool = False) -> Any:
        if not training:
            return x
        self.calls.assign_add(1)
        self.mean.assign(ops.mean(x))
        return x + 0.1 * keras.random.normal(ops.shape(x), seed=self.seeds)


def test_layers_with_state():
    strategy = mirrored(2)
    model = seeded(
        lambda: ready(keras.Sequential([keras.Input((4,)), Noisy(), layers.Dense(1)])), strategy
    )
    history = fitted(model, epochs=2, batch_size=7, shuffle=False)["history"]
    assert np.isfinite(history["loss"]).all()
    layer = model.layers[0]
    assert int(np.asarray(layer.calls)) == 4
    of_replicas = [X[7:11].mean(), X[11:].mean()]
    np.testing.assert_allclose(np.asarray(layer.mean), np.mean(of_replicas), atol=1e-6)
    assert np.asarray(layer.seeds.state)[1] > 0


def normalised(synchronized: bool = False) -> Any:
    norm = layers.BatchNormalization(synchronized=synchronized, momentum=0.5)
    return ready(keras.Sequential([keras.Input((4,)), norm, layers.Dense(1)]))


def test_moving_averages_are_those_of_all_replicas():
    strategy = mirrored(2)
    model = seeded(normalised, strategy)
    model.fit(X[:8], Y[:8], batch_size=8, shuffle=False, verbose=0)
    moving = model.layers[0]
    halves = [X[:4], X[4:8]]
    mean = 0.5 * np.mean([h.mean(axis=0) for h in halves], axis=0)
    variance = 0.5 + 0.5 * np.mean([h.var(axis=0) for h in halves], axis=0)
    np.testing.assert_allclose(np.asarray(moving.moving_mean), mean, atol=1e-5)
    np.testing.assert_allclose(np.asarray(moving.moving_variance), variance, atol=1e-5)
    plain = seeded(normalised)
    plain.set_weights(model.get_weights())
    # Every replica works with the mean once training is over.
    same(model.predict(X, verbose=0), plain.predict(X, verbose=0))
    same(model.evaluate(X, Y, verbose=0), plain.evaluate(X, Y, verbose=0))


def test_synchronized_batch_normalisation_is_that_of_one_device():
    def program(model: Any) -> Any:
        return fitted(model, validation_data=(X, Y))

    expected = program(seeded(normalised))
    found = program(seeded(lambda: normalised(synchronized=True), mirrored(4)))
    same(found, expected)


@pytest.mark.parametrize("rows", [5, 1])
def test_gradients_through_synchronized_batch_normalisation_of_uneven_shares(rows: int):
    def make(synchronized: bool = False) -> Any:
        norm = layers.BatchNormalization(synchronized=synchronized)
        before = layers.Dense(3, use_bias=False)
        model = keras.Sequential([keras.Input((4,)), before, norm, layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), loss="mse")
        return model

    def program(model: Any) -> Any:
        model.fit(X[:rows], Y[:rows], batch_size=rows, epochs=2, verbose=0, shuffle=False)
        return model.get_weights()

    same(program(seeded(lambda: make(True), mirrored(2))), program(seeded(make)))


def test_synchronized_batch_normalisation_counts_what_is_not_masked():
    def make(synchronized: bool = False) -> Any:
        norm = layers.BatchNormalization(synchronized=synchronized, momentum=0.5)
        embedding = layers.Embedding(6, 2, mask_zero=True)
        return ready(keras.Sequential([embedding, norm, layers.Dense(1)]))

    draw = np.random.default_rng(1)
    tokens = draw.integers(0, 6, (14, 3)).astype(np.int32)
    targets = draw.normal(size=(14, 3, 1)).astype(np.float32)
    expected = fitted(seeded(make), tokens, targets)
    same(fitted(seeded(lambda: make(True), mirrored(2)), tokens, targets), expected)


def test_what_is_synchronized_can_be_loaded_without_a_strategy(tmp_path: Path):
    model = seeded(lambda: normalised(synchronized=True), mirrored(2))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    same(fitted(loaded, shuffle=False), fitted(model, shuffle=False))


def test_fine_tuning():
    def program(model: Any) -> Any:
        body, head = model.layers
        body.trainable = False
        ready(model)
        first = fitted(model)
        assert not body.trainable_variables
        body.trainable = True
        ready(model, optimizer="adam")
        return first, fitted(model, batch_size=14)

    # The string: an optimizer that is made outside of the scope is not the strategy's.
    def make() -> Any:
        return mlp()

    strategy = mirrored(4)
    expected = program(seeded(make))
    with strategy.scope():
        found = program(seeded(make))
    same(found, expected)
    same(found[0]["weights"][0], seeded(make).get_weights()[0], atol=0)


def test_weights_come_from_other_models_and_models_are_cloned(tmp_path: Path):
    plain = seeded(mlp)
    fitted(plain)
    plain.save_weights(tmp_path / "plain.weights.h5")
    strategy = mirrored(2)
    loaded, copied = seeded(mlp, strategy), seeded(mlp, strategy)
    loaded.load_weights(tmp_path / "plain.weights.h5")
    copied.set_weights(plain.get_weights())
    with strategy.scope():
        cloned = ready(keras.models.clone_model(loaded))
        cloned.set_weights(loaded.get_weights())
    expected = fitted(plain, shuffle=False)
    for model in (loaded, copied, cloned):
        for variable in model.variables:
            assert variable.__rx_variable__.distribute_strategy is strategy
        same(fitted(model, shuffle=False), expected)
    back = keras.models.clone_model(loaded)
    back.set_weights(loaded.get_weights())
    same(back.predict(X, verbose=0), loaded.predict(X, verbose=0))


def test_models_in_models_and_shared_layers():
    def make() -> Any:
        shared = layers.Dense(3, "tanh")
        inner = keras.Sequential([keras.Input((4,)), shared])
        inputs = keras.Input((4,))
        both = layers.Add()([inner(inputs), shared(-inputs)])
        return ready(keras.Model(inputs, layers.Dense(1)(both)))

    same_as_on_one_device(make)


def test_attention():
    def make() -> Any:
        inputs = keras.Input((4,))
        x = layers.Reshape((2, 2))(inputs)
        x = layers.LayerNormalization()(layers.MultiHeadAttention(1, 2)(x, x))
        return ready(keras.Model(inputs, layers.Dense(1)(layers.Flatten()(x))))

    same_as_on_one_device(make, lambda model: fitted(model, batch_size=14), mirrored(2))


def test_adapted_preprocessing():
    def make() -> Any:
        norm = layers.Normalization()
        norm.adapt(X)
        return ready(keras.Sequential([keras.Input((4,)), norm, layers.Dense(1)]))

    same_as_on_one_device(make, strategy=mirrored(2))


def test_layers_work_alone_in_replicas():
    strategy = mirrored(2)
    with strategy.scope():
        layer = layers.Dense(2)
        layer.build((None, 4))
    found = strategy.run(layer, args=(X,))
    for part in strategy.experimental_local_results(found):
        np.testing.assert_allclose(part, X @ np.asarray(layer.kernel), atol=1e-5)
    assert isinstance(layer.kernel.__rx_variable__, rx.Variable)


@pytest.mark.parametrize(
    "make",
    [
        lambda: layers.LSTM(4, dropout=0.5),
        lambda: layers.GRU(4, recurrent_dropout=0.5),
        lambda: layers.Bidirectional(layers.SimpleRNN(3)),
        lambda: layers.RNN([layers.LSTMCell(3), layers.GRUCell(2)]),
    ],
    ids=["lstm", "gru", "bidirectional", "stacked"],
)
def test_recurrent_layers_learn_the_same_eagerly_and_compiled(make: Any):
    strategy = mirrored(2)
    rows = X[:8, :3, None]  # eagerly, each operation of each time step takes its time

    def trained(compile: Any) -> list[Any]:
        model = seeded(
            lambda: keras.Sequential([keras.Input((3, 1)), make(), layers.Dense(1)]), strategy
        )
        with strategy.scope():
            optimizer = keras.optimizers.SGD(0.1)

        def step(x: Any) -> Any:
            variables = model.trainable_variables
            loss, gradients = rx.value_and_grad(
                lambda: ops.mean(model(x, training=True) ** 2), variables
            )
            optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return loss, model(x)

        run = compile(lambda x: strategy.run(step, (x,)))
        data = rx.data.Dataset.from_tensor_slices(rows).batch(4)
        results = [
            parts_of(strategy, each)
            for x in strategy.experimental_distribute_dataset(data)
            for each in run(x)
        ]
        return [*results, np.asarray(model(rows)), *model.get_weights()]

    same(trained(lambda fn: fn), trained(rx.function))


def test_random_numbers_without_a_seed_in_one_strategy_after_the_other():
    for strategy in (mirrored(2), rx.distribute.MirroredStrategy(["CPU:2", "CPU:3"])):
        with strategy.scope():
            assert keras.random.normal((2,)).shape == (2,)
        one, other = parts_of(strategy, strategy.run(lambda: keras.random.normal((2,))))
        assert not np.array_equal(one, other)
    assert keras.random.normal((2,)).shape == (2,)
