"""Eager updates write into the optimizer's state, and no array that other code has changes."""

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from replicax._src.training._optimizer_state import OptimizerState
from replicax._src.variable import _program_state, mesh_of, own_storage
from tests.replicas import mirrored


class Model:
    """Two variables with Adam, and an eager step in which the second may be left out."""

    def __init__(self, strategy: Any, transformation: Any = None) -> None:
        self.strategy = strategy
        with strategy.scope():
            self.weights = [rx.Variable(jnp.arange(1.0, 4.0)), rx.Variable(jnp.ones(2))]
            self.optimizer = rx.Optimizer(transformation or optax.adam(0.1))
            self.optimizer.build(self.weights)

    def step(self, count: int = 2) -> None:
        weights = self.weights[:count]

        def replica_fn() -> None:
            gradients = rx.grad(lambda: sum(jnp.sum(w**2) for w in weights), weights)
            self.optimizer.apply_gradients(zip(gradients, weights))

        self.strategy.run(replica_fn)

    def numbers(self) -> list[Any]:
        return [each.numpy() for each in (*self.weights, *self.optimizer.variables)]


def test_arrays_that_were_read_stay_valid(strategy: Any):
    model = Model(strategy)
    kept: list[tuple[Any, Any]] = []
    for number in range(4):
        # A different one first each time, and what one replica has, too.
        for each in model.optimizer.variables[number % 3 :]:
            kept.append((each.read_value(), each.numpy()))
            kept += [(each.read_value(), each.numpy()) for each in getattr(each, "values", ())[:1]]
        model.step(2 - number % 2)
    for array, expected in kept:
        np.testing.assert_array_equal(array, expected)


def test_state_is_written_in_place():
    model = Model(mirrored(2))
    model.step()
    slots = model.optimizer.variables[1:]
    old = [own_storage(slot).assembled for slot in slots]
    model.step()
    assert all(array.is_deleted() for array in old)
    assert not any(own_storage(slot).assembled.is_deleted() for slot in slots)


def test_state_that_starts_from_one_array_twice(strategy: Any):
    def init(params: Any) -> Any:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return {"sum": zeros, "count": zeros}

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        total = jax.tree.map(jnp.add, state["sum"], updates)
        count = jax.tree.map(lambda each: each + 1, state["count"])
        return jax.tree.map(lambda a, b: -0.1 * a / b, total, count), {"sum": total, "count": count}

    model = Model(strategy, optax.GradientTransformation(init, update))
    for _ in range(3):
        model.step()
    slots = [each.numpy() for each in model.optimizer.variables[1:]]
    assert sorted(float(each[0]) == 3.0 for each in slots) == [False, False, True, True]


def test_an_update_that_fails_leaves_all_as_it_was(strategy: Any):
    fails = False
    adam = optax.adam(0.1)

    def update(updates: Any, state: Any, params: Any = None) -> Any:
        if fails:
            raise ArithmeticError("on purpose")
        return adam.update(updates, state, params)

    model = Model(strategy, optax.GradientTransformation(adam.init, update))
    model.step()
    before, fails = model.numbers(), True
    with pytest.raises(ArithmeticError):
        model.step(1)  # another program, which is traced
    for number, expected in zip(model.numbers(), before, strict=True):
        np.testing.assert_array_equal(number, expected)
    model.step()  # the first program is compiled
    assert model.optimizer.iterations.numpy() == 2


def test_an_update_that_fails_as_it_runs_says_what_is_lost(
    strategy: Any, monkeypatch: pytest.MonkeyPatch
):
    def out_of_memory(_: Any, gradients: Any, values: Any, slots: list[Any], count: Any) -> Any:
        for each in slots:
            each.delete()  # as JAX does with what it has taken
        raise RuntimeError("RESOURCE_EXHAUSTED")

    model = Model(strategy)
    model.step()
    monkeypatch.setattr(model.optimizer._built, "_program", out_of_memory)
    with pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED") as caught:
        model.step()
    (slot, *_) = model.optimizer.variables[1:]
    assert f"updating {slot.name}, " in " ".join(caught.value.__notes__)


def test_ctrl_c_after_the_program_ran_loses_nothing(strategy: Any, monkeypatch: pytest.MonkeyPatch):
    model, same = Model(strategy), Model(strategy)
    for each in (model, same):
        each.step()
    store, interrupted = OptimizerState._store, []

    def interrupted_once(self: Any, *args: Any) -> None:
        if not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt
        store(self, *args)

    monkeypatch.setattr(OptimizerState, "_store", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        model.step()
    assert interrupted
    same.step()
    for number, expected in zip(model.numbers(), same.numbers(), strict=True):
        np.testing.assert_array_equal(number, expected)


def test_an_update_of_another_thread_comes_in_between(monkeypatch: pytest.MonkeyPatch):
    layout = rx.distribute.StateLayout(over_replicas="optimizer", min_size=0)
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"], state_layout=layout)
    with strategy.scope():
        weights = rx.Variable(jnp.ones(4))
        optimizer = rx.Optimizer(optax.adam(0.1))
    gradient = jnp.ones(4)
    optimizer.apply_gradients([(gradient, weights)])
    mesh = mesh_of(weights)
    wait_for, others = mesh.wait_for, []

    def wait_after_another(inputs: Any) -> None:
        if not others:
            others.append(
                threading.Thread(target=optimizer.apply_gradients, args=([(gradient, weights)],))
            )
            others[0].start()
            others[0].join()
        wait_for(inputs)

    monkeypatch.setattr(mesh, "wait_for", wait_after_another)
    optimizer.apply_gradients([(gradient, weights)])
    assert others
    assert optimizer.iterations.numpy() == 3
    np.testing.assert_allclose(weights.numpy(), 0.7, rtol=1e-5)


def test_large_state_is_copied_in_portions(strategy: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_program_state, "_PORTION", 10)
    model = Model(strategy)
    kept = [(each.read_value(), each.numpy()) for each in model.optimizer.variables]
    model.step()
    for array, expected in kept:
        np.testing.assert_array_equal(array, expected)
    assert model.optimizer.variables[1].numpy().any() or model.optimizer.variables[2].numpy().any()
