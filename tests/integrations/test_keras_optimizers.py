"""Keras optimizers on replicas: one update from the gradients of all rows, as on one device."""

import contextlib
from typing import Any

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
    ready,
    same,
    same_as_on_one_device,
    seeded,
)
from tests.replicas import mirrored

optimizers = keras.optimizers

OPTIMIZERS: dict[str, Any] = {
    "clipnorm": lambda: optimizers.SGD(0.5, momentum=0.9, clipnorm=0.1),
    "global_clipnorm_adamw": lambda: optimizers.AdamW(0.1, global_clipnorm=0.1),
    "clipvalue_rmsprop": lambda: optimizers.RMSprop(0.1, clipvalue=0.01),
    "ema": lambda: optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=3),
    "accumulation": lambda: optimizers.Adam(0.1, gradient_accumulation_steps=2),
    "schedule": lambda: optimizers.SGD(optimizers.schedules.ExponentialDecay(0.2, 1, 0.5)),
    "muon": lambda: optimizers.Muon(0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_are_those_of_one_device(name: str):
    def program(model: Any) -> Any:
        found = fitted(model)
        found["optimizer"] = [np.asarray(v) for v in model.optimizer.variables]
        return found

    same_as_on_one_device(lambda: mlp(optimizer=OPTIMIZERS[name]()), program)


def test_constraints_hold():
    def make() -> Any:
        first = layers.Dense(3, "tanh", kernel_constraint=keras.constraints.MaxNorm(0.5))
        last = layers.Dense(1, kernel_constraint="non_neg")
        return ready(keras.Sequential([keras.Input((4,)), first, last]))

    found = same_as_on_one_device(make)
    assert np.linalg.norm(found["weights"][0], axis=0).max() < 0.501
    assert found["weights"][2].min() >= 0


def test_callbacks_change_the_learning_rate():
    def program(model: Any) -> Any:
        callbacks = [
            keras.callbacks.ReduceLROnPlateau("loss", factor=0.1, patience=1, min_delta=10.0),
            keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
        ]
        found = fitted(model, epochs=4, callbacks=callbacks, batch_size=14)
        found["rate"] = np.asarray(model.optimizer.learning_rate)
        return found

    found = same_as_on_one_device(mlp, program)
    assert found["history"]["learning_rate"][-1] < 0.1 * found["history"]["learning_rate"][0]


def test_the_learning_rate_can_be_set_in_between():
    def program(model: Any) -> Any:
        first = fitted(model, batch_size=14, epochs=1)
        model.optimizer.learning_rate = 0.01
        rate = model.optimizer.get_config()["learning_rate"]
        return first, fitted(model, batch_size=14, epochs=1), rate

    same_as_on_one_device(mlp, program, mirrored(2))


def mixed(policy: str, optimizer: Any = None) -> Any:
    model = keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(3, "tanh", dtype=policy),
            layers.Dense(1, dtype=policy),
            layers.Activation("linear", dtype="float32"),
        ]
    )
    return ready(model, optimizer=optimizer or optimizers.SGD(0.1), metrics=["mae"])


def test_bfloat16():
    # Half as many digits: a row's numbers are the same, sums of rows are rounded another time.
    found = same_as_on_one_device(lambda: mixed("mixed_bfloat16"), atol=1e-2)
    assert all(w.dtype == np.float32 for w in found["weights"])
    model = seeded(lambda: mixed("mixed_bfloat16"), mirrored(2))
    assert model.layers[0].compute_dtype == "bfloat16"
    assert model.layers[0].kernel.dtype == "float32"
    assert model.layers[0](X).dtype == jnp.bfloat16


def test_float16_with_a_scaled_loss():
    def make() -> Any:
        scaled = optimizers.LossScaleOptimizer(
            optimizers.SGD(0.1), initial_scale=2.0**40, dynamic_growth_steps=3
        )
        return mixed("mixed_float16", scaled)

    def program(model: Any) -> Any:
        fitted(model, epochs=20, batch_size=14)
        scales = [float(np.asarray(model.optimizer.dynamic_scale))]
        return {"scales": scales, "loss": model.evaluate(X, Y, verbose=0)}

    # The first steps overflow on every replica or on none: they are left out on all.
    found = same_as_on_one_device(make, program, atol=1e-2)
    assert 2.0**8 < found["scales"][0] < 2.0**30


def test_mixed_precision_makes_the_scaled_optimizer_in_the_scope():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = seeded(lambda: mlp(optimizer="sgd"), mirrored(2))
        assert isinstance(model.optimizer, optimizers.LossScaleOptimizer)
        found = fitted(model, epochs=1)
    finally:
        keras.config.set_dtype_policy(before)
    assert np.isfinite(found["history"]["loss"]).all()


@pytest.mark.parametrize("row", [0, 7], ids=["first", "second"])  # whose replica overflows
def test_one_replica_that_overflows_leaves_the_step_out_on_all(row: int):
    strategy = mirrored(2)

    def make() -> Any:
        return mixed("mixed_float16", optimizers.LossScaleOptimizer(optimizers.SGD(0.1)))

    model = seeded(make, strategy)
    start = model.get_weights()
    bad = X[:8].copy()
    bad[row] = 1e6  # more than a float16 can hold
    model.fit(bad, Y[:8], batch_size=8, verbose=0)
    same(model.get_weights(), start, atol=0)
    scale = model.optimizer.dynamic_scale
    assert float(np.asarray(scale)) == 2.0**14
    model.fit(X[:8], Y[:8], batch_size=8, verbose=0)
    assert np.any(model.get_weights()[0] != start[0])
    assert float(np.asarray(scale)) == 2.0**14
    for variable in (*model.trainable_variables, *model.optimizer.variables):
        one, other = strategy.experimental_local_results(variable.__rx_variable__)
        np.testing.assert_array_equal(one, other)


def test_an_update_outside_of_any_scope_is_made_once_for_all_replicas():
    strategy = mirrored(2)
    model = seeded(mlp, strategy)
    before = model.get_weights()
    ones = [np.ones_like(weight) for weight in before]
    with strategy.scope():
        optimizer = keras.optimizers.SGD(0.5)
    optimizer.apply(ones, model.trainable_variables)
    same(model.get_weights(), [weight - 0.5 for weight in before])
    for variable in model.trainable_variables:
        one, other = strategy.experimental_local_results(variable.__rx_variable__)
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    assert int(optimizer.iterations.value) == 1


def test_state_of_optimizers_is_the_same_on_all_replicas():
    model = seeded(lambda: mlp(optimizer="adam"), mirrored(3))
    fitted(model)
    kept = [variable.__rx_variable__ for variable in model.optimizer.variables]
    assert {each.synchronization for each in kept} <= {
        rx.VariableSynchronization.AUTO,
        rx.VariableSynchronization.ON_WRITE,
    }
    for each in kept:
        first, *others = model._made_in_strategy.experimental_local_results(each)
        for other in others:
            np.testing.assert_array_equal(other.numpy(), first.numpy())


@pytest.mark.parametrize("where", ["outside", "default", "one_device", "scope", "after_scope"])
@pytest.mark.parametrize("kind", ["accumulating", "scaled", "both"])
def test_updates_with_branches_outside_of_replicas(kind: str, where: str):
    """JAX cannot read variables in the branches that Keras takes there."""
    strategy = mirrored(2) if "scope" in where else rx.distribute.OneDeviceStrategy("CPU:1")
    scope = contextlib.nullcontext if where in ("outside", "default") else strategy.scope
    with scope():
        kernel = layers.Dense(1, kernel_initializer="ones", use_bias=False)
        kernel.build((None, 2))
        inner = optimizers.SGD(0.1, gradient_accumulation_steps=None if kind == "scaled" else 2)
        optimizer: Any = inner
        if kind != "accumulating":
            optimizer = optimizers.LossScaleOptimizer(inner, initial_scale=4.0)

    def step(extra: float) -> None:
        def loss() -> Any:
            return optimizer.scale_loss(jnp.sum(kernel(jnp.ones((1, 2)))))

        _, gradients = rx.value_and_grad(loss, kernel.trainable_variables)
        pairs = zip([g + extra for g in gradients], kernel.trainable_variables, strict=True)
        optimizer.apply_gradients(pairs)

    found = []
    for extra in (0.0, 0.0, np.inf, 0.0, 0.0) if kind != "accumulating" else (0.0, 0.0, 0.0):
        if where == "default":
            rx.distribute.get_strategy().run(step, args=(extra,))
        else:
            with strategy.scope() if where == "scope" else contextlib.nullcontext():
                step(extra)
        found.append(float(np.asarray(kernel.kernel)[0, 0]))
    expected = {
        "accumulating": [1.0, 0.9, 0.9],
        "scaled": [0.9, 0.8, 0.8, 0.7, 0.6],
        "both": [1.0, 0.9, 0.9, 0.9, 0.8],
    }
    np.testing.assert_allclose(found, expected[kind], rtol=1e-6)
