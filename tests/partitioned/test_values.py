"""Values of partitioned replicas: reduced, gathered, looked at, shown, handed on."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import replicax as rx
from tests.partitioned.looking import logical_devices
from tests.partitioned.models import MESHES, MeshOf, mirrored_on, tpu_on
from tests.replicas import by_replica, context, parts_of
from tests.under_test import EXECUTORS

STRATEGIES: dict[str, Callable[[], Any]] = {
    "4x2": lambda: mirrored_on(MESHES["4x2"]),
    "1x8": lambda: mirrored_on(MESHES["1x8"]),
    "2x(2x2)": lambda: mirrored_on(MESHES["2x(2x2)"]),
    "tpu 2x4": lambda: tpu_on(MESHES["2x4"]),
}
SHAPE = (8, 16)


@pytest.fixture(params=STRATEGIES)
def strategy(request: pytest.FixtureRequest) -> Any:
    return STRATEGIES[request.param]()


def marked(strategy: Any, kind: str, x: Any) -> Any:
    count = len(logical_devices(strategy, 0))
    if kind == "rows":
        return strategy.experimental_split_to_logical_devices(x, [count, 1])
    if kind == "columns":
        return strategy.experimental_split_to_logical_devices(x, [1, count])
    if kind == "both":
        return strategy.experimental_split_to_logical_devices(x, [2, count // 2])
    if kind == "assigned":
        return strategy.experimental_assign_to_logical_device(x, count - 1)
    return strategy.experimental_replicate_to_logical_devices(x)


KINDS = ["rows", "both", "assigned", "replicated"]


def whole(index: int) -> np.ndarray:
    """What replica `index` has."""
    return np.arange(128, dtype=np.float32).reshape(SHAPE) * (index + 1)


def values_of(strategy: Any, kind: str, executor: Any) -> Any:
    """Each replica's value, as a result of `run`."""
    given = by_replica(strategy, lambda index: jnp.asarray(whole(index)))
    return executor.run(strategy, lambda x: marked(strategy, kind, x), (given,))


def all_of(strategy: Any) -> np.ndarray:
    return np.stack([whole(index) for index in range(strategy.num_replicas_in_sync)])


@pytest.mark.parametrize("kind", KINDS)
def test_reduce(strategy: Any, executor: Any, kind: str):
    value, expected = values_of(strategy, kind, executor), all_of(strategy)
    with strategy.scope():
        np.testing.assert_array_equal(strategy.reduce("SUM", value, axis=None), expected.sum(0))
    np.testing.assert_array_equal(strategy.reduce("SUM", value, axis=None), expected.sum(0))
    np.testing.assert_allclose(strategy.reduce("MEAN", value, axis=None), expected.mean(0))
    np.testing.assert_allclose(strategy.reduce("SUM", value, axis=0), expected.sum((0, 1)))
    np.testing.assert_allclose(strategy.reduce("MEAN", value, axis=1), expected.mean((0, 2)))
    compiled = rx.function(lambda x: strategy.reduce("SUM", x, axis=None))
    np.testing.assert_array_equal(compiled(value), expected.sum(0))


@pytest.mark.parametrize("kind", KINDS)
def test_gather(strategy: Any, executor: Any, kind: str):
    value, expected = values_of(strategy, kind, executor), list(all_of(strategy))
    for axis in (0, 1):
        found = strategy.gather(value, axis=axis)
        np.testing.assert_array_equal(found, np.concatenate(expected, axis))
    compiled = rx.function(lambda x: strategy.gather(x, axis=1))
    np.testing.assert_array_equal(compiled(value), np.concatenate(expected, 1))


@settings(max_examples=10)
@given(
    logical=st.sampled_from([2, 4]),
    rows=st.lists(st.integers(0, 3), min_size=2, max_size=2),
    kind=st.sampled_from(["columns", "assigned", "replicated"]),
    reduce=st.sampled_from(["SUM", "MEAN"]),
)
def test_uneven_parts_are_gathered_and_reduced(
    logical: int, rows: list[int], kind: str, reduce: str
):
    strategy = mirrored_on(MeshOf(2, logical))
    arrays = [whole(index)[: rows[index]] for index in range(2)]
    given = by_replica(strategy, lambda index: jnp.asarray(arrays[index]))
    value = strategy.run(lambda x: marked(strategy, kind, x), args=(given,))
    together = np.concatenate(arrays)
    np.testing.assert_array_equal(strategy.gather(value, axis=0), together)
    if len(together):
        expected = together.sum(0) if reduce == "SUM" else together.mean(0)
        np.testing.assert_allclose(strategy.reduce(reduce, value, axis=0), expected, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_collectives_in_replica_context(strategy: Any, executor: Any, kind: str):
    def fn(x: Any) -> Any:
        x = marked(strategy, kind, x)
        here = context()
        total = here.all_reduce("SUM", x)
        nested = here.all_reduce("MEAN", {"a": x, "b": [x * 2]})
        return total, nested, here.all_gather(x, axis=0)

    given = by_replica(strategy, lambda index: jnp.asarray(whole(index)))
    total, nested, gathered = executor.run(strategy, fn, (given,))
    expected = all_of(strategy)
    for part in parts_of(strategy, total):
        np.testing.assert_array_equal(part, expected.sum(0))
    for part in parts_of(strategy, nested["b"][0]):
        np.testing.assert_allclose(part, 2 * expected.mean(0))
    for part in parts_of(strategy, gathered):
        np.testing.assert_array_equal(part, np.concatenate(list(expected)))


@pytest.mark.parametrize("kind", KINDS)
def test_local_results(strategy: Any, executor: Any, kind: str):
    value = values_of(strategy, kind, executor)
    found = strategy.experimental_local_results(value)
    assert len(found) == strategy.num_replicas_in_sync
    for index, part in enumerate(found):
        assert isinstance(part, jax.Array)
        np.testing.assert_array_equal(part, whole(index))
        assert part.devices() <= set(logical_devices(strategy, index))


@pytest.mark.parametrize("how", ["compiled", "eager"])
@pytest.mark.parametrize("kind", ["replicated", "assigned"])
def test_local_results_can_be_added_up(how: str, kind: str):
    strategy = STRATEGIES["2x(2x2)"]()
    value = values_of(strategy, kind, EXECUTORS[how]())
    total = sum(strategy.experimental_local_results(value))
    np.testing.assert_array_equal(total, all_of(strategy).sum(0))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_shown_does_not_depend_on_the_placement(executor: Any, kind: str):
    strategy = STRATEGIES["2x(2x2)"]()
    given = by_replica(strategy, lambda index: jnp.asarray(whole(index)))
    value = values_of(strategy, kind, executor)
    assert repr(value) == repr(given) and str(value) == str(given)
    assert "<table" in value._repr_html_() and "</table>" in value._repr_html_()


def test_a_notebook_shows_where_split_values_are():
    strategy = STRATEGIES["2x(2x2)"]()
    split = values_of(strategy, "both", EXECUTORS["eager"]())
    text = split._repr_html_()
    for index in range(8):
        assert f"CPU:{index}" in text
    assert "CPU:3" not in values_of(strategy, "replicated", EXECUTORS["compiled"]())._repr_html_()


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_handed_on_from_run_to_run(strategy: Any, kind: str):
    for first in EXECUTORS.values():
        value = values_of(strategy, kind, first())
        for second in EXECUTORS.values():
            result = second().run(strategy, lambda x: x * 2, (value,))
            for index, part in enumerate(strategy.experimental_local_results(result)):
                np.testing.assert_array_equal(part, 2 * whole(index))
                assert part.devices() <= set(logical_devices(strategy, index))


def test_split_values_stay_split_from_run_to_run():
    strategy = STRATEGIES["2x(2x2)"]()
    for first in EXECUTORS.values():
        value = values_of(strategy, "both", first())
        for second in EXECUTORS.values():
            result = second().run(strategy, lambda x: x * 2, (value,))
            for index, part in enumerate(strategy.experimental_local_results(result)):
                assert {shard.data.shape for shard in part.addressable_shards} == {(4, 8)}
                assert part.devices() == set(logical_devices(strategy, index))


@pytest.mark.parametrize("kind", KINDS)
def test_merge_call(strategy: Any, executor: Any, kind: str):
    def merged(distribution: Any, x: Any) -> Any:
        return distribution.reduce("SUM", x, axis=None)

    def fn(x: Any) -> Any:
        return context().merge_call(merged, args=(marked(strategy, kind, x),)) + 1

    given = by_replica(strategy, lambda index: jnp.asarray(whole(index)))
    result = executor.run(strategy, fn, (given,))
    for part in parts_of(strategy, result):
        np.testing.assert_array_equal(part, all_of(strategy).sum(0) + 1)


def test_reduce_to_where_a_split_variable_is():
    strategy = STRATEGIES["2x(2x2)"]()
    with strategy.scope():
        target = rx.Variable(jnp.zeros(SHAPE), layout=[2, 2])
    value = values_of(strategy, "both", EXECUTORS["eager"]())
    with strategy.scope():
        one = strategy.extended.reduce_to("SUM", value, target)
        many = strategy.extended.batch_reduce_to("MEAN", [(value, target), (value, target)])
    expected = all_of(strategy)
    for found, total in ((one, expected.sum(0)), *((each, expected.mean(0)) for each in many)):
        for part in parts_of(strategy, found):
            np.testing.assert_allclose(part, total)


def test_a_nested_structure_of_results(strategy: Any, executor: Any):
    def fn(x: Any) -> Any:
        return {
            "split": marked(strategy, "rows", x),
            "rest": (marked(strategy, "assigned", x + 1), [jnp.sum(x), None, "text", 3]),
        }

    given = by_replica(strategy, lambda index: jnp.asarray(whole(index)))
    result = executor.run(strategy, fn, (given,))
    for index in range(strategy.num_replicas_in_sync):
        np.testing.assert_array_equal(
            strategy.experimental_local_results(result["split"])[index], whole(index)
        )
        np.testing.assert_array_equal(
            strategy.experimental_local_results(result["rest"][0])[index], whole(index) + 1
        )
    assert result["rest"][1][1:3] == [None, "text"]


def test_results_of_different_shapes(executor: Any):
    """Only eagerly can replicas have different ones; compiled, that is a fall-back."""
    strategy = STRATEGIES["4x2"]()
    value = by_replica(strategy, lambda index: jnp.asarray(whole(index)[: index + 1]))
    result = executor.run(strategy, lambda x: marked(strategy, "columns", x) * 2, (value,))
    for index, part in enumerate(strategy.experimental_local_results(result)):
        np.testing.assert_array_equal(part, 2 * whole(index)[: index + 1])
    gathered = strategy.gather(result, axis=0)
    assert gathered.shape == (1 + 2 + 3 + 4, 16)


def test_broadcast(strategy: Any):
    with strategy.scope():
        value = strategy.extended.broadcast_to(jnp.asarray(whole(0)), destinations=None)
    for part in parts_of(strategy, value):
        np.testing.assert_array_equal(part, whole(0))


@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_of_compiled_runs(strategy: Any, kind: str):
    """Results are the next step's arguments, in whatever layout they came back."""
    step = rx.function(
        lambda x: strategy.run(lambda x: marked(strategy, kind, jnp.tanh(x)), args=(x,))
    )
    value = by_replica(strategy, lambda index: jnp.asarray(whole(index)))
    expected = all_of(strategy)
    for _ in range(3):
        value, expected = step(value), np.tanh(expected)
    for index, part in enumerate(strategy.experimental_local_results(value)):
        np.testing.assert_allclose(part, expected[index], rtol=1e-6)
