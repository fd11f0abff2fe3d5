"""`rx.Optimizer` over any strategy: what plain optax does with the summed gradients."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from tests.replicas import by_replica, context, few_replicas, mirrored, parts_of, several_replicas

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(24, 4)).astype(np.float32)
LABELS = RNG.normal(size=(24, 2)).astype(np.float32)
START = [RNG.normal(size=(4, 2)).astype(np.float32), np.zeros(2, np.float32)]

TRANSFORMATIONS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: optax.sgd(0.1),
    "momentum": lambda: optax.sgd(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: optax.adam(0.05),
    "adamw": lambda: optax.adamw(0.05, weight_decay=0.1),
    "clip_by_global_norm": lambda: optax.chain(optax.clip_by_global_norm(0.1), optax.adam(0.05)),
    "schedule": lambda: optax.adam(optax.exponential_decay(0.1, 2, 0.5)),
    "multi_steps": lambda: optax.MultiSteps(optax.adam(0.05), every_k_schedule=2),
    "inject_hyperparams": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=0.05),
    "masked": lambda: optax.masked(optax.adam(0.05), [True, False]),
    "multi_transform": lambda: optax.multi_transform(
        {"fast": optax.sgd(0.3), "slow": optax.adam(0.01)}, ["fast", "slow"]
    ),
    "add_noise": lambda: optax.chain(optax.add_noise(0.01, 0.5, 0), optax.sgd(0.1)),
    "adafactor": lambda: optax.adafactor(0.05, min_dim_size_to_factor=2),
    "apply_if_finite": lambda: optax.apply_if_finite(optax.adam(0.05), 2),
    "freeze": lambda: optax.chain(optax.sgd(0.1), optax.set_to_zero()),
}


def loss_of(w: Any, b: Any, x: Any, y: Any) -> Any:
    return jnp.sum(jnp.square(jnp.tanh(x @ w + b) - y), axis=-1)


@jax.jit
@jax.grad
def gradients_of(params: Any) -> Any:
    return jnp.sum(loss_of(params[0], params[1], INPUTS, LABELS)) / 24


def plain(transformation: Any, steps: int) -> tuple[list[Any], Any]:
    """What optax does on one device with the whole batch."""
    params: Any = [jnp.asarray(each) for each in START]
    state = transformation.init(params)
    for _ in range(steps):
        gradients = gradients_of(params)
        updates, state = transformation.update(gradients, state, params)
        params = optax.apply_updates(params, updates)
    return params, state


class Task:
    """A small model with its optimizer under a strategy, and a step over its share of the batch."""

    def __init__(self, strategy: Any, transformation: Any):
        self.strategy = strategy
        with strategy.scope():
            self.variables = [rx.Variable(each) for each in START]
            self.optimizer = rx.Optimizer(transformation)
        count = strategy.num_replicas_in_sync
        # Uneven shares: each cut is one row later than an even one.
        cuts = [0, *(24 * index // count + 1 for index in range(1, count)), 24]
        self.x = by_replica(strategy, lambda i: jnp.asarray(INPUTS[cuts[i] : cuts[i + 1]]))
        self.y = by_replica(strategy, lambda i: jnp.asarray(LABELS[cuts[i] : cuts[i + 1]]))

    def step(self, x: Any, y: Any) -> Any:
        w, b = self.variables

        def loss() -> Any:
            losses = loss_of(w.value(), b.value(), x, y)
            return rx.nn.compute_average_loss(losses, global_batch_size=24)

        value, gradients = rx.value_and_grad(loss, self.variables, compile=True)
        self.optimizer.apply_gradients(zip(gradients, self.variables, strict=True))
        return value

    def train(self, executor: Any, steps: int) -> None:
        step = executor.step(self.strategy, self.step)
        for _ in range(steps):
            step(self.x, self.y)

    def check(self, expected: list[Any]) -> None:
        for variable, value in zip(self.variables, expected, strict=True):
            for part in parts_of(self.strategy, variable):
                np.testing.assert_allclose(part, value, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_equals_plain_optax(name: str, executor: Any):
    task = Task(mirrored(2), TRANSFORMATIONS[name]())
    task.train(executor, 4)
    expected, state = plain(TRANSFORMATIONS[name](), 4)
    task.check(expected)
    assert task.optimizer.iterations.numpy() == 4
    leaves = [leaf for leaf in jax.tree.leaves(state) if hasattr(leaf, "shape")]
    assert len(task.optimizer.variables) == 1 + len(leaves)
    for variable, leaf in zip(task.optimizer.variables[1:], leaves, strict=True):
        assert variable.shape == leaf.shape and not variable.trainable
        if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            np.testing.assert_allclose(variable.numpy(), leaf, rtol=1e-3, atol=1e-5)


@functools.cache
def plain_under_every_strategy(name: str) -> list[Any]:
    return plain(TRANSFORMATIONS[name](), 3)[0]


@pytest.mark.parametrize("name", ["momentum", "clip_by_global_norm", "inject_hyperparams"])
def test_equals_plain_optax_under_every_strategy(name: str, strategy: Any, executor: Any):
    task = Task(strategy, TRANSFORMATIONS[name]())
    task.train(executor, 3)
    task.check(plain_under_every_strategy(name))


@few_replicas
@pytest.mark.parametrize("where", ["scope", "run", "lazily", "outside"])
def test_state_may_be_built_anywhere(strategy: Any, executor: Any, where: str):
    task = Task(strategy, optax.adam(0.05))
    if where == "scope":
        with strategy.scope():
            task.optimizer.build(task.variables)
    elif where == "outside":
        task.optimizer.build(task.variables)
    elif where == "run":
        executor.run(strategy, lambda: task.optimizer.build(task.variables))
    assert len(task.optimizer.variables) == (1 if where == "lazily" else 6)
    task.train(executor, 2)
    task.check(plain(optax.adam(0.05), 2)[0])
    for variable in task.optimizer.variables:
        assert strategy.extended.variable_created_in_scope(variable)
        assert variable._placement == task.variables[0]._placement
    before = task.optimizer.variables
    task.optimizer.build(task.variables)
    assert all(a is b for a, b in zip(before, task.optimizer.variables, strict=True))


def test_a_missing_gradient_leaves_variable_and_slots_untouched(strategy: Any, executor: Any):
    with strategy.scope():
        v, w = rx.Variable([1.0, 2.0]), rx.Variable([3.0])
        optimizer = rx.Optimizer(optax.adamw(0.1, weight_decay=0.5))
        optimizer.build([v, w])

    def both(x: Any) -> None:
        optimizer.apply_gradients([(x * jnp.ones(2), v), (x * jnp.ones(1), w)])

    def one(x: Any) -> None:
        optimizer.apply_gradients([(x * jnp.ones(2), v), (None, w)])

    executor.run(strategy, both, (jnp.float32(1),))
    kept = [w.numpy(), *(s.numpy() for s in optimizer.variables if s.shape == (1,))]
    moved = [v.numpy(), *(s.numpy() for s in optimizer.variables if s.shape == (2,))]
    executor.run(strategy, one, (jnp.float32(1),))
    for before, after in zip(
        kept, [w, *(s for s in optimizer.variables if s.shape == (1,))], strict=True
    ):
        np.testing.assert_array_equal(before, after.numpy())
    for before, after in zip(
        moved, [v, *(s for s in optimizer.variables if s.shape == (2,))], strict=True
    ):
        assert not np.allclose(before, after.numpy())
    assert optimizer.iterations.numpy() == 2


def test_a_subset_of_the_variables(strategy: Any, executor: Any):
    with strategy.scope():
        v, w = rx.Variable(1.0), rx.Variable(1.0)
        optimizer = rx.Optimizer(optax.sgd(0.5))
        optimizer.build([v, w])
    executor.run(strategy, lambda: optimizer.apply_gradients([(jnp.float32(1), w)]))
    assert (v.numpy(), w.numpy()) == (1.0, 1 - 0.5 * strategy.num_replicas_in_sync)


def test_frozen_variables_stay(strategy: Any, executor: Any):
    with strategy.scope():
        w = rx.Variable(1.0)
        frozen = rx.Variable(2.0, trainable=False)
        optimizer = rx.Optimizer(optax.adamw(0.1, weight_decay=0.1))

    def step() -> None:
        _, gradients = rx.value_and_grad(lambda: w * frozen, [w, frozen])
        optimizer.apply_gradients(zip(gradients, [w, frozen], strict=True))

    run = executor.step(strategy, step)
    for _ in range(3):
        run()
    assert frozen.numpy() == 2.0 and w.numpy() < 1.0


def test_no_gradient_at_all_is_an_error(strategy: Any):
    with strategy.scope():
        w = rx.Variable(1.0)
        optimizer = rx.Optimizer(optax.sgd(0.1))
    with pytest.raises(ValueError, match="No gradients provided"):
        strategy.run(lambda: optimizer.apply_gradients([(None, w)]))
    assert w.numpy() == 1.0


def test_cross_replica_gradients(strategy: Any):
    count = strategy.num_replicas_in_sync
    with strategy.scope():
        w = rx.Variable([1.0, 1.0])
        optimizer = rx.Optimizer(optax.sgd(0.1))
        optimizer.apply_gradients([(jnp.array([1.0, 2.0]), w)])
        np.testing.assert_allclose(w.numpy(), [0.9, 0.8], rtol=1e-6)
        per_replica = by_replica(strategy, lambda index: jnp.array([1.0, index]))
        optimizer.apply_gradients([(per_replica, w)])
        np.testing.assert_allclose(
            w.numpy(), [0.9 - 0.1 * count, 0.8 - 0.1 * sum(range(count))], rtol=1e-5
        )
        w.assign([0.0, 0.0])
        mirrored_gradient = strategy.extended.broadcast_to(jnp.ones(2), w)
        optimizer.apply_gradients([(mirrored_gradient, w)])
        np.testing.assert_allclose(w.numpy(), [-0.1, -0.1], rtol=1e-6)
    optimizer.apply_gradients([(jnp.ones(2), w)])  # outside of the scope
    np.testing.assert_allclose(w.numpy(), [-0.2, -0.2], rtol=1e-6)


def test_gradients_that_are_summed_already(strategy: Any, executor: Any):
    with strategy.scope():
        w = rx.Variable(1.0)
        optimizer = rx.Optimizer(optax.sgd(0.1))

    def step(x: Any) -> None:
        total = context().all_reduce("SUM", x)
        optimizer.apply_gradients([(total, w)], skip_aggregation=True)

    x = by_replica(strategy, lambda index: jnp.float32(index + 1))
    executor.run(strategy, step, (x,))
    total = sum(range(1, strategy.num_replicas_in_sync + 1))
    np.testing.assert_allclose(w.numpy(), 1 - 0.1 * total, rtol=1e-6)


def test_a_constraint_is_kept(strategy: Any, executor: Any):
    with strategy.scope():
        w = rx.Variable([0.05, 1.0], constraint=lambda x: jnp.maximum(x, 0.0))
        optimizer = rx.Optimizer(optax.sgd(0.1))
    executor.run(strategy, lambda: optimizer.apply_gradients([(jnp.ones(2), w)]))
    expected = max(1 - 0.1 * strategy.num_replicas_in_sync, 0)
    np.testing.assert_allclose(w.numpy(), [0.0, expected], atol=1e-6)


def test_the_learning_rate_can_be_read_and_set(strategy: Any, executor: Any):
    with strategy.scope():
        w = rx.Variable(1.0)
        optimizer = rx.Optimizer(optax.inject_hyperparams(optax.sgd)(learning_rate=0.5))
        optimizer.build([w])
    count = strategy.num_replicas_in_sync
    assert optimizer.learning_rate == 0.5
    executor.run(strategy, lambda: optimizer.apply_gradients([(jnp.float32(1), w)]))
    optimizer.learning_rate = 0.25
    executor.run(strategy, lambda: optimizer.apply_gradients([(jnp.float32(1), w)]))
    np.testing.assert_allclose(w.numpy(), 1 - 0.75 * count, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "complex64"])
def test_other_dtypes_keep_theirs(dtype: str, strategy: Any, executor: Any):
    with strategy.scope():
        w = rx.Variable(jnp.ones(2, dtype))
        optimizer = rx.Optimizer(optax.sgd(0.25, momentum=0.5))
    gradient = jnp.full(2, 0.5, dtype)
    step = executor.step(strategy, lambda g: optimizer.apply_gradients([(g, w)]))
    for _ in range(2):
        step(gradient)
    assert w.dtype == jnp.dtype(dtype)
    count = strategy.num_replicas_in_sync
    expected = 1 - 0.25 * 0.5 * count * 2.5
    np.testing.assert_allclose(np.asarray(w.numpy(), complex), [expected] * 2, rtol=2e-2)
    assert {s.dtype for s in optimizer.variables[1:]} == {jnp.dtype(dtype)}


def test_x64(strategy: Any, executor: Any):
    with jax.enable_x64(True):
        with strategy.scope():
            w = rx.Variable(np.float64(1) / 3)
            optimizer = rx.Optimizer(optax.adam(0.1))
        executor.run(strategy, lambda: optimizer.apply_gradients([(jnp.float64(1e-3), w)]))
        assert w.dtype == np.float64
        gradient = 1e-3 * strategy.num_replicas_in_sync
        state = optax.adam(0.1).init(np.float64(1) / 3)
        update, _ = optax.adam(0.1).update(np.float64(gradient), state)
        assert w.numpy() == pytest.approx(1 / 3 + float(np.asarray(update)), abs=1e-14)


def test_variables_without_items(strategy: Any, executor: Any):
    with strategy.scope():
        empty, w = rx.Variable(jnp.zeros((0, 2))), rx.Variable(1.0)
        optimizer = rx.Optimizer(optax.adam(0.1))

    def step() -> None:
        gradients = rx.grad(lambda: jnp.sum(empty.value()) + w * 2.0, [empty, w])
        optimizer.apply_gradients(zip(gradients, [empty, w], strict=True))

    executor.run(strategy, step)
    assert empty.shape == (0, 2) and w.numpy() == pytest.approx(0.9)


@several_replicas
def test_one_update_program_for_all_steps(strategy: Any):
    traces = []

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        traces.append(1)
        return jax.tree.map(lambda g: -0.1 * g, updates), state

    transformation = optax.GradientTransformation(lambda params: (), update)
    with strategy.scope():
        w = rx.Variable([1.0, 2.0])
        optimizer = rx.Optimizer(transformation)
    for number in range(5):
        x = by_replica(strategy, lambda index, n=number: jnp.ones(2) * index * n)
        strategy.run(lambda x: optimizer.apply_gradients([(x, w)]), args=(x,))
    assert len(traces) == 1


@several_replicas
def test_replicas_with_gradients_for_different_variables(strategy: Any):
    with strategy.scope():
        v, w = rx.Variable(1.0), rx.Variable(1.0)
        optimizer = rx.Optimizer(optax.sgd(0.1))
        optimizer.build([v, w])

    def step() -> None:
        chosen = v if context().replica_id_in_sync_group else w
        optimizer.apply_gradients([(jnp.float32(1), chosen)])

    with pytest.raises((ValueError, RuntimeError)):
        strategy.run(step)

    def some_none() -> None:
        gradient = jnp.float32(1) if context().replica_id_in_sync_group else None
        optimizer.apply_gradients([(gradient, v), (jnp.float32(1), w)])

    with pytest.raises(ValueError, match="None on others"):
        strategy.run(some_none)
    assert (v.numpy(), w.numpy()) == (1.0, 1.0)


def test_two_optimizers_for_two_sets(strategy: Any, executor: Any):
    with strategy.scope():
        generator, critic = rx.Variable(1.0), rx.Variable(2.0)
        first, second = rx.Optimizer(optax.sgd(0.1)), rx.Optimizer(optax.sgd(0.2))

    def step() -> None:
        first.apply_gradients([(rx.grad(lambda: generator * critic, [generator])[0], generator)])
        second.apply_gradients([(rx.grad(lambda: -generator * critic, [critic])[0], critic)])

    executor.run(strategy, step)
    count = strategy.num_replicas_in_sync
    moved = 1 - 0.1 * 2 * count
    np.testing.assert_allclose(generator.numpy(), moved, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(critic.numpy(), 2 + 0.2 * moved * count, rtol=1e-6)


def test_apply_of_structures(strategy: Any, executor: Any):
    with strategy.scope():
        variables = {"w": rx.Variable(1.0), "layers": [rx.Variable(2.0)]}
        optimizer = rx.Optimizer(optax.sgd(0.1))

    def step() -> None:
        gradients = rx.grad(lambda: variables["w"] * variables["layers"][0], variables)
        optimizer.apply(gradients, variables)

    executor.run(strategy, step)
    count = strategy.num_replicas_in_sync
    np.testing.assert_allclose(variables["w"].numpy(), 1 - 0.2 * count, atol=1e-6)
    np.testing.assert_allclose(variables["layers"][0].numpy(), 2 - 0.1 * count, atol=1e-6)


def test_nothing_to_apply_is_nothing_to_do(strategy: Any, executor: Any):
    with strategy.scope():
        optimizer = rx.Optimizer(optax.sgd(0.1))
    executor.run(strategy, lambda: optimizer.apply_gradients([]))
    assert optimizer.iterations.numpy() == 0
    used_up = zip([1.0], [rx.Variable(1.0)], strict=True)
    list(used_up)
    with pytest.raises(ValueError, match="no variables to optimize"):
        optimizer.apply_gradients(used_up)


@several_replicas
def test_an_optimizer_that_is_made_in_the_replica_function(strategy: Any, executor: Any):
    with strategy.scope():
        w = rx.Variable(1.0)

    def step() -> None:
        optimizer = rx.Optimizer(optax.sgd(0.5))
        for _ in range(2):
            optimizer.apply_gradients([(jnp.float32(1.0), w)])

    executor.run(strategy, step)
    np.testing.assert_allclose(w.numpy(), 1 - strategy.num_replicas_in_sync)
