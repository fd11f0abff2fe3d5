"""Batches that the replicas do not divide: shared out as evenly as they can be, and exact."""

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.integrations.keras_programs import (
    LABELS,
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
from tests.replicas import mirrored

WEIGHTS = np.linspace(0.5, 2, len(X)).astype(np.float32)


def test_replicas_have_equally_many_rows_or_one_less_in_one_program():
    shares: list[int] = []

    class Counted(keras.Model):
        def call(self, x: Any) -> Any:
            shares.append(x.shape[0])
            return self.layers[-1](x)

    def make() -> Any:
        inputs = keras.Input((4,))
        return ready(Counted(inputs, layers.Dense(1)(inputs)))

    model = seeded(make, mirrored(4))
    model.train_on_batch(X, Y)
    shares.clear()
    model.fit(X, Y, batch_size=6, epochs=3, verbose=0)
    # 6 rows are 2, 2, 1, 1, and the last 2 are 1, 1, 0, 0: each size is traced once.
    assert shares == [2, 1, 1, 0]


def several_outputs(synchronized: bool = False) -> Any:
    inputs = keras.Input((4,))
    hidden = layers.Dense(4, "tanh", kernel_regularizer="l2", activity_regularizer="l1")(inputs)
    hidden = layers.BatchNormalization(synchronized=synchronized, momentum=0.5)(hidden)
    outputs = [layers.Dense(1, name="size")(hidden), layers.Dense(3, name="kind")(hidden)]
    kinds = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight"
    )
    return ready(
        keras.Model(inputs, outputs),
        loss=["mse", kinds],
        loss_weights=[0.5, 2.0],
        metrics=[["mae"], ["accuracy"]],
        weighted_metrics=[["mse"], []],
    )


@pytest.mark.parametrize("last", [1, 2, 3])
def test_a_last_batch_with_fewer_rows_than_replicas(last: int):
    """Losses of all kinds, weights of rows, and rows of all replicas normalized together."""
    rows = 8 + last

    def program(model: Any) -> Any:
        targets, weights = [Y[:rows], LABELS[:rows]], [WEIGHTS[:rows], WEIGHTS[:rows]]
        found = fitted(model, X[:rows], targets, sample_weight=weights, epochs=1)
        found["evaluation"] = model.evaluate(X[:rows], targets, 8, 0, weights, return_dict=True)
        found["prediction"] = model.predict(X[:rows], batch_size=8, verbose=0)
        return found

    expected = program(seeded(several_outputs))
    same(program(seeded(lambda: several_outputs(synchronized=True), mirrored(4))), expected)


def test_without_compiling_there_may_be_no_rows_either():
    def program(model: Any) -> Any:
        return fitted(model, X[:3], Y[:3], epochs=1), model.evaluate(X[:1], Y[:1], verbose=0)

    same_as_on_one_device(lambda: mlp(run_eagerly=True, metrics=["mae"]), program)


def mean_of_own(y: Any, predicted: Any) -> Any:
    return ops.mean(ops.square(y - predicted))  # one number; of no rows, it is none


def test_a_loss_that_is_no_number_without_rows():
    def program(model: Any) -> Any:
        return fitted(model, X[:3], Y[:3], epochs=2)

    same_as_on_one_device(lambda: mlp(loss=mean_of_own), program)


class Centre(layers.Layer):
    """Keeps the mean of what has passed."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = self.add_weight(shape=(), initializer="ones", trainable=False)

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.mean.assign(ops.mean(x))
        return x


def test_state_of_a_replica_without_rows_stays():
    def make() -> Any:
        normal = layers.BatchNormalization(momentum=0.5)
        return ready(keras.Sequential([keras.Input((4,)), normal, Centre(), layers.Dense(1)]))

    strategy = mirrored(2)
    model = seeded(make, strategy)
    model.train_on_batch(X[:1], Y[:1])
    normal, centre, _ = model.layers
    means = 0.5 * X[:1].mean(axis=0)  # of the first replica; the second one has zeros
    np.testing.assert_allclose(np.asarray(normal.moving_mean), means / 2, atol=1e-6)
    np.testing.assert_allclose(np.asarray(centre.mean), 0.5, atol=1e-6)
    assert np.isfinite(model.predict(X, verbose=0)).all()


@pytest.mark.parametrize("synchronized", [False, True])
def test_batch_normalisation_of_no_rows_changes_nothing(synchronized: bool):
    """Also in loops of one's own; where replicas normalize together, the others' rows count."""
    strategy = mirrored(2)
    with strategy.scope():
        layer = layers.BatchNormalization(momentum=0.5, synchronized=synchronized)
        layer.build((None, 4))
    batch = rx.distribute.PerReplica([jnp.asarray(X[:3]), jnp.zeros((0, 4))])

    def step(x: Any) -> Any:
        return layer(x, training=True)

    for run in (strategy.run, rx.function(lambda fn, args: strategy.run(fn, args))):
        layer.moving_mean.assign(np.full(4, 0.3, np.float32))
        run(step, (batch,))
        first, second = strategy.experimental_local_results(layer.moving_mean.__rx_variable__)
        learnt = 0.15 + 0.5 * X[:3].mean(axis=0)
        np.testing.assert_allclose(first, learnt, atol=1e-6)
        if synchronized:
            np.testing.assert_allclose(second, learnt, atol=1e-6)
        else:
            np.testing.assert_array_equal(second, np.full(4, 0.3, np.float32))


def test_dropout_draws_for_the_rows_that_there_are():
    def make() -> Any:
        return ready(keras.Sequential([keras.Input((4,)), layers.Dropout(0.5), layers.Dense(1)]))

    strategy = mirrored(4)
    first, second = (fitted(seeded(make, strategy), X[:10], Y[:10]) for _ in range(2))
    same(first, second, atol=0)
    assert np.isfinite(first["history"]["loss"]).all()


def test_arrays_with_other_numbers_of_rows_stay_together():
    """A generator may give them; which rows belong together is not known."""

    class Weighted(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = layers.Dense(1)

        def call(self, inputs: Any) -> Any:
            rows, shared = inputs
            return self.dense(rows) * ops.mean(shared)

    def batches() -> Iterator[Any]:
        for start in (0, 4):
            yield (X[start : start + 4], X[:3]), Y[start : start + 4]

    def program(model: Any) -> Any:
        found = model.fit(batches(), steps_per_epoch=2, shuffle=False, verbose=0).history
        return found, model.get_weights(), model.predict_on_batch((X[:4], X[:3]))

    same_as_on_one_device(lambda: ready(Weighted(), metrics=["mae"]), program, mirrored(2))


class Centred(layers.Layer):
    """Subtracts the mean over the rows of all replicas, which a user may find in several ways."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def call(self, x: Any) -> Any:
        context: Any = rx.distribute.get_replica_context()
        if context is None:  # the model is built
            return x
        if self.how == "gather":
            return x - jnp.mean(context.all_gather(x, axis=0), axis=0)
        total, rows = context.all_reduce("SUM", (jnp.sum(x, axis=0), jnp.float32(x.shape[0])))
        return x - total / rows


@pytest.mark.parametrize("how", ["reduce", "gather"])
@pytest.mark.parametrize("run_eagerly", [False, True])
def test_gradients_through_collectives_of_users_count_by_rows(how: str, run_eagerly: bool):
    def make() -> Any:
        inner = [layers.Dense(3, "tanh"), Centred(how), layers.Dense(1)]
        return ready(keras.Sequential([keras.Input((4,)), *inner]), run_eagerly=run_eagerly)

    # 7 rows are 2, 2, 2, 1 for four replicas.
    same_as_on_one_device(make, lambda model: fitted(model, X[:7], Y[:7], epochs=2))
