"""Reductions and gathers over replicas: the laws that hold for any values."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import replicax as rx
from replicax._src.collectives import ReduceOp, _all_reduce
from replicax._src.devices import replica_mesh
from tests.replicas import by_replica, context, mirrored, on_devices, parts_of, several_replicas

NUMBERS = st.integers(-50, 50)
DTYPES = ["float32", "float16", "bfloat16", "int8", "uint8", "int32", "complex64"]


def uneven_parts(sizes: list[int], rest: tuple[int, ...], axis: int) -> list[np.ndarray]:
    """One array per replica, of the given sizes along `axis`; no two numbers are equal."""
    start, parts = 0, []
    for size in sizes:
        shape = (*rest[:axis], size, *rest[axis:])
        count = int(np.prod(shape))
        parts.append(np.arange(start, start + count, dtype=np.float32).reshape(shape))
        start += count
    return parts


SIZES = st.lists(st.integers(0, 4), min_size=3, max_size=3)
RESTS = st.sampled_from([(), (2,), (2, 3)])


# --- strategy.reduce ------------------------------------------------------------------------------


@settings(max_examples=15)
@given(st.lists(st.lists(NUMBERS, min_size=2, max_size=2), min_size=3, max_size=3), st.booleans())
def test_sum_over_replicas_is_the_sum_of_everything(rows: list[list[int]], placed: bool):
    strategy = mirrored(3)
    parts = [np.array(row, np.float32) for row in rows]
    value = on_devices(strategy, parts) if placed else rx.distribute.PerReplica(parts)
    np.testing.assert_array_equal(strategy.reduce("SUM", value, axis=None), np.sum(parts, axis=0))
    np.testing.assert_allclose(
        strategy.reduce("MEAN", value, axis=None), np.mean(parts, axis=0), rtol=1e-6
    )
    np.testing.assert_array_equal(strategy.reduce("SUM", value, axis=0), np.sum(parts))
    np.testing.assert_allclose(strategy.reduce("MEAN", value, axis=0), np.mean(parts), rtol=1e-6)


@settings(max_examples=20)
@given(SIZES, RESTS, st.data())
def test_reducing_over_an_axis_is_reducing_the_concatenation(
    sizes: list[int], rest: tuple[int, ...], data: st.DataObject
):
    axis = data.draw(st.integers(0, len(rest)))
    negative = data.draw(st.booleans())
    parts = uneven_parts(sizes, rest, axis)
    whole = np.concatenate(parts, axis=axis)
    asked = axis - whole.ndim if negative else axis
    strategy = mirrored(3)
    value = on_devices(strategy, parts)
    np.testing.assert_allclose(strategy.reduce("SUM", value, axis=asked), whole.sum(axis))
    mean = strategy.reduce("MEAN", value, axis=asked)
    if whole.shape[axis]:
        np.testing.assert_allclose(mean, whole.mean(axis), rtol=1e-6)
    else:
        assert np.all(np.isnan(mean)) and mean.shape == rest


@settings(max_examples=10)
@given(SIZES)
def test_reducing_over_all_axes_counts_every_item_once(sizes: list[int]):
    strategy = mirrored(3)
    parts = uneven_parts(sizes, (2,), 0)
    whole = np.concatenate(parts)
    value = on_devices(strategy, parts)
    np.testing.assert_allclose(strategy.reduce("SUM", value, axis=(0, 1)), whole.sum())
    if whole.size:
        np.testing.assert_allclose(
            strategy.reduce("MEAN", value, axis=(0, -1)), whole.mean(), rtol=1e-6
        )


def test_reducing_a_structure_is_a_structure_of_reductions(strategy: Any):
    def part(index: int) -> Any:
        return {"a": jnp.ones(2) * index, 3: [jnp.array([index]), (jnp.ones((1, 2)) * index,)]}

    value = by_replica(strategy, part)
    for op in ("SUM", "MEAN"):
        for axis in (None, 0):
            whole = strategy.reduce(op, value, axis=axis)
            assert list(whole) == ["a", 3]
            pairs = [
                (whole["a"], value["a"]),
                (whole[3][0], value[3][0]),
                (whole[3][1][0], value[3][1][0]),
            ]
            for reduced, leaf in pairs:
                np.testing.assert_array_equal(reduced, strategy.reduce(op, leaf, axis=axis))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_summed_in_itself(strategy: Any, dtype: str):
    value = on_devices(
        strategy, [jnp.full(2, i, dtype) for i in range(strategy.num_replicas_in_sync)]
    )
    result = strategy.reduce("SUM", value, axis=None)
    assert result.dtype == jnp.dtype(dtype)
    assert result[0] == sum(range(strategy.num_replicas_in_sync))


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 2)])
def test_arrays_without_items(strategy: Any, executor: Any, shape: tuple[int, ...]):
    value = by_replica(strategy, lambda _: jnp.zeros(shape))
    assert strategy.reduce("SUM", value, axis=None).shape == shape
    assert strategy.reduce("SUM", value, axis=0).shape == shape[1:]
    gathered = strategy.gather(value, axis=0)
    assert gathered.shape == (shape[0] * strategy.num_replicas_in_sync, *shape[1:])

    def step(x: Any) -> Any:
        return context().all_reduce("MEAN", x), context().all_gather(x, axis=0)

    reduced, joined = executor.run(strategy, step, (value,))
    assert parts_of(strategy, reduced)[0].shape == shape
    assert parts_of(strategy, joined)[0].shape == gathered.shape


# --- gather, all_gather ---------------------------------------------------------------------------


@settings(max_examples=15)
@given(SIZES, RESTS, st.data())
def test_gather_and_all_gather_are_the_concatenation(
    sizes: list[int], rest: tuple[int, ...], data: st.DataObject
):
    axis = data.draw(st.integers(0, len(rest)))
    parts = uneven_parts(sizes, rest, axis)
    whole = np.concatenate(parts, axis=axis)
    asked = data.draw(st.sampled_from([axis, axis - whole.ndim]))
    strategy = mirrored(3)
    value = on_devices(strategy, parts)
    np.testing.assert_array_equal(strategy.gather(value, axis=asked), whole)

    def step(x: Any) -> Any:
        return context().all_gather({"x": x, "twice": [2 * x]}, axis=asked)

    result = strategy.run(step, (value,))
    for index, each in enumerate(strategy.experimental_local_results(result)):
        np.testing.assert_array_equal(each["x"], whole)
        np.testing.assert_array_equal(each["twice"][0], 2 * whole)
        assert each["x"].devices() == {strategy.extended._replica_devices[index]}


# --- all_reduce -----------------------------------------------------------------------------------


def test_all_reduce_of_a_structure(strategy: Any, executor: Any):
    count = strategy.num_replicas_in_sync

    def step(x: Any) -> Any:
        tree = {"x": x, "pair": (x * 2, jnp.int32(1)), "number": 2.0}
        return context().all_reduce("SUM", tree), context().all_reduce("MEAN", tree)

    x = by_replica(strategy, lambda index: jnp.array([1.0, index]))
    total, mean = executor.run(strategy, step, (x,))
    expected = np.array([count, sum(range(count))], np.float32)
    for index in range(count):
        np.testing.assert_allclose(parts_of(strategy, total["x"])[index], expected)
        np.testing.assert_allclose(parts_of(strategy, total["pair"][0])[index], 2 * expected)
        assert parts_of(strategy, total["pair"][1])[index] == count
        assert parts_of(strategy, total["number"])[index] == 2.0 * count
        np.testing.assert_allclose(parts_of(strategy, mean["x"])[index], expected / count)
        assert parts_of(strategy, mean["number"])[index] == 2.0


@several_replicas
def test_the_very_same_array_counts_once_per_replica(strategy: Any, executor: Any):
    shared = jnp.array(3.0)
    result = executor.run(strategy, lambda: context().all_reduce("SUM", shared))
    assert parts_of(strategy, result) == [3.0 * strategy.num_replicas_in_sync] * (
        strategy.num_replicas_in_sync
    )


@several_replicas
def test_results_are_on_each_replicas_device(strategy: Any, executor: Any):
    result = executor.run(strategy, lambda: context().all_reduce("SUM", jnp.ones(2)))
    devices = [part.devices() for part in strategy.experimental_local_results(result)]
    assert devices == [{device} for device in strategy.extended._replica_devices]


@several_replicas
def test_different_shapes_are_refused_by_all_reduce(strategy: Any):
    def step() -> Any:
        return context().all_reduce("SUM", jnp.ones(1 + context().replica_id_in_sync_group))

    with pytest.raises(ValueError, match="replica 1"):
        strategy.run(step)
    assert parts_of(strategy, strategy.run(lambda: jnp.ones(()))) == [1.0] * (
        strategy.num_replicas_in_sync
    )


def test_one_program_per_shape():
    strategy = mirrored(2)
    value = on_devices(strategy, [jnp.ones(17), jnp.ones(17)])
    strategy.reduce("SUM", value, axis=None)
    programs = _all_reduce.all_reduce_program(value_mesh(strategy), ReduceOp.SUM, 0).__wrapped__
    compiled = programs._cache_size()
    for _ in range(5):
        strategy.reduce("SUM", value, axis=None)
    assert programs._cache_size() == compiled >= 1


def value_mesh(strategy: Any) -> Any:
    return replica_mesh(strategy.extended._replica_devices)
