"""Losses, weights, masks and metrics of Keras models: of all rows, whatever the replicas have."""

from typing import Any

import numpy as np
import pytest

from tests.integrations.keras_programs import (
    LABELS,
    X,
    Y,
    classifier,
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

WEIGHTS = np.linspace(0, 2, len(X)).astype(np.float32)
TOKENS = np.array([[1, 2, 3, 0], [4, 0, 0, 0], [0, 0, 0, 0], [5, 1, 0, 0], [2, 3, 4, 5]] * 3)[:14]
TOKENS = TOKENS.astype(np.int32)
TAGS = np.stack([TOKENS, TOKENS[::-1]], axis=-1).astype(np.float32)


@pytest.mark.parametrize("weights", [{"sample_weight": WEIGHTS}, {"class_weight": {1: 3.0}}])
def test_weights_of_rows(weights: dict[str, Any]):
    def make() -> Any:
        return classifier(metrics=["accuracy"], weighted_metrics=["accuracy"])

    def program(model: Any) -> Any:
        found = fitted(model, X, LABELS, validation_data=(X, LABELS, WEIGHTS), **weights)
        return found, model.evaluate(X, LABELS, 5, 0, WEIGHTS)

    same_as_on_one_device(make, program)


@pytest.mark.parametrize("reduction", ["sum", "mean_with_sample_weight"])
def test_reductions(reduction: str):
    def make() -> Any:
        optimizer = keras.optimizers.SGD(0.01)
        return mlp(optimizer=optimizer, loss=keras.losses.MeanSquaredError(reduction))

    def program(model: Any) -> Any:
        return fitted(model), fitted(model, sample_weight=WEIGHTS)

    same_as_on_one_device(make, program)


@pytest.mark.parametrize(
    ("reduction", "weighted"),
    [
        ("sum_over_batch_size", False),
        ("sum_over_batch_size", True),
        ("mean_with_sample_weight", True),
        ("mean_with_sample_weight", "by row"),
        ("sum", False),
    ],
)
def test_masked_steps_do_not_count(reduction: str, weighted: bool | str):
    def make() -> Any:
        loss = keras.losses.MeanSquaredError(reduction)
        model = keras.Sequential([layers.Embedding(6, 2, mask_zero=True)])
        return ready(model, loss=loss, metrics=["mae"], weighted_metrics=["mse"])

    def program(model: Any) -> Any:
        weights = np.outer(WEIGHTS, [1, 2, 3, 4]) if weighted else None
        weights = WEIGHTS[:, None] if weighted == "by row" else weights
        return fitted(model, TOKENS, TAGS, sample_weight=weights, epochs=1)

    same_as_on_one_device(make, program)


def test_masks_reach_recurrent_layers_and_pooling():
    def make() -> Any:
        inputs = keras.Input((4,), dtype="int32")
        words = layers.Embedding(6, 3, mask_zero=True)(inputs)
        read = layers.LSTM(2)(words)
        mean = layers.GlobalAveragePooling1D()(words)
        return ready(keras.Model(inputs, layers.Dense(1)(layers.Concatenate()([read, mean]))))

    def program(model: Any) -> Any:
        return fitted(model, TOKENS, Y), model.predict(TOKENS, batch_size=5, verbose=0)

    same_as_on_one_device(make, program)


class Penalised(layers.Layer):
    """Adds the mean square of what passes to the loss."""

    def call(self, x: Any) -> Any:
        self.add_loss(0.1 * ops.mean(ops.square(x)))
        return x


def test_regularizers_and_added_losses():
    def make() -> Any:
        regularized = layers.Dense(
            *(3, "tanh"),
            kernel_regularizer="l2",
            activity_regularizer="l1",
            bias_regularizer="l1l2",
        )
        return ready(
            keras.Sequential([keras.Input((4,)), regularized, Penalised(), layers.Dense(1)]),
            metrics=["mse"],
        )

    def program(model: Any) -> Any:
        return fitted(model, validation_data=(X, Y))

    same_as_on_one_device(make, program)


def test_a_loss_is_not_taken_for_an_older_one_of_another_layer():
    """Layers know their losses by `id`, which an object may have from one that is gone."""
    first, second = Penalised(), Penalised()
    x = ops.ones((1, 2))

    def added() -> int:
        with keras.StatelessScope(collect_losses=True) as scope:
            first(x)
            known_before = {id(loss) for loss in scope.losses}
            if "_loss_ids" in second.__dict__:  # as if a loss of long ago had had this id
                second.__dict__["_loss_ids"] |= known_before
            second(x)
            return len(scope.losses)

    assert [added() for _ in range(3)] == [2, 2, 2]


@pytest.mark.parametrize("eagerly", [True, False])
def test_added_losses_stay_with_their_replica_where_a_layer_waits_for_others(eagerly: bool):
    def make() -> Any:
        normal = layers.BatchNormalization(synchronized=True)
        stack = [keras.Input((4,)), layers.Dense(3), Penalised(), normal, layers.Dense(1)]
        return ready(keras.Sequential(stack), run_eagerly=eagerly)

    same_as_on_one_device(make, lambda model: fitted(model, validation_data=(X, Y)), mirrored(2))


def test_several_losses_on_several_outputs():
    def make() -> Any:
        inputs = keras.Input((4,))
        outputs = [layers.Dense(1, name="one")(inputs), layers.Dense(2, name="two")(inputs)]
        losses = [keras.losses.Huber(), keras.losses.MeanAbsoluteError("sum")]
        return ready(keras.Model(inputs, outputs), loss=losses, loss_weights=[0.5, 0.01])

    same_as_on_one_device(make, lambda model: fitted(model, X, [Y, np.hstack([Y, -Y])]))


class Largest(keras.metrics.Metric):
    """Counts rows and those whose prediction is above a half."""

    def __init__(self, name: str = "largest"):
        super().__init__(name=name)
        self.above = self.add_weight(shape=(), initializer="zeros", name="above")
        self.rows = self.add_weight(shape=(), initializer="zeros", name="rows")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.above.assign_add(ops.sum(ops.cast(y_pred > 0.5, "float32")))
        self.rows.assign(self.rows + ops.shape(y_pred)[0])

    def result(self) -> Any:
        return {"above": self.above / self.rows, "rows": self.rows + 0.0}


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64")  # OneHotMeanIoU does
def test_metrics_are_of_all_rows():
    targets = np.eye(3, dtype=np.float32)[LABELS]

    def agreement(y_true: Any, y_pred: Any) -> Any:
        return ops.mean(y_true * y_pred, axis=-1)

    def make() -> Any:
        metrics = [
            *("accuracy", agreement, Largest()),
            keras.metrics.AUC(num_thresholds=11, name="auc"),
            keras.metrics.F1Score("macro", name="f1"),
            keras.metrics.OneHotMeanIoU(3, name="iou"),
            keras.metrics.R2Score(name="r2"),
            keras.metrics.TopKCategoricalAccuracy(2, name="top"),
        ]
        return classifier(loss="categorical_crossentropy", metrics=metrics)

    def program(model: Any) -> Any:
        found = fitted(model, X, targets)
        found["evaluation"] = model.evaluate(X, targets, batch_size=8, return_dict=True, verbose=0)
        # Between the calls, each metric can be asked as well.
        found["asked"] = {m.name: m.result() for m in model.metrics[1].metrics}
        assert found["evaluation"]["rows"] == 14
        return found

    same_as_on_one_device(make, program)


@pytest.mark.parametrize("eagerly", [True, False])
def test_losses_of_layers_stay_with_their_replica_where_a_loss_waits_for_others(eagerly: bool):
    """A masked loss asks all replicas for a count; the regularizer's is to be found after that."""

    def make() -> Any:
        embedding = layers.Embedding(6, 2, mask_zero=True, embeddings_regularizer="l2")
        hidden = layers.Dense(2, activity_regularizer="l1")
        return ready(keras.Sequential([embedding, hidden]), run_eagerly=eagerly)

    def program(model: Any) -> Any:
        return fitted(model, TOKENS, TAGS, epochs=1)

    strategy = mirrored(2)
    expected = program(seeded(make))
    found = program(seeded(make, strategy))
    # Regularizers of activities are means over rows already; masked rows count there.
    same(found, expected, 1e-5)
