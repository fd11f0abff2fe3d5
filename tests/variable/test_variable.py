"""Plain variables, and what all kinds share: dtypes, shapes, operators, copies."""

import copy
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import replicax as rx
from tests.replicas import by_replica, mirrored, parts_of, several_replicas

ON_READ = rx.VariableSynchronization.ON_READ

DTYPES = ["float32", "float16", "bfloat16", "int8", "uint8", "int32", "complex64", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_kept(strategy: Any, executor: Any, dtype: str):
    with strategy.scope():
        v = rx.Variable(jnp.array([1, 0, 1]), dtype=dtype, aggregation="ONLY_FIRST_REPLICA")
    assert v.dtype == jnp.dtype(dtype) == v.numpy().dtype
    v.assign(jnp.array([0, 1, 1], dtype))
    np.testing.assert_array_equal(v.numpy(), np.array([0, 1, 1], dtype))
    assert v.dtype == jnp.dtype(dtype)
    if dtype != "bool":
        v.assign_add(jnp.array([1, 1, 1], dtype))
        assert v.dtype == jnp.dtype(dtype) == v.read_value().dtype
        executor.run(strategy, lambda x: v.assign_sub(x), (jnp.array([1, 0, 0], dtype),))
        np.testing.assert_array_equal(v.numpy(), np.array([0, 2, 2], dtype))
    assert parts_of(strategy, executor.run(strategy, lambda: v.read_value()))[-1].dtype == v.dtype


@several_replicas
@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "complex64", "float16"])
def test_updates_of_replicas_are_summed_in_the_variables_dtype(
    strategy: Any, executor: Any, dtype: str
):
    with strategy.scope():
        v = rx.Variable(jnp.zeros(2, dtype), aggregation="SUM")
    x = by_replica(strategy, lambda index: jnp.full(2, index, dtype))
    executor.run(strategy, lambda x: v.assign_add(x), (x,))
    assert v.dtype == jnp.dtype(dtype)
    total = sum(range(strategy.num_replicas_in_sync))
    np.testing.assert_array_equal(v.numpy(), np.full(2, total, dtype))


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)])
def test_variables_without_items(strategy: Any, executor: Any, shape: tuple[int, ...]):
    with strategy.scope():
        v = rx.Variable(jnp.zeros(shape), aggregation="SUM")
        s = rx.Variable(jnp.zeros(shape), synchronization=ON_READ, aggregation="MEAN")

    def step() -> Any:
        v.assign_add(jnp.ones(shape))
        s.assign_add(jnp.ones(shape))
        return jnp.sum(v.read_value())

    assert parts_of(strategy, executor.run(strategy, step))[0] == 0
    assert v.numpy().shape == s.numpy().shape == shape


def test_x64(strategy: Any, executor: Any):
    with jax.enable_x64(True):
        with strategy.scope():
            v = rx.Variable(np.float64(1) / 3, aggregation="SUM")
            n = rx.Variable(np.int64(2) ** 40, aggregation="SUM")
        assert v.dtype == np.float64 and n.dtype == np.int64
        count = strategy.num_replicas_in_sync

        def step() -> Any:
            v.assign_add(jnp.float64(1e-12))
            n.assign_add(jnp.int64(2**35))
            return v.read_value()

        result = executor.run(strategy, step)
        assert v.numpy() == pytest.approx(1 / 3 + count * 1e-12, abs=1e-16)
        assert n.numpy() == 2**40 + count * 2**35
        assert parts_of(strategy, result)[0].dtype == np.float64
        assert strategy.reduce("MEAN", result, axis=None).dtype == np.float64


UNARY: list[Callable[[Any], Any]] = [
    operator.neg,
    abs,
    lambda v: v.T,
    lambda v: v.sum(),
    lambda v: v.at[0].set(9),
    lambda v: v[1:],
    jnp.sin,
    np.asarray,
    lambda v: jnp.stack([v, v]),
    lambda v: jax.jit(lambda x: x * 2)(v),
    lambda v: [float(x) for x in v],
    len,
    lambda v: v.astype("int32"),
    lambda v: v.reshape(1, 3),
]
BINARY: list[Callable[[Any, Any], Any]] = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.pow,
    operator.matmul,
    operator.eq,
    operator.ne,
    operator.lt,
    operator.ge,
]


def test_a_variable_is_used_as_its_array(strategy: Any):
    array = jnp.array([1.0, 2.0, 4.0])
    other = jnp.array([2.0, 2.0, 3.0])
    with strategy.scope():
        v = rx.Variable(array)
        u = rx.Variable(other)
    for unary in UNARY:
        np.testing.assert_array_equal(unary(v), unary(array))
    for binary in BINARY:
        expected = binary(array, other)
        for one in (v, array, np.asarray(array)):
            np.testing.assert_allclose(binary(one, u), expected)
        np.testing.assert_allclose(binary(v, other), expected)
        np.testing.assert_allclose(binary(v, np.asarray(other)), expected)


def test_a_value_that_was_read_does_not_change(strategy: Any):
    with strategy.scope():
        v = rx.Variable([1.0, 2.0])
    before = v.read_value()
    v.assign([5.0, 6.0])
    np.testing.assert_array_equal(before, [1, 2])


def test_a_numpy_array_that_was_assigned_is_not_kept(strategy: Any):
    source = np.array([1.0, 2.0], np.float32)
    with strategy.scope():
        v = rx.Variable(source)
    source[:] = 9
    np.testing.assert_array_equal(v.numpy(), [1, 2])
    v.assign(source)
    source[:] = 7
    np.testing.assert_array_equal(v.numpy(), [9, 9])


def test_initial_values_of_every_sort(strategy: Any):
    calls = []

    def initial() -> Any:
        calls.append(1)
        return jnp.ones(2)

    with strategy.scope():
        assert rx.Variable(initial).shape == (2,) and calls == [1]
        assert rx.Variable([[1, 2], [3, 4]]).dtype == jnp.int32
        assert rx.Variable(1.5).dtype == jnp.float32
        assert rx.Variable(np.float64(1.5)).dtype == jnp.float32
        assert rx.Variable(rx.Variable(3.0)).numpy() == 3.0
        assert rx.Variable(1, dtype="float32", name="n").name == "n:0"
        assert rx.Variable([1.0, 2.0], shape=(None,)).shape == (2,)
        with pytest.raises(ValueError, match="does not fit"):
            rx.Variable([1.0, 2.0], shape=(3,))


@pytest.mark.parametrize(
    ("start", "value", "error"),
    [
        (jnp.zeros(2), jnp.zeros(3), ValueError),
        (jnp.zeros(2), 1.0, ValueError),
        (jnp.zeros(2, "int32"), jnp.ones(2), ValueError),
        (jnp.zeros(2), jnp.ones(2, "complex64"), ValueError),
        (jnp.zeros(2), "text", TypeError),
        (jnp.zeros(2), rx.distribute.PerReplica([jnp.ones(2)]), ValueError),
    ],
)
def test_values_that_do_not_fit(start: Any, value: Any, error: type[Exception]):
    v = rx.Variable(start)
    with pytest.raises(error):
        v.assign(value)
    np.testing.assert_array_equal(v.numpy(), np.asarray(start))


def test_comparison_is_by_value_and_a_reference_by_identity():
    v, u = rx.Variable(1.0), rx.Variable(1.0)
    assert bool(v == u)
    with pytest.raises(TypeError, match="ref()"):
        hash(v)
    assert v.ref() == v.ref() != u.ref()
    assert {v.ref(): "v", u.ref(): "u"}[v.ref()] == "v"
    assert v.ref().deref() is v


class Model:
    def __init__(self) -> None:
        self.w = rx.Variable([1.0, 2.0], aggregation="SUM")
        self.seen = rx.Variable(0.0, synchronization=ON_READ, aggregation="SUM")
        self.alias = self.w
        self.strategy = rx.distribute.get_strategy()


def test_a_deep_copy_of_a_model_is_a_model_of_its_own(strategy: Any, executor: Any):
    with strategy.scope():
        model = Model()
    twin = copy.deepcopy(model)
    assert twin.alias is twin.w and twin.w is not model.w
    assert twin.strategy is model.strategy

    def step() -> None:
        twin.w.assign_add(jnp.ones(2))
        twin.seen.assign_add(1.0)

    executor.run(strategy, step)
    count = strategy.num_replicas_in_sync
    np.testing.assert_array_equal(twin.w.numpy(), [1 + count, 2 + count])
    assert twin.seen.numpy() == count
    np.testing.assert_array_equal(model.w.numpy(), [1, 2])
    assert model.seen.numpy() == 0
    copies = strategy.experimental_local_results(twin.w)
    np.testing.assert_array_equal(copies[-1].numpy(), [1 + count, 2 + count])


def test_a_variable_made_outside_is_plain_and_takes_every_update():
    outside = rx.Variable(0.0)
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"])
    strategy.run(lambda: outside.assign_add(1.0))
    assert outside.numpy() == 3.0


def test_a_variable_works_outside_of_its_scope(strategy: Any):
    with strategy.scope():
        v = rx.Variable(1.0)
    v.assign_add(2.0)
    assert v.numpy() == 3.0 and float(v * 2) == 6.0
    for part in strategy.experimental_local_results(v):
        assert part.numpy() == 3.0


@settings(max_examples=15)
@given(
    st.lists(
        st.tuples(st.sampled_from(["assign", "assign_add", "assign_sub"]), st.integers(-5, 5)),
        max_size=6,
    )
)
def test_a_series_of_changes_is_plain_arithmetic(changes: list[tuple[str, int]]):
    strategy = rx.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        v = rx.Variable(0.0)
    expected = 0
    for kind, number in changes:
        getattr(v, kind)(float(number))
        expected = {
            "assign": number,
            "assign_add": expected + number,
            "assign_sub": expected - number,
        }[kind]
        assert [part.numpy() for part in v.values] == [expected, expected]


def test_a_jax_transformation_sees_the_value():
    v = rx.Variable([1.0, 2.0])
    np.testing.assert_array_equal(jax.vmap(lambda x: 2 * x)(v), [2, 4])
    np.testing.assert_array_equal(jax.grad(lambda x: jnp.sum(x**2))(v), [2, 4])
    assert jax.tree.leaves([v])[0].shape == (2,)


def test_an_assignment_inside_jit_is_refused():
    v = rx.Variable(1.0)
    with pytest.raises(RuntimeError, match="assign it outside"):
        jax.jit(lambda x: v.assign(x))(2.0)
    assert v.numpy() == 1.0


@pytest.mark.parametrize("large", [2**40, np.int64(2**40), np.int64(-(2**40))])
def test_large_integers_become_floats_without_a_detour(strategy: Any, large: Any):
    with strategy.scope():
        v = rx.Variable(large, dtype="float32")
        w = rx.Variable(0.0)
        w.assign(large)
    assert float(v.numpy()) == float(w.numpy()) == float(large)


@pytest.mark.parametrize("value", [7, np.int64(7), np.uint64(7), np.array(7), np.int8(7)])
def test_integers_that_fit(strategy: Any, value: Any):
    with strategy.scope():
        v = rx.Variable(value)
        w = rx.Variable(np.int8(1))
        w.assign(value)
    assert v.dtype == jnp.asarray(value).dtype and w.dtype == jnp.int8
    assert int(v.numpy()) == int(w.numpy()) == 7


@several_replicas
def test_a_per_replica_value_of_a_closure_is_each_replicas_own(strategy: Any, executor: Any):
    with strategy.scope():
        v = rx.Variable(0.0, aggregation="SUM")
        own = rx.Variable(0.0, synchronization="ON_READ", aggregation="SUM")
    value = by_replica(strategy, lambda index: jnp.float32(index + 1))

    def replica_fn() -> None:
        v.assign_add(value)
        own.assign(value)

    executor.run(strategy, replica_fn)
    count = strategy.num_replicas_in_sync
    assert v.numpy() == own.numpy() == count * (count + 1) / 2
    with pytest.raises(ValueError, match="outside of strategy.run"):
        v.assign(value)


def test_what_assign_returns_is_not_read_if_it_is_not_wanted(strategy: Any, executor: Any):
    with strategy.scope():
        v = rx.Variable(0.0, aggregation="MEAN")
    assert v.assign(1.0, read_value=False) is None
    assert v.assign_sub(1.0, read_value=False) is None
    assert executor.run(strategy, lambda: v.assign_add(2.0, read_value=False)) is None
    assert v.numpy() == 2.0


def test_a_scalar_variable_is_no_list():
    assert [float(x) for x in rx.Variable([1.0, 2.0])] == [1.0, 2.0]
    with pytest.raises(TypeError, match=r"'v:0' has shape \(\).*write \[variable\]"):
        list(rx.Variable(1.0, name="v"))


def test_the_copy_that_the_only_replica_returns_is_the_variable():
    strategy = mirrored(1)
    with strategy.scope():
        v = rx.Variable(1.0)
    assert strategy.run(lambda: {"v": strategy.experimental_local_results(v)[0]})["v"] is v


@several_replicas
def test_each_replica_reads_an_array_of_its_own(strategy: Any, executor: Any):
    """Also where there is one copy for all of them."""
    outside = rx.Variable(2.0)
    with strategy.scope():
        inside = rx.Variable(3.0)
    homes = [{device} for device in strategy.extended._replica_devices]
    for v in (outside, inside):
        for read in (v.read_value, v.value):
            found = executor.run(strategy, read)
            assert isinstance(found, rx.distribute.PerReplica)
            assert [part.devices() for part in found.values] == homes
            total = strategy.reduce("SUM", found, axis=None)
            assert float(total) == float(v) * strategy.num_replicas_in_sync

    def read_twice() -> None:
        assert inside.value() is inside.value() and outside.value() is outside.value()

    strategy.run(read_twice)

    def merged() -> Any:
        context = rx.distribute.get_replica_context()
        assert context is not None
        return context.merge_call(lambda _: inside.read_value())

    if strategy.extended.parameter_devices != strategy.extended.worker_devices:
        assert float(executor.run(strategy, merged)) == 3.0  # one read, outside of the replicas


def test_each_replica_reads_an_array_of_its_own_of_a_variable_of_others(executor: Any):
    with mirrored(3).scope():
        v = rx.Variable(2.0)
    for _ in range(2):
        found = executor.run(mirrored(2), v.value)
        assert isinstance(found, rx.distribute.PerReplica)
        assert [part.devices() for part in found.values] == [{each} for each in jax.devices()[:2]]
        v.assign_add(1.0)


def test_a_variable_shown_in_a_function_that_jax_traces_is_read_as_before():
    strategy = mirrored(2)
    v = rx.Variable(2.0)

    def read() -> Any:
        jax.jit(lambda: repr(v) and 1.0)()
        return v.value()

    found: Any = strategy.run(read)
    assert [part.devices() for part in found.values] == [{each} for each in jax.devices()[:2]]
