"""Steps that users write themselves, in the way of Keras on JAX and in that of TensorFlow."""

from typing import Any

import jax
import jax.numpy as jnp
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


class AsInTensorFlow(keras.Model):
    """The steps of Keras's guide to custom steps in TensorFlow, with `rx.value_and_grad`."""

    how = "compute_loss"

    def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
        if self.how == "compute_loss":
            return self.compute_loss(x=x, y=y, y_pred=y_pred)
        if self.how == "object":
            return keras.losses.MeanSquaredError()(y, y_pred)
        if self.how == "average":
            rows = jnp.mean(jnp.square(y - y_pred), axis=-1)
            return rx.nn.compute_average_loss(rows) + rx.nn.scale_regularization_loss(0.0)
        return jnp.mean(jnp.square(y - y_pred))

    def seen(self, loss: Any, y: Any, y_pred: Any) -> Any:
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss, sample_weight=y.shape[0])
            else:
                metric.update_state(y, y_pred)
        return {metric.name: metric.result() for metric in self.metrics}

    def train_step(self, data: Any) -> Any:
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)

        def loss_fn() -> Any:
            y_pred = self(x, training=True)
            return self.loss_of(x, y, y_pred), y_pred

        (loss, y_pred), gradients = rx.value_and_grad(
            loss_fn, self.trainable_variables, has_aux=True
        )
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return self.seen(loss, y, y_pred)

    def test_step(self, data: Any) -> Any:
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        y_pred = self(x, training=False)
        return self.seen(self.loss_of(x, y, y_pred), y, y_pred)

    def predict_step(self, data: Any) -> Any:
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        return self(x, training=False) * 2.0


def as_in_tensorflow(model: Any) -> Any:
    """Batches that the replicas divide, and others: 6, 6 and 2 rows."""
    found = fitted(model, batch_size=6, validation_data=(X, Y))
    return found, model.evaluate(X, Y, batch_size=6, verbose=0)


@pytest.fixture(scope="module")
def with_keras_steps() -> Any:
    return as_in_tensorflow(seeded(lambda: ready(network(keras.Model), metrics=["mae"])))


@pytest.mark.parametrize(
    ("how", "compiled"),
    [
        ("compute_loss", {}),
        ("object", {}),
        ("average", {}),
        ("mean", {}),
        ("compute_loss", {"run_eagerly": True}),
    ],
    ids=str,
)
def test_steps_as_tensorflow_has_them(how: str, compiled: dict[str, Any], with_keras_steps: Any):
    """However the loss is made, the numbers are those of Keras's own steps on one device."""

    def make() -> Any:
        model = network(AsInTensorFlow)
        model.how = how
        return ready(model, metrics=["mae"], **compiled)

    model = seeded(make, mirrored(4))
    same(as_in_tensorflow(model), with_keras_steps)
    same(model.predict(X, verbose=0), 2 * np.asarray(model(X)))


class OnTopOfKeras(keras.Model):
    """Steps that do what Keras's do, and something more."""

    def train_step(self, data: Any) -> Any:
        return {**super().train_step(data), "seven": 7.0}

    def test_step(self, data: Any) -> Any:
        return super().test_step(data)

    def predict_step(self, data: Any) -> Any:
        return super().predict_step(data) + 1.0


def test_steps_as_tensorflow_has_them_can_call_those_of_keras():
    def program(model: Any) -> Any:
        found = fitted(model)
        added = model.predict(X, verbose=0) - model(X)
        return found, model.evaluate(X, Y, batch_size=8, verbose=0), added

    found = program(seeded(lambda: ready(network(OnTopOfKeras), metrics=["mae"]), mirrored(2)))
    expected = program(seeded(lambda: ready(network(keras.Model), metrics=["mae"])))
    assert found[0]["history"].pop("seven") == [7.0, 7.0]
    same(found[:2], expected[:2])
    np.testing.assert_allclose(found[2], 1, atol=1e-5)


def test_replicas_overflow_together_in_a_step_as_tensorflow_has_it():
    class Scaled(AsInTensorFlow):
        def loss_of(self, x: Any, y: Any, y_pred: Any) -> Any:
            return self.optimizer.scale_loss(super().loss_of(x, y, y_pred))

    def make() -> Any:
        keras.config.set_dtype_policy("mixed_float16")
        try:
            model = network(Scaled)
            optimizer = keras.optimizers.LossScaleOptimizer(
                keras.optimizers.SGD(0.1), initial_scale=1024.0
            )
            return ready(model, optimizer=optimizer)
        finally:
            keras.config.set_dtype_policy("float32")

    strategy = mirrored(2)
    model = seeded(make, strategy)
    x = X[:8].copy()
    before = model.get_weights()
    x[7] = 3e4  # it overflows on the second replica alone
    model.train_on_batch(x, Y[:8] * 1e4)
    same(model.get_weights(), before, atol=0)
    assert float(np.asarray(model.optimizer.dynamic_scale)) == 512.0
    model.train_on_batch(X[:8], Y[:8])
    for variable in (*model.trainable_variables, model.optimizer.dynamic_scale):
        one, other = strategy.experimental_local_results(variable.__rx_variable__)
        np.testing.assert_array_equal(one, other)
    assert np.isfinite(np.concatenate([w.ravel() for w in model.get_weights()])).all()
    assert not np.array_equal(model.get_weights()[0], before[0])


def test_a_model_with_a_step_as_tensorflow_has_it_needs_no_call():
    class Inner(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])

        def train_step(self, data: Any) -> dict[str, Any]:
            variables = self.inner.trainable_variables
            loss, gradients = rx.value_and_grad(
                lambda: keras.ops.mean(keras.ops.square(self.inner(data))), variables
            )
            self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return {"own": loss}  # Keras has a metric called "loss"

    with rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = Inner()
        model.compile("sgd")
    x = np.ones((8, 3), np.float32)
    losses = model.fit(x, batch_size=4, epochs=2, verbose=0).history["own"]
    assert losses[1] < losses[0]
