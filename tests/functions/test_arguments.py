"""Arguments of compiled functions: what they may be, and which are constants."""

import dataclasses
import functools
from collections import OrderedDict, namedtuple
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax._src.context import thread_state
from tests.replicas import by_replica, context, mirrored, parts_of

Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Batch:
    x: Any
    label: str


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Registered:
    x: Any
    y: Any
    name: str = dataclasses.field(metadata={"static": True}, default="it")


@jax.tree_util.register_pytree_node_class
class Node:
    def __init__(self, x: Any, tag: str):
        self.x, self.tag = x, tag

    def tree_flatten(self) -> Any:
        return (self.x,), self.tag

    @classmethod
    def tree_unflatten(cls, tag: str, children: Any) -> Any:
        return cls(children[0], tag)


# ------------------------------------------------------------------ arguments


@pytest.mark.parametrize(
    "parts",
    [
        [jnp.ones(2), 2 * jnp.ones(2)],
        [np.ones(2, np.float32), np.full(2, 2.0)],
        [np.ones(2), np.full(2, 2.0)],
        [jnp.float32(1.0), jnp.float32(2.0)],
        [np.float32(1.0), np.float32(2.0)],
        [1.0, 2.0],
        [1, 2],
        [1, 2.0],
        [True, 2],
    ],
    ids=[
        "arrays",
        "mixed_numpy",
        "numpy",
        "scalars",
        "numpy_scalars",
        "floats",
        "ints",
        "mixed",
        "bools",
    ],
)
def test_per_replica_arguments(parts: list[Any]):
    strategy = mirrored(2)
    value = rx.distribute.PerReplica(parts)

    def step(x: Any) -> Any:
        def replica_fn(x: Any) -> Any:
            return jnp.asarray(x) * 2 + context().replica_id_in_sync_group

        return strategy.run(replica_fn, (x,))

    compiled = rx.function(step)
    for _ in range(2):
        found, expected = compiled(value), step(value)
        for a, b in zip(parts_of(strategy, found), parts_of(strategy, expected), strict=True):
            np.testing.assert_allclose(a, b)
            assert a.dtype == b.dtype


def test_mirrored_and_plain_arguments_reach_every_replica(strategy: Any):
    count = strategy.num_replicas_in_sync
    step = rx.function(lambda *args: strategy.run(lambda *args: sum(args) + 0.0, args))
    whole = rx.distribute.Mirrored([jnp.float32(1.0)] * count)
    result = step(whole, jnp.float32(10.0), np.float32(100.0), 1000, np.array(1e4))
    assert parts_of(strategy, result) == [11111.0] * count


def test_a_mirrored_argument_stays_mirrored():
    strategy = mirrored(2)
    whole = strategy.extended.broadcast_to(jnp.ones(2), None)

    @rx.function
    def step(x: Any) -> Any:
        assert isinstance(x, rx.distribute.Mirrored)
        return strategy.reduce("MEAN", x, axis=None), x

    mean, again = step(whole)
    np.testing.assert_allclose(mean, [1.0, 1.0])
    assert isinstance(again, rx.distribute.Mirrored)


def test_structures_as_arguments_and_results():
    strategy = mirrored(2)
    x = by_replica(strategy, lambda index: jnp.float32(index + 1))
    argument = {
        "pair": Pair(x, [x, None]),
        "batch": Batch(x, "train"),
        "registered": Registered(x, jnp.float32(5.0), "r"),
        "node": Node(x, "n"),
        "ordered": OrderedDict(b=x, a=(x,)),
        "rest": [None, "text", 3, (), {}, []],
        1: x,  # keys that do not sort
    }

    def replica_fn(argument: Any) -> Any:
        assert isinstance(argument["pair"], Pair) and argument["pair"].right[1] is None
        assert argument["batch"].label == "train"
        assert argument["registered"].name == "r" and argument["node"].tag == "n"
        assert argument["rest"] == [None, "text", 3, (), {}, []]
        return {
            "pair": Pair(argument["pair"].left * 2, argument["pair"].right[0]),
            "batch": Batch(argument["batch"].x + 1, "out"),
            "registered": Registered(argument["registered"].y, argument["registered"].x, "q"),
            "node": Node(argument["node"].x * 3, "m"),
            "ordered": argument["ordered"]["a"][0] + argument["ordered"]["b"],
            "rest": [None, "text", (), {}],
            1: argument[1] * 10,
        }

    step = rx.function(lambda argument: strategy.run(replica_fn, (argument,)))
    for _ in range(2):
        result = step(argument)
        assert parts_of(strategy, result["pair"].left) == [2.0, 4.0]
        assert isinstance(result["pair"], Pair)
        assert isinstance(result["batch"], Batch) and result["batch"].label == "out"
        assert parts_of(strategy, result["batch"].x) == [2.0, 3.0]
        assert result["registered"].name == "q"
        assert parts_of(strategy, result["registered"].y) == [1.0, 2.0]
        assert result["node"].tag == "m"
        assert parts_of(strategy, result["node"].x) == [3.0, 6.0]
        assert parts_of(strategy, result["ordered"]) == [2.0, 4.0]
        assert result["rest"] == [None, "text", (), {}]
        assert parts_of(strategy, result[1]) == [10.0, 20.0]


def test_keyword_default_and_variable_arguments():
    strategy = mirrored(2)
    with strategy.scope():
        v = rx.Variable(1.0, aggregation="SUM")
    plain = rx.Variable(100.0)
    traces: list[Any] = []

    @rx.function
    def step(x: Any, *rest: Any, scale: Any = 2.0, variable: Any = None, **more: Any) -> Any:
        traces.append(sorted(more))

        def replica_fn(x: Any, variable: Any) -> Any:
            if variable is not None:
                variable.assign_add(x)
            return x * scale + sum(rest) + sum(more.values())

        return strategy.run(replica_fn, (x, variable))

    x = rx.distribute.PerReplica([1.0, 2.0])
    assert parts_of(strategy, step(x)) == [2.0, 4.0]
    assert parts_of(strategy, step(x, scale=2.0)) == [2.0, 4.0]
    assert parts_of(strategy, step(x=x)) == [2.0, 4.0]
    assert parts_of(strategy, step(x, 10.0, jnp.float32(1.0), scale=3)) == [14.0, 17.0]
    assert parts_of(strategy, step(x, more=5.0, scale=jnp.float32(1.0))) == [6.0, 7.0]
    step(x, variable=v)
    step(x, variable=plain)
    step(x, variable=v)
    assert (v.numpy(), plain.numpy()) == (7.0, 103.0)


def test_python_values_are_constants_and_arrays_are_not():
    seen: list[Any] = []

    @rx.function
    def step(x: Any, n: Any) -> Any:
        seen.append(n)
        return x * n

    x = jnp.ones(2)
    for n in (2, 3, 2, 2.0, True, 1, 2, -0.0, 0.0):
        np.testing.assert_allclose(step(x, n), np.ones(2) * n)
    assert [(type(n), n) for n in seen] == [
        (int, 2), (int, 3), (float, 2.0), (bool, True), (int, 1), (float, 0.0), (float, 0.0),
    ]  # fmt: skip
    assert np.signbit(np.asarray(step(x, -0.0))).all()
    assert not np.signbit(np.asarray(step(x, 0.0))).any()
    seen.clear()
    for n in (2.0, 3.0, 4.0):
        step(x, jnp.asarray(n))
        step(x, np.float32(n))
        step(x, np.array(n, np.float32))
    assert len(seen) == 2  # jnp.asarray(2.0) is weakly typed, the others are not


def test_committed_arrays_do_not_trace_again_and_weak_ones_do_as_in_jit():
    traces: list[int] = []

    @rx.function
    def step(x: Any) -> Any:
        traces.append(1)
        return x + 1

    for x in (jnp.float32(1), jnp.asarray(1.0), jax.device_put(1.0, jax.devices("cpu")[0])):
        assert step(x) == 2.0 and step(x).dtype == jnp.float32
    assert len(traces) == 2


def test_functions_types_and_objects_as_constants():
    class Settings:
        def __init__(self, scale: float):
            self.scale = scale

    @dataclasses.dataclass(frozen=True)
    class Frozen:
        scale: float

    @rx.function
    def step(x: Any, what: Any) -> Any:
        return x * (what.scale if hasattr(what, "scale") else what(2.0))

    x = jnp.float32(3.0)
    assert float(step(x, Settings(2.0))) == 6.0
    assert float(step(x, Settings(5.0))) == 15.0
    assert float(step(x, Frozen(2.0))) == 6.0
    assert float(step(x, Frozen(4.0))) == 12.0
    assert float(step(x, lambda y: y + 1)) == 9.0
    assert float(step(x, functools.partial(lambda y, z: y + z, z=5))) == 21.0
    assert float(step(x, int)) == 6.0


def test_numpy_arguments_may_be_changed_after_the_call(strategy: Any):
    step = rx.function(lambda x: strategy.run(lambda x: x + 0.0, (x,)))
    data = np.zeros(1000, np.float32)
    results = []
    for number in range(5):
        data[:] = number
        results.append(step(data))
    data[:] = -1
    for number, result in enumerate(results):
        for part in parts_of(strategy, result):
            np.testing.assert_array_equal(part, np.full(1000, number))


def test_numpy_inside_a_per_replica_value_may_be_changed_and_passed_again():
    strategy = mirrored(2)
    step = rx.function(lambda x: strategy.run(lambda x: x * 2, (x,)))
    data = [np.full(4, 1.0, np.float32), np.full(4, 2.0, np.float32)]
    value = rx.distribute.PerReplica(data)
    np.testing.assert_allclose(parts_of(strategy, step(value))[0], np.full(4, 2.0))
    data[0][:] = 10.0
    eager = parts_of(strategy, strategy.run(lambda x: x * 2, (value,)))
    np.testing.assert_allclose(parts_of(strategy, step(value))[0], eager[0])


def test_numpy_captured_by_closure_is_what_it_was_when_traced():
    data = np.ones(2, np.float32)
    step = rx.function(lambda x: x + data)
    np.testing.assert_allclose(step(jnp.zeros(2)), [1.0, 1.0])
    data[:] = 5.0  # as in TensorFlow, a constant of the trace
    np.testing.assert_allclose(step(jnp.zeros(2)), [1.0, 1.0])


def test_captured_per_replica_and_mirrored_values():
    strategy = mirrored(2)
    captured = by_replica(strategy, lambda index: jnp.full(2, index + 1.0))
    whole = strategy.extended.broadcast_to(jnp.full(2, 10.0), None)

    @rx.function
    def step(x: Any) -> Any:
        first = strategy.run(lambda x, c, w: x + c + w, (x, captured, whole))
        return first, strategy.reduce("SUM", captured, axis=None)

    for _ in range(2):
        first, total = step(jnp.zeros(2))
        np.testing.assert_allclose(parts_of(strategy, first), [[11.0] * 2, [12.0] * 2])
        np.testing.assert_allclose(total, [3.0, 3.0])


def test_per_replica_values_made_inside():
    strategy = mirrored(2)

    @rx.function
    def step(x: Any) -> Any:
        made = strategy.experimental_distribute_values_from_function(
            lambda each: x * (each.replica_id_in_sync_group + 1)
        )
        return strategy.run(lambda y: y + 1, (made,)), strategy.reduce("SUM", made, axis=None), made

    for _ in range(2):
        result, total, made = step(jnp.ones(2))
        np.testing.assert_allclose(parts_of(strategy, result), [[2.0] * 2, [3.0] * 2])
        np.testing.assert_allclose(total, [3.0, 3.0])
        np.testing.assert_allclose(parts_of(strategy, made), [[1.0] * 2, [2.0] * 2])


@pytest.mark.parametrize("parts", [[1, 2], [1.0, 2.0], [np.float32(1), np.float32(2)]])
def test_per_replica_numbers_made_inside(parts: list[Any]):
    strategy = mirrored(2)
    value = rx.distribute.PerReplica(parts)
    captured = rx.function(lambda x: strategy.run(lambda y: y * x, (value,)))
    made = rx.function(lambda x: strategy.run(lambda y: y * x, (rx.distribute.PerReplica(parts),)))
    for step in (captured, made):
        for _ in range(2):
            assert parts_of(strategy, step(jnp.float32(2.0))) == [2.0, 4.0]


def test_a_per_replica_argument_of_a_function_that_knows_no_strategy():
    value = rx.distribute.PerReplica([1.0, 2.0])
    result = rx.function(lambda x: (x, x.values[1] * 10))(value)
    assert [float(part) for part in result[0].values] == [1.0, 2.0]
    assert float(result[1]) == 20.0


def test_random_keys_as_arguments():
    strategy = mirrored(2)
    key = jax.random.key(0)

    def replica_fn(key: Any) -> Any:
        own = jax.random.fold_in(key, context().replica_id_in_sync_group)
        return jax.random.normal(own, (2,)), own

    found, keys = rx.function(lambda key: strategy.run(replica_fn, (key,)))(key)
    expected = [jax.random.normal(jax.random.fold_in(key, i), (2,)) for i in range(2)]
    np.testing.assert_allclose(parts_of(strategy, found), expected, rtol=1e-6)
    for index, each in enumerate(strategy.experimental_local_results(keys)):
        assert jax.random.key_data(each).tolist() == (
            jax.random.key_data(jax.random.fold_in(key, index)).tolist()
        )


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "uint32", "bool", "complex64", "float16"])
def test_dtypes_go_through(dtype: str):
    strategy = mirrored(2)
    x = rx.distribute.PerReplica([jnp.ones(2, dtype), jnp.zeros(2, dtype)])
    result = rx.function(lambda x: strategy.run(lambda x: (x, x[:1]), (x,)))(x)
    for part in parts_of(strategy, result[0]) + parts_of(strategy, result[1]):
        assert part.dtype == jnp.dtype(dtype)


def test_values_for_another_number_of_replicas_are_refused():
    strategy = mirrored(2)
    step = rx.function(lambda x: strategy.run(lambda x: x, (x,)))
    with pytest.raises(ValueError, match="replica"):
        step(rx.distribute.PerReplica([1.0, 2.0, 3.0]))
    assert thread_state.world is None
    assert parts_of(strategy, step(rx.distribute.PerReplica([1.0, 2.0]))) == [1.0, 2.0]
