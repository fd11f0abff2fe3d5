"""`rx.variables`, `rx.arrays` and `rx.assign`: trees of arrays as trees of variables, and back."""

import collections
import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from tests.replicas import by_replica, mirrored, two_replicas
from tests.under_test import Executor

Pair = collections.namedtuple("Pair", ["scale", "shift"])


@dataclasses.dataclass
class Layer:
    """Nobody registered it with JAX."""

    weight: Any
    activation: Any = jnp.tanh


def haiku_like() -> dict[str, Any]:
    return {
        "mlp/~/linear_0": {"w": np.full((2, 3), 0.5, np.float32), "b": np.zeros(3, np.float32)},
        "mlp/~/linear_1": {"w": jnp.full((3, 1), 0.25), "b": jnp.zeros(1)},
    }


def haiku_apply(params: Any, x: Any) -> Any:
    first, second = params["mlp/~/linear_0"], params["mlp/~/linear_1"]
    return jnp.tanh(x @ first["w"] + first["b"]) @ second["w"] + second["b"]


def test_names_are_paths_and_the_rest_stays():
    tree = {
        "layers": [Layer(jnp.ones(2)), Layer(np.zeros(3, np.int32))],
        "pair": Pair(jnp.ones(()), None),
        "name": "text",
        "rate": 0.5,
        "words": np.array(["a"]),
    }
    made = rx.variables(tree, name="model")
    first, second = made["layers"]
    assert first.weight.name == "model/layers/0/weight:0" and first.weight.trainable
    assert second.weight.name == "model/layers/1/weight:0" and not second.weight.trainable
    assert made["pair"].scale.name == "model/pair/scale:0"
    assert made["pair"].shift is None and made["name"] == "text" and made["rate"] == 0.5
    assert first.activation is jnp.tanh and made["words"] is tree["words"]
    assert isinstance(tree["layers"][0].weight, jax.Array)  # what was given is as before


def test_a_single_array_and_variables_are_trees_too():
    v = rx.variables(jnp.ones(2))
    assert isinstance(v, rx.Variable) and rx.variables([v])[0] is v
    assert isinstance(rx.arrays(v), jax.Array)


def test_options_of_all():
    strategy = mirrored()
    with strategy.scope():
        tree = {"mean": jnp.ones(2), "count": jnp.zeros((), jnp.int32)}
        made = rx.variables(tree, synchronization="ON_READ", aggregation="MEAN")
        frozen = rx.variables(tree, trainable=False)
    assert made["mean"].aggregation is rx.VariableAggregation.MEAN
    assert made["count"].aggregation is rx.VariableAggregation.ONLY_FIRST_REPLICA
    assert not made["mean"].trainable and not frozen["mean"].trainable
    assert made["mean"].synchronization is rx.VariableSynchronization.ON_READ


@pytest.mark.parametrize(
    "strategy", ["default", "one_device", "mirrored_3", "central_storage_2"], indirect=True
)
def test_values_come_back_inside_and_outside(strategy: Any, executor: Executor):
    with strategy.scope():
        params = rx.variables(haiku_like())

    def step() -> Any:
        inside = rx.arrays(params)
        assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(inside))
        return haiku_apply(inside, jnp.ones((4, 2))).sum()

    expected = haiku_apply(haiku_like(), jnp.ones((4, 2))).sum()
    for each in strategy.experimental_local_results(executor.run(strategy, step)):
        np.testing.assert_allclose(each, expected, rtol=1e-6)
    outside = rx.arrays(params)
    assert jax.tree.structure(outside) == jax.tree.structure(haiku_like())
    jax.tree.map(np.testing.assert_array_equal, outside, haiku_like())


@two_replicas
def test_training_is_that_of_optax_on_one_device(strategy: Any, executor: Executor):
    x = np.random.default_rng(0).normal(size=(24, 2)).astype(np.float32)
    y = np.sin(x[:, :1])
    # Masks and labels may have the structure of the parameters, or go by their paths.
    weights_only = {layer: {"w": True, "b": False} for layer in haiku_like()}

    def labels(params: Any) -> Any:
        return jax.tree_util.tree_map_with_path(
            lambda path, _: "fast" if "linear_1" in str(path) else "slow", params
        )

    transformation = optax.chain(
        optax.masked(optax.add_decayed_weights(0.1), weights_only),
        optax.multi_transform({"fast": optax.adam(0.1), "slow": optax.sgd(0.1)}, labels),
    )
    plain: Any = jax.tree.map(jnp.asarray, haiku_like())
    state = transformation.init(plain)
    for _ in range(2):
        gradients = jax.grad(lambda p: jnp.sum((haiku_apply(p, x) - y) ** 2) / 24)(plain)
        updates, state = transformation.update(gradients, state, plain)
        plain = optax.apply_updates(plain, updates)

    with strategy.scope():
        params = rx.variables(haiku_like())
        optimizer = rx.Optimizer(transformation)
    count = strategy.num_replicas_in_sync
    xs = by_replica(strategy, lambda i: x[i::count])
    ys = by_replica(strategy, lambda i: y[i::count])

    def step(x: Any, y: Any) -> None:
        def loss() -> Any:
            return jnp.sum((haiku_apply(rx.arrays(params), x) - y) ** 2) / 24

        _, gradients = rx.value_and_grad(loss, params)
        assert jax.tree.structure(gradients) == jax.tree.structure(haiku_like())
        optimizer.apply(gradients, params)

    run = executor.step(strategy, step)
    for _ in range(2):
        run(xs, ys)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), rx.arrays(params), plain)


@two_replicas
def test_assign_combines_by_aggregation(strategy: Any, executor: Executor):
    with strategy.scope():
        stats = rx.variables({"mean": jnp.zeros(2)}, synchronization="ON_READ", aggregation="MEAN")

    def step(value: Any) -> None:
        rx.assign(stats, {"mean": jnp.full(2, value)})

    executor.run(strategy, step, (by_replica(strategy, float),))
    expected = (strategy.num_replicas_in_sync - 1) / 2
    np.testing.assert_allclose(rx.arrays(stats)["mean"], [expected] * 2)
    with strategy.scope():
        rx.assign(stats, {"mean": jnp.ones(2)})
    np.testing.assert_allclose(stats["mean"], [1.0, 1.0])


def test_assign_refuses_other_structures():
    with pytest.raises(ValueError, match="same structure"):
        rx.assign(rx.variables([jnp.ones(2)]), [jnp.ones(2), jnp.ones(2)])


def test_what_cannot_be_learnt_has_no_gradient_and_no_state():
    model = rx.variables([Layer(jnp.ones(2)), Layer(jnp.arange(2)), {"name": "text", "none": None}])
    optimizer = rx.Optimizer(optax.adam(0.1))
    _, gradients = rx.value_and_grad(lambda: jnp.sum(model[0].weight ** 2), model)
    assert gradients[0].activation is None and gradients[1].weight is None
    assert gradients[2] == {"name": None, "none": None}
    optimizer.apply(gradients, model)
    optimizer.apply_gradients([(gradients, model)])
    assert optimizer.iterations.numpy() == 2
    np.testing.assert_allclose(model[0].weight, [0.8, 0.8], atol=1e-3)
    names = [variable.name for variable in optimizer.variables[1:]]
    assert sorted(name for name in names if name.startswith("0/weight")) == [
        "0/weight/mu:0",
        "0/weight/nu:0",
    ]
    assert len(optimizer._slots()) == 3  # a count, and mu and nu of the one that is learnt


def test_arrays_are_not_sources():
    v = rx.Variable(1.0)
    with pytest.raises(TypeError, match=r"rx\.variables\(tree\)"):
        rx.value_and_grad(lambda: v * 1.0, {"v": v, "w": jnp.ones(2)})
    with pytest.raises(TypeError, match="rx.Variables"):
        rx.value_and_grad(lambda: v * 1.0, [jnp.tanh, None])
    with pytest.raises(TypeError, match=r"rx\.variables\(tree\)"):
        rx.Optimizer(optax.sgd(0.1)).build({"w": jnp.ones(2)})
    with pytest.raises(ValueError, match="no variables"):
        rx.Optimizer(optax.sgd(0.1)).build({"f": jnp.tanh})


class Stand:
    """An object of another library that stands for a variable."""

    def __init__(self, value: Any):
        self.__rx_variable__ = rx.Variable(value)


def test_objects_that_stand_for_a_variable():
    stand = Stand(3.0)
    optimizer = rx.Optimizer(optax.sgd(0.1))
    _, gradients = rx.value_and_grad(lambda: stand.__rx_variable__**2, {"a": [stand]})
    assert gradients == {"a": [6.0]}
    optimizer.apply_gradients(zip(gradients["a"], [stand]))
    assert np.isclose(stand.__rx_variable__.numpy(), 2.4)


def test_checkpoint_and_back(tmp_path: Path):
    def made() -> tuple[Any, Any, Any]:
        with strategy.scope():
            params = rx.variables(haiku_like(), name="net")
            optimizer = rx.Optimizer(optax.adam(0.1))
        return params, optimizer, rx.train.Checkpoint(params=params, optimizer=optimizer)

    strategy = mirrored()
    params, optimizer, checkpoint = made()

    def step() -> None:
        gradients = rx.grad(lambda: haiku_apply(rx.arrays(params), jnp.ones((1, 2))).sum(), params)
        optimizer.apply(gradients, params)

    strategy.run(step)
    path = checkpoint.save(str(tmp_path / "at"))
    others, other_optimizer, other_checkpoint = made()
    other_optimizer.build(others)
    other_checkpoint.restore(path).assert_consumed()
    jax.tree.map(np.testing.assert_array_equal, rx.arrays(others), rx.arrays(params))
    pairs = zip(optimizer.variables, other_optimizer.variables, strict=True)
    for mine, theirs in pairs:
        assert mine.name == theirs.name
        np.testing.assert_array_equal(mine, theirs)


def test_rules_of_a_layout_go_by_names():
    layout = rx.distribute.StateLayout(rules={r"dense/kernel": [1, 2]})
    strategy = rx.distribute.MirroredStrategy(
        [f"CPU:{i}" for i in range(4)], logical_devices_per_replica=2, state_layout=layout
    )
    with strategy.scope():
        params = rx.variables({"dense": {"kernel": jnp.ones((4, 4)), "bias": jnp.ones(4)}})
    assert params["dense"]["kernel"].layout.parts == (1, 2)
    assert params["dense"]["bias"].layout.parts == ()


def test_passed_to_run_as_it_is(executor: Executor):
    strategy = mirrored()
    with strategy.scope():
        params = rx.variables(haiku_like())

    def step(given: Any) -> Any:
        return rx.grad(lambda: haiku_apply(rx.arrays(given), jnp.ones((1, 2))).sum(), given)

    gradients = executor.run(strategy, step, (params,))
    total = strategy.reduce("SUM", gradients, axis=None)
    np.testing.assert_allclose(total["mlp/~/linear_1"]["b"], [2.0])
