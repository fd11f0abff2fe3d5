"""Flax NNX: a module made in a scope trains under its strategy, eagerly and compiled."""

import gc
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import replicax as rx
from replicax._src.integrations import nnx as ours
from tests.replicas import by_replica, context, mirrored, parts_of, two_replicas
from tests.under_test import Executor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3)).astype(np.float32)
Y = np.sin(X.sum(axis=1, keepdims=True))


class Net(nnx.Module):
    """Layers with parameters, statistics and random numbers."""

    def __init__(self, rngs: nnx.Rngs, rate: float = 0.0, norm: bool = True):
        self.first = nnx.Linear(3, 8, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(8, momentum=0.5, rngs=rngs) if norm else None
        self.dropout = nnx.Dropout(rate, rngs=rngs)
        self.last = nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = self.first(x)
        x = x if self.norm is None else self.norm(x)
        return self.last(self.dropout(nnx.relu(x)))


def shares(strategy: Any) -> tuple[Any, Any]:
    count = strategy.num_replicas_in_sync
    return by_replica(strategy, lambda i: X[i::count]), by_replica(strategy, lambda i: Y[i::count])


def on_one_device(steps: int) -> tuple[list[float], Any]:
    """The script without a strategy."""
    model = Net(nnx.Rngs(0), norm=False)
    optimizer = nnx.Optimizer(model, optax.adam(0.05), wrt=nnx.Param)
    losses = []
    for _ in range(steps):
        loss, gradients = nnx.value_and_grad(lambda m: jnp.mean((m(X) - Y) ** 2))(model)
        optimizer.update(model, gradients)
        losses.append(float(loss))
    return losses, model


def test_what_an_optimizer_is_told_of_the_loss_is_of_all_replicas(executor: Executor):
    """`reduce_on_plateau` looks at `value`: replicas have shares of it, which add up."""

    def scales(strategy: Any, x: Any, y: Any) -> tuple[list[float], Any]:
        with strategy.scope():
            model = Net(nnx.Rngs(0), norm=False)
            transform = optax.chain(
                optax.sgd(0.3), optax.contrib.reduce_on_plateau(patience=1, factor=0.5, rtol=0.1)
            )
            optimizer = nnx.Optimizer(model, transform, wrt=nnx.Param)

        def step(x: Any, y: Any) -> None:
            def loss_fn(m: Any) -> Any:
                return rx.nn.compute_average_loss((m(x) - y)[:, 0] ** 2, global_batch_size=len(X))

            loss, gradients = nnx.value_and_grad(loss_fn)(model)
            optimizer.update(model, gradients, value=loss)

        found = []
        run = executor.step(strategy, step)
        for _ in range(8):
            run(x, y)
            found.append(float(optimizer.opt_state[1].scale[...]))
        return found, model

    alone = rx.distribute.OneDeviceStrategy("CPU:0")
    strategy = mirrored(2)
    expected, single = scales(alone, X, Y)
    found, model = scales(strategy, *shares(strategy))
    assert found == expected
    assert expected[-1] < 1
    np.testing.assert_allclose(
        model.last.kernel[...], np.asarray(single.last.kernel[...]), atol=1e-5
    )


def test_what_an_optimizer_cannot_know_of_all_replicas_is_refused():
    strategy = mirrored(2)
    with strategy.scope():
        model = Net(nnx.Rngs(0), norm=False)
        optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)

    def step(x: Any, y: Any) -> None:
        gradients = nnx.grad(lambda m: jnp.mean((m(x) - y) ** 2))(model)
        optimizer.update(model, gradients, value_fn=lambda: 1.0)

    with pytest.raises(ValueError, match="value_fn"):
        strategy.run(step, args=shares(strategy))


@pytest.mark.parametrize(
    ("strategy", "style"),
    [("mirrored_2", "rx"), ("mirrored_2", "nnx"), ("central_storage_2", "nnx")],
    indirect=["strategy"],
)
def test_trains_as_on_one_device(strategy: Any, executor: Executor, style: str):
    expected, plain = on_one_device(2)
    with strategy.scope():
        model = Net(nnx.Rngs(0), norm=False)
        optimizer: Any = rx.Optimizer(optax.adam(0.05))
        if style == "nnx":
            optimizer = nnx.Optimizer(model, optax.adam(0.05), wrt=nnx.Param)

    def loss_of(model: Any, x: Any, y: Any) -> Any:
        return jnp.sum((model(x) - y) ** 2) / len(X)

    def with_rx(model: Any, x: Any, y: Any) -> Any:
        params = nnx.state(model, nnx.Param)
        loss, gradients = rx.value_and_grad(lambda: loss_of(model, x, y), params)
        optimizer.apply(gradients, params)
        return loss

    def with_nnx(model: Any, x: Any, y: Any) -> Any:
        loss, gradients = nnx.value_and_grad(loss_of)(model, x, y)
        optimizer.update(model, gradients)
        return loss

    step = with_rx if style == "rx" else with_nnx
    losses = []
    run = executor.step(strategy, step)
    for _ in range(2):
        loss = run(model, *shares(strategy))
        losses.append(float(strategy.reduce("SUM", loss, axis=None)))
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for mine, theirs in zip(
        jax.tree.leaves(nnx.state(model, nnx.Param)), jax.tree.leaves(nnx.state(plain, nnx.Param))
    ):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)
    if style == "nnx":
        assert optimizer.step[...] == 2
    kernel: Any = model.first.kernel
    copies = parts_of(strategy, kernel.__rx_variable__)
    assert all((each == copies[0]).all() for each in copies)
    model.eval()  # usable as ever after all this
    np.testing.assert_allclose(model(X), plain(X), atol=1e-4)


@two_replicas
def test_statistics_are_each_replicas_own_and_averaged_outside(strategy: Any, executor: Executor):
    with strategy.scope():
        model = nnx.BatchNorm(3, momentum=0.0, rngs=nnx.Rngs(0))
    x, y = shares(strategy)
    executor.run(strategy, lambda x, y: model(x), (x, y))
    own = executor.run(strategy, lambda: model.mean[...])
    for index, mean in enumerate(parts_of(strategy, own)):
        np.testing.assert_allclose(mean, X[index::2].mean(axis=0), atol=1e-6)
    means = (X[0::2].mean(axis=0) + X[1::2].mean(axis=0)) / 2
    np.testing.assert_allclose(model.mean[...], means, atol=1e-6)


def test_statistics_in_a_loss_are_assigned_once(executor: Executor):
    strategy = mirrored()
    with strategy.scope():
        model = Net(nnx.Rngs(0))
    x, y = shares(strategy)

    def step(x: Any) -> None:
        rx.grad(lambda: jnp.sum(model(x)), nnx.state(model, nnx.Param))

    executor.run(strategy, step, (x,))
    hidden = [model.first(jnp.asarray(X[index::2])).mean(axis=0) for index in range(2)]
    assert model.norm is not None
    np.testing.assert_allclose(model.norm.mean[...], 0.5 * (hidden[0] + hidden[1]) / 2, atol=1e-5)


@two_replicas
def test_random_layers_differ_by_replica_and_are_reproducible(strategy: Any):
    def masks(compiled: bool) -> list[np.ndarray]:
        with strategy.scope():
            layer: Any = nnx.Dropout(0.5, rngs=nnx.Rngs(dropout=7))
        run = rx.function(strategy.run) if compiled else strategy.run
        found = [parts_of(strategy, run(lambda: layer(jnp.ones(64)))) for _ in range(2)]
        assert layer.rngs.count[...] == 2
        return [mask for step in found for mask in step]

    eager = masks(False)
    assert len(eager) == 4
    for i in range(4):
        for j in range(i):
            assert (eager[i] != eager[j]).any()
    for again in (masks(False), masks(True)):
        np.testing.assert_array_equal(again, eager)


def test_streams_that_are_split_in_a_step(executor: Executor):
    strategy = mirrored()
    with strategy.scope():
        rngs = nnx.Rngs(3)

    def step() -> Any:
        @nnx.split_rngs(splits=2)
        @nnx.vmap
        def draw(rngs: nnx.Rngs) -> Any:
            return jax.random.uniform(rngs())

        return draw(rngs)

    found = np.concatenate(parts_of(strategy, executor.run(strategy, step)))
    assert len(set(found.tolist())) == 4
    assert rngs.default.key.shape == () and rngs.default.count[...] == 1


def test_one_replica_draws_what_nnx_draws():
    strategy = rx.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        rngs = nnx.Rngs(5)
    found = strategy.run(lambda: rngs.normal((2,)))
    np.testing.assert_array_equal(found, nnx.Rngs(5).normal((2,)))


class Deep(nnx.Module):
    """Layers made by `nnx.vmap` and called by `nnx.scan`, and a counter."""

    def __init__(self, rngs: nnx.Rngs):
        @nnx.split_rngs(splits=3)
        @nnx.vmap
        def make(rngs: nnx.Rngs) -> Any:
            return nnx.Linear(4, 4, rngs=rngs)

        self.layers = make(rngs)
        self.calls = nnx.Variable(jnp.array(0))

    def __call__(self, x: Any) -> Any:
        self.calls[...] += 1

        @nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
        def forward(layer: Any, x: Any) -> Any:
            return jnp.tanh(layer(x))

        return forward(self.layers, x)


def test_transformations_of_nnx_inside(executor: Executor):
    strategy = mirrored()
    with strategy.scope():
        model = Deep(nnx.Rngs(0))
        optimizer = rx.Optimizer(optax.sgd(0.1))
    plain = Deep(nnx.Rngs(0))
    x = jnp.ones((2, 4))
    gradients = nnx.grad(lambda m: jnp.sum(m(x)))(plain)

    def step() -> None:
        params = nnx.state(model, nnx.Param)
        optimizer.apply(rx.grad(lambda: jnp.sum(model(x)) / 2, params), params)

    executor.run(strategy, step)
    expected = plain.layers.kernel[...] - 0.1 * gradients["layers"]["kernel"][...]
    np.testing.assert_allclose(model.layers.kernel[...], expected, atol=1e-5)
    assert model.calls[...] == 1
    nnx.jit(lambda m, x: m(x))(model, x)  # outside of the replicas as well
    assert model.calls[...] == 2


def test_metrics_add_up_over_replicas(executor: Executor):
    strategy = mirrored()
    with strategy.scope():
        metrics: Any = nnx.MultiMetric(
            loss=nnx.metrics.Average("loss"), hits=nnx.metrics.Accuracy()
        )

    def step(value: Any) -> None:
        logits, labels = jnp.eye(3)[jnp.array([0, 1])], jnp.array([0, 2], jnp.int32)
        metrics.update(loss=jnp.full(2, value), logits=logits, labels=labels)

    run = executor.step(strategy, step)
    for _ in range(2):
        run(by_replica(strategy, float))
    found = metrics.compute()
    assert (found["loss"], found["hits"]) == (0.5, 0.5)
    metrics.reset()
    assert metrics.loss.count[...] == 0
    with strategy.scope(), pytest.raises(NotImplementedError, match="Average"):
        nnx.metrics.Welford()


def test_a_checkpoint_of_a_module_from_outside_is_refused(tmp_path: Path):
    checkpoint = rx.train.Checkpoint(model=nnx.Linear(2, 3, rngs=nnx.Rngs(0)))
    with pytest.raises(ValueError, match=r"Param of Flax NNX, of shape \(2, 3\).*strategy.scope"):
        checkpoint.save(str(tmp_path / "at"))


def test_checkpoint_and_back(tmp_path: Path):
    strategy = mirrored()

    def made() -> tuple[Any, Any]:
        with strategy.scope():
            model = Net(nnx.Rngs(0), rate=0.5)
        return model, rx.train.Checkpoint(model=model)

    model, checkpoint = made()
    strategy.run(lambda x, y: model(x), shares(strategy))
    path = checkpoint.save(str(tmp_path / "at"))
    other, other_checkpoint = made()
    other_checkpoint.restore(path).assert_consumed()
    np.testing.assert_array_equal(other.norm.mean[...], model.norm.mean[...])
    assert other.dropout.rngs.count[...] == 1
    draws = [strategy.run(lambda m=m: m.dropout(jnp.ones(32))) for m in (model, other)]
    mine, theirs = (parts_of(strategy, each) for each in draws)
    np.testing.assert_array_equal(mine, theirs)


def test_names_and_layouts():
    layout = rx.distribute.StateLayout(rules={r"first/kernel": [1, 2]})
    strategy = rx.distribute.MirroredStrategy(
        [f"CPU:{i}" for i in range(4)], logical_devices_per_replica=2, state_layout=layout
    )
    with strategy.scope():
        model: Any = Net(nnx.Rngs(0))
        pair = nnx.Sequential(nnx.Linear(2, 2, rngs=nnx.Rngs(0)), nnx.relu)
    kernel: Any = model.first.kernel
    assert kernel.__rx_variable__.name == "first/kernel:0"
    assert kernel.__rx_variable__.layout.parts == (1, 2)
    assert pair.layers[0].kernel.__rx_variable__.name == "layers/0/kernel:0"
    assert kernel.__rx_variable__.trainable
    assert not model.norm.mean.__rx_variable__.trainable
    np.testing.assert_allclose(kernel[...], Net(nnx.Rngs(0)).first.kernel[...])


def test_what_nnx_copies_is_plain():
    strategy = mirrored()
    with strategy.scope():
        model: Any = Net(nnx.Rngs(0))
    clone: Any = nnx.clone(model)
    merged: Any = nnx.merge(*nnx.split(model), copy=True)
    for copy in (clone, merged, jax.tree.map(lambda x: x, model)):
        assert not hasattr(copy.first.kernel, "__rx_variable__")
        copy.first.kernel[...] = jnp.zeros((3, 8))
    assert np.any(model.first.kernel[...])
    nnx.update(model, nnx.state(clone))
    assert not np.any(model.first.kernel[...])
    assert hasattr(model.first.kernel, "__rx_variable__")
    halves = jax.tree.map(lambda x: x.astype(jnp.bfloat16), nnx.state(model, nnx.Param))
    nnx.update(model, halves)  # another dtype: another variable
    assert model.first.kernel.__rx_variable__.dtype == jnp.bfloat16


def test_modules_made_elsewhere_are_brought_in():
    made: Any = Net(nnx.Rngs(0))
    strategy = mirrored()
    with pytest.raises(TypeError, match=r"rx\.variables"):
        rx.grad(lambda: jnp.sum(made(X)), nnx.state(made, nnx.Param))
    with strategy.scope():
        assert rx.variables(made, name="net") is made
    assert made.first.kernel.__rx_variable__.name == "net/first/kernel:0"
    assert made.norm.mean.__rx_variable__.synchronization is rx.VariableSynchronization.ON_READ
    gradients = strategy.run(
        lambda x, y: rx.grad(lambda: jnp.sum(made(x)), nnx.state(made, nnx.Param)), shares(strategy)
    )
    assert parts_of(strategy, gradients["last"]["bias"])[0] == 6.0


def test_outside_of_a_scope_nothing_changes():
    with mirrored().scope():
        pass
    model: Any = Net(nnx.Rngs(0))
    assert not hasattr(model.first.kernel, "__rx_variable__")
    with pytest.raises(Exception, match="different trace level"):
        jax.jit(lambda: setattr(model, "other", 1))()
    with pytest.raises(Exception, match="different trace level"):
        jax.jit(lambda: model.first.kernel.set_value(jnp.zeros((3, 8))))()


def test_values_in_replicas_keep_their_shape(executor: Executor):
    strategy = mirrored()
    with strategy.scope():
        v = nnx.Variable(jnp.zeros(2))

    def step() -> None:
        v[...] = v[...] + context().replica_id_in_sync_group

    executor.run(strategy, step)
    np.testing.assert_allclose(v[...], [0.5, 0.5])
    with pytest.raises(ValueError, match="shape"):
        executor.run(strategy, lambda: v.set_value(jnp.zeros(3)))


def test_numbers_of_python_are_state_too():
    strategy = mirrored()
    with strategy.scope():
        count = nnx.Variable(0)
        text = nnx.Variable("as it is")
    strategy.run(lambda: count.set_value(count.get_value() + 1))
    assert count.get_value() == 1 and text.get_value() == "as it is"
    count.set_value(5)
    assert strategy.experimental_local_results(strategy.run(count.get_value)) == (5, 5)


def test_dropped_models_go():
    strategy = mirrored()
    with strategy.scope():
        model: Any = Net(nnx.Rngs(0))
    identity = id(model)
    assert ours._ours[identity] is model
    del model
    gc.collect()
    assert identity not in ours._ours
