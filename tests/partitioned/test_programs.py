"""Around a training step on partitioned replicas: data sets, loops, random numbers, copies."""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.partitioned.looking import bytes_by_device, logical_devices
from tests.partitioned.models import (
    BATCH,
    MESHES,
    MODELS,
    Task,
    adam,
    convolved,
    expected_losses,
    mirrored_on,
    state_layout,
    tpu_on,
)
from tests.replicas import mirrored, parts_of

PARTITIONED = [name for name, mesh in MESHES.items() if mesh.logical > 1]
kinds = pytest.mark.parametrize("kind", [mirrored_on, tpu_on], ids=["mirrored", "tpu"])

IMAGES = np.random.default_rng(0).normal(size=(21, 8, 8, 3)).astype(np.float32)
KERNEL = np.random.default_rng(1).normal(size=(3, 3, 3, 4)).astype(np.float32)


@kinds
@pytest.mark.parametrize("mesh", PARTITIONED)
@pytest.mark.parametrize("rows", [16, 21], ids=["even", "partial last batch"])
def test_a_data_set_is_spread_over_the_replicas(kind: Any, mesh: str, rows: int):
    """Of the last batch some replicas get a row, and others none."""
    shape = MESHES[mesh]
    strategy = kind(shape)
    dataset = rx.data.Dataset.from_tensor_slices(IMAGES[:rows]).batch(8)

    def fn(x: Any) -> Any:
        x = strategy.experimental_split_to_logical_devices(x, [1, shape.height, shape.width, 1])
        return jnp.sum(jnp.square(convolved(x, KERNEL)), axis=(1, 2, 3))

    step = rx.function(lambda x: strategy.run(fn, args=(x,)))
    expected = np.sum(np.square(convolved(IMAGES[:rows], KERNEL)), axis=(1, 2, 3))
    for run in (step, lambda x: strategy.run(fn, args=(x,))):
        found = []
        for x in strategy.experimental_distribute_dataset(dataset):
            found.append(strategy.gather(run(x), axis=0))
        assert len(found) == -(-rows // 8)
        np.testing.assert_allclose(np.concatenate(found), expected, rtol=1e-5)
    # Each replica's share is where the replica is.
    batch = next(iter(strategy.experimental_distribute_dataset(dataset)))
    for index, part in enumerate(strategy.experimental_local_results(batch)):
        assert part.shape == (8 // shape.replicas, 8, 8, 3)
        assert part.devices() <= set(logical_devices(strategy, index))


def test_data_sets_from_a_function():
    strategy = mirrored_on(MESHES["2x4"])

    def dataset_fn(context: Any) -> Any:
        assert context.num_replicas_in_sync == 2
        rows = context.get_per_replica_batch_size(16)
        return rx.data.Dataset.from_tensor_slices(IMAGES[:16]).batch(rows)

    dataset = strategy.distribute_datasets_from_function(dataset_fn)
    step = rx.function(
        lambda x: strategy.run(
            lambda x: strategy.experimental_split_to_logical_devices(x, [1, 4, 1, 1]), args=(x,)
        )
    )
    found = [strategy.gather(step(x), axis=0) for x in dataset]
    np.testing.assert_array_equal(np.concatenate(found), IMAGES[:16])


@kinds
@pytest.mark.parametrize("over_replicas", ["nothing", "everything"])
def test_many_steps_in_one_program(kind: Any, over_replicas: str):
    mesh, model = MESHES["2x(2x2)"], MODELS["transformer"]()
    strategy = kind(mesh, state_layout=state_layout(over_replicas))
    task = Task(strategy, mesh, model, adam(), by_layout=True)
    x, y = (each.reshape(-1, *each.shape[2:]) for each in (model.inputs, model.labels))
    dataset = rx.data.Dataset.from_tensor_slices((x, y)).batch(BATCH).repeat()
    iterator = iter(strategy.experimental_distribute_dataset(dataset))
    before = bytes_by_device(*task.variables.values(), *task.optimizer.variables)
    step = rx.function(lambda batch: task.step(*batch))
    losses = np.concatenate([step.steps(iterator, 4), step.steps(iterator, 4)])
    np.testing.assert_allclose(losses, expected_losses("transformer")[:8], rtol=1e-5)
    after = bytes_by_device(*task.variables.values(), *task.optimizer.variables)
    assert after == before


def test_losses_over_a_distributed_data_set_with_a_partial_batch():
    """The last batch runs eagerly, between compiled ones, on the same state in parts."""
    mesh, model = MESHES["4x2"], MODELS["dense"]()
    x, y = (each.reshape(-1, *each.shape[2:])[:42] for each in (model.inputs, model.labels))
    found = {}
    for name, strategy in {
        "parts": mirrored_on(mesh, state_layout=state_layout("everything")),
        "whole": mirrored(1),
    }.items():
        task = Task(strategy, mesh if name == "parts" else MESHES["8x1"], model, adam())
        dataset = rx.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
        step = rx.function(lambda batch, task=task: task.step(*batch))
        distributed = strategy.experimental_distribute_dataset(dataset)
        found[name] = [float(step(batch)) for _ in range(2) for batch in distributed]
    assert len(found["parts"]) == 6
    np.testing.assert_allclose(found["parts"], found["whole"], rtol=1e-5)


# --- random numbers -------------------------------------------------------------------------------


@pytest.mark.parametrize("mesh", ["2x4", "1x8"])
def test_random_numbers_do_not_depend_on_logical_devices(mesh: str, executor: Any):
    shape = MESHES[mesh]
    found = []
    for strategy in (mirrored_on(shape), mirrored(shape.replicas)):
        with strategy.scope():
            generator = rx.random.Generator.from_seed(3)
        parts = [
            parts_of(strategy, executor.run(strategy, lambda g=generator: g.normal([4, 8])))
            for _ in range(2)
        ]
        found.append(np.array(parts))
    np.testing.assert_array_equal(found[0], found[1])
    assert len(np.unique(found[0])) == found[0].size  # replicas and steps differ


@pytest.mark.parametrize("mesh", ["2x4", "1x8"])
def test_a_mask_over_a_split_tensor_is_the_same_as_over_a_whole_one(mesh: str, executor: Any):
    shape = MESHES[mesh]
    strategy = mirrored_on(shape)

    def fn(key: Any) -> Any:
        x = strategy.experimental_split_to_logical_devices(jnp.ones((4, 16)), [1, shape.logical])
        kept = jax.random.bernoulli(key, 0.5, x.shape)
        return jnp.where(kept, x, 0.0)

    key = jax.random.key(0)
    expected = np.asarray(jax.random.bernoulli(key, 0.5, (4, 16)), np.float32)
    for part in parts_of(strategy, executor.run(strategy, fn, (key,))):
        np.testing.assert_array_equal(part, expected)


def test_rx_random_in_a_step_with_state_in_parts():
    strategy = mirrored_on(MESHES["2x4"], state_layout=state_layout("everything"))
    with strategy.scope():
        generator = rx.random.Generator.from_seed(1)
        v = rx.Variable(jnp.zeros((8, 4)), aggregation=rx.VariableAggregation.MEAN, layout=[1, 4])
    step = rx.function(lambda: strategy.run(lambda: v.assign_add(generator.normal([8, 4]))))
    step()
    step()
    with strategy.scope():
        again = rx.random.Generator.from_seed(1)
    draws = [parts_of(strategy, strategy.run(lambda: again.normal([8, 4]))) for _ in range(2)]
    np.testing.assert_allclose(v.numpy(), sum(sum(each) / 2 for each in draws), rtol=1e-5)


# --- copies of models -----------------------------------------------------------------------------


@pytest.mark.parametrize("over_replicas", ["nothing", "optimizer", "everything"])
def test_a_copy_of_a_model_and_its_optimizer_trains_by_itself(over_replicas: str):
    mesh = MESHES["2x4"]
    strategy = mirrored_on(mesh, state_layout=state_layout(over_replicas))
    task = Task(strategy, mesh, MODELS["dense"](), adam(), by_layout=True)
    task.losses(2, compiled=True)
    twin = Task(strategy, mesh, MODELS["dense"](), adam())
    twin.variables, twin.optimizer = copy.deepcopy((task.variables, task.optimizer))
    for name, variable in task.variables.items():
        assert twin.variables[name].layout == variable.layout
    first = task.losses(3, compiled=True)
    values = [each.numpy() for each in twin.variables.values()]
    assert not np.array_equal(values[0], task.variables["in/w"].numpy())
    np.testing.assert_array_equal(twin.losses(3, compiled=True), first)
    for one, other in zip(task.variables.values(), twin.variables.values(), strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


# --- two strategies in one program ----------------------------------------------------------------


def test_state_of_one_strategy_is_copied_to_another():
    large = mirrored_on(MESHES["2x4"], state_layout=state_layout("everything"))
    small = mirrored_on(MESHES["4x2"])
    with large.scope():
        one = rx.Variable(np.arange(64, dtype=np.float32).reshape(8, 8), layout=[1, 4])
    with small.scope():
        other = rx.Variable(jnp.zeros((8, 8)), layout=[2, 1])
    other.assign(one.numpy())
    np.testing.assert_array_equal(other.numpy(), one.numpy())
    other.assign(one.value() * 2)
    np.testing.assert_array_equal(other.numpy(), one.numpy() * 2)


def test_a_split_model_is_used_outside_of_its_strategy():
    """For a prediction, say: code outside of any run reads variables in parts."""
    mesh = MESHES["2x(2x2)"]
    strategy = mirrored_on(mesh, state_layout=state_layout("everything"))
    with strategy.scope():
        w = rx.Variable(np.arange(64, dtype=np.float32).reshape(8, 8), layout=[2, 2])
        b = rx.Variable(jnp.ones(8))
    expected = np.ones((3, 8)) @ np.arange(64).reshape(8, 8) + 1
    x = jnp.ones((3, 8))
    np.testing.assert_allclose(x @ w + b, expected)
    np.testing.assert_allclose(rx.function(lambda x: x @ w + b)(x), expected)
    np.testing.assert_allclose(jax.jit(lambda w, b: x @ w + b)(w, b), expected)
    with strategy.scope():
        np.testing.assert_allclose(x @ w + b, expected)
