"""Steps that users write themselves, in the way of Keras on JAX."""

from typing import Any

import jax
import numpy as np

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
    same_as_on_one_device,
    seeded,
)
from tests.replicas import mirrored


def network(cls: type) -> Any:
    inputs = keras.Input((4,))
    return cls(inputs, layers.Dense(1)(layers.Dense(3, "tanh")(inputs)))


def evaluated(model: Any) -> Any:
    found = fitted(model, validation_data=(X, Y), validation_batch_size=8)
    return found, model.evaluate(X, Y, batch_size=5, return_dict=True, verbose=0)


class WholeStep(keras.Model):
    """The step of Keras's guide to custom steps in JAX."""

    def loss_of(self, trainable: Any, others: Any, x: Any, y: Any, training: bool = False) -> Any:
        y_pred, others = self.stateless_call(trainable, others, x, training=training)
        return self.compute_loss(x, y, y_pred), (y_pred, others)

    def _metrics_after(self, variables: Any, loss: Any, y: Any, y_pred: Any) -> Any:
        new, logs = [], {}
        for metric in self.metrics:
            own = variables[len(new) : len(new) + len(metric.variables)]
            seen = (loss,) if metric.name == "loss" else (y, y_pred)
            own = metric.stateless_update_state(own, *seen)
            result = metric.stateless_result(own)
            logs.update(result if isinstance(result, dict) else {metric.name: result})
            new += own
        return logs, new

    def train_step(self, state: Any, data: Any) -> Any:
        trainable, others, optimizer, metrics = state
        x, y = data
        gradient = jax.value_and_grad(self.loss_of, has_aux=True)
        (loss, (y_pred, others)), grads = gradient(trainable, others, x, y, training=True)
        trainable, optimizer = self.optimizer.stateless_apply(optimizer, grads, trainable)
        logs, metrics = self._metrics_after(metrics, loss, y, y_pred)
        return logs, (trainable, others, optimizer, metrics)

    def test_step(self, state: Any, data: Any) -> Any:
        trainable, others, metrics = state
        x, y = data
        loss, (y_pred, others) = self.loss_of(trainable, others, x, y)
        logs, metrics = self._metrics_after(metrics, loss, y, y_pred)
        return logs, (trainable, others, metrics)


def test_a_step_of_ones_own():
    same_as_on_one_device(lambda: ready(network(WholeStep), metrics=["mae"]), evaluated)


class OwnLoss(keras.Model):
    """Loss and metrics computed by the model."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.seen = keras.metrics.Mean(name="seen")
        self.error = keras.metrics.MeanAbsoluteError(name="error")

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        loss = ops.mean(ops.abs(y - y_pred)) + 0.1 * ops.mean(ops.square(y_pred))
        self.seen.update_state(loss)
        return loss

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        self.error.update_state(y, y_pred)
        return {**self.get_metrics_result(), "twice": 2 * self.error.result()}

    @property
    def metrics(self) -> list[Any]:
        return [self._loss_tracker, self.seen, self.error]


def test_a_loss_and_metrics_of_ones_own():
    def program(model: Any) -> Any:
        found = fitted(model, batch_size=7)
        assert found["history"].keys() == {"loss", "seen", "error", "twice"}
        # What is not a metric's result is the mean of what the replicas said.
        del found["history"]["twice"]
        return found, model.evaluate(X, Y, batch_size=8, verbose=0, return_dict=True)["loss"]

    def make() -> Any:
        model = network(OwnLoss)
        model.compile(keras.optimizers.SGD(0.1))
        return model

    same_as_on_one_device(make, program)


class NoTargets(keras.Model):
    """A model with an `add_loss` only."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(1)

    def call(self, x: Any) -> Any:
        y = self.dense(x)
        self.add_loss(ops.mean(ops.square(y - ops.sum(x, axis=-1, keepdims=True))))
        return y


def test_models_without_targets():
    def make() -> Any:
        model = NoTargets()
        model.compile(keras.optimizers.SGD(0.1))
        return model

    def program(model: Any) -> Any:
        return fitted(model, X, None), model.evaluate(X, batch_size=8, verbose=0)

    same_as_on_one_device(make, program)


class OwnPrediction(keras.Model):
    """Predicts more than it is trained for."""

    def predict_step(self, state: Any, data: Any) -> Any:
        outputs, others = super().predict_step(state, data)
        return {"output": outputs, "rounded": ops.round(outputs)}, others


def test_a_prediction_of_ones_own():
    def program(model: Any) -> Any:
        found = model.predict(X, batch_size=4, verbose=0)
        assert found["rounded"].shape == (14, 1)
        return found

    same_as_on_one_device(lambda: ready(network(OwnPrediction)), program)


def test_a_step_can_use_the_replica_context():
    class Knowing(keras.Model):
        def train_step(self, state: Any, data: Any) -> Any:
            logs, state = super().train_step(state, data)
            context: Any = rx.distribute.get_replica_context()
            rows = context.all_reduce("SUM", ops.shape(data[0])[0])
            return {**logs, "rows": rows, "own": context.replica_id_in_sync_group}, state

    model = seeded(lambda: ready(network(Knowing)), mirrored(4))
    history = model.fit(X[:8], Y[:8], batch_size=8, verbose=0).history
    assert history["rows"] == [8] and history["own"] == [1.5]
    assert np.isfinite(history["loss"]).all()


def test_metrics_whose_state_is_not_a_sum():
    """The mean of what replicas have, or what the first one has: what their variable says."""

    class Rows(keras.metrics.Metric):
        def __init__(self, name: str, aggregation: str):
            super().__init__(name=name)
            self.rows = self.add_variable((), "zeros", aggregation=aggregation, name="rows")

        def update_state(self, y: Any, predicted: Any, sample_weight: Any = None) -> None:
            self.rows.assign_add(ops.cast(ops.shape(y)[0], "float32"))

        def result(self) -> Any:
            return self.rows.value

    def make() -> Any:
        return mlp(metrics=[Rows("first", "only_first_replica"), Rows("mean", "mean")])

    model = seeded(make, mirrored(4))
    history = model.fit(X[:8], Y[:8], batch_size=8, verbose=0).history
    assert history["first"] == history["mean"] == [2]
