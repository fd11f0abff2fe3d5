"""Calls of compiled functions: arguments, results, signatures, methods, loops, threads, errors."""

import dataclasses
import functools
import gc
import threading
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from replicax._src.context import thread_state
from tests.replicas import by_replica, context, few_replicas, mirrored, on_devices, parts_of

ON_READ = rx.VariableSynchronization.ON_READ

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


# ------------------------------------------------------------------ results


def test_results_of_every_sort(strategy: Any):
    shared = jnp.ones(2)

    @rx.function
    def step(x: Any) -> Any:
        y = strategy.run(lambda x: x * 2, (x,))
        return {
            "array": jnp.sum(x),
            "number": 3,
            "float": 2.5,
            "numpy": np.arange(2),
            "none": None,
            "text": "done",
            "argument": x,
            "shared": shared,
            "per_replica": y,
            "twice": (y, y),
            "empty": (),
        }

    for _ in range(2):
        result = step(jnp.arange(3.0))
        assert float(result["array"]) == 3.0
        assert int(result["number"]) == 3 and float(result["float"]) == 2.5
        assert list(result["numpy"]) == [0, 1]
        assert result["none"] is None and result["text"] == "done" and result["empty"] == ()
        np.testing.assert_allclose(result["argument"], [0.0, 1.0, 2.0])
        np.testing.assert_allclose(result["shared"], [1.0, 1.0])
        for part in parts_of(strategy, result["twice"][1]):
            np.testing.assert_allclose(part, [0.0, 2.0, 4.0])


def test_results_can_be_combined_with_other_arrays():
    strategy = mirrored(2)

    @rx.function
    def step(x: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(lambda x: x * 1, (x,)), axis=None)

    result = step(jnp.ones(2))
    np.testing.assert_allclose(result + jax.device_put(jnp.ones(2), jax.devices("cpu")[3]), [3, 3])
    assert result.devices() == {jax.devices("cpu")[0]}


def test_a_function_that_returns_nothing_or_an_object():
    class Thing:
        pass

    thing = Thing()
    assert rx.function(lambda: None)() is None
    assert rx.function(lambda x: thing)(jnp.ones(1)) is thing


# ------------------------------------------------------------------ shapes that differ


@few_replicas
def test_uneven_and_empty_batches_in_a_compiled_loop(strategy: Any):
    count = strategy.num_replicas_in_sync

    def make() -> tuple[Any, Any]:
        with strategy.scope():
            w = rx.Variable(jnp.ones(2))
            optimizer = rx.Optimizer(optax.adam(0.1))
            metric = rx.metrics.Mean()
            rows = rx.Variable(0.0, synchronization=ON_READ, aggregation="SUM")

        def step(x: Any) -> Any:
            def replica_fn(x: Any) -> Any:
                def loss() -> Any:
                    return rx.nn.compute_average_loss(
                        jnp.sum((x * w) ** 2, axis=-1), global_batch_size=8
                    )

                value, gradients = rx.value_and_grad(loss, [w])
                optimizer.apply_gradients(zip(gradients, [w]))
                metric.update_state(jnp.sum(x, axis=-1))
                rows.assign_add(float(x.shape[0]))
                return value

            return strategy.reduce("SUM", strategy.run(replica_fn, (x,)), axis=None)

        return step, lambda: [w.numpy(), metric.result(), rows.numpy(), optimizer.iterations]

    rng = np.random.default_rng(0)

    def batch(sizes: list[int]) -> Any:
        # Around 1: means around 0 are what rounding leaves of them.
        rows = [rng.normal(1.0, size=(n, 2)).astype(np.float32) for n in sizes]
        return on_devices(strategy, rows)

    batches = [
        batch([4] * count),
        batch([4] * (count - 1) + [2]),
        batch([4] * count),
        batch([1] + [0] * (count - 1)),
        batch([0] * count),
    ]
    eager, look_eager = make()
    step, look = make()
    compiled: Any = rx.function(step)
    for x in batches:
        np.testing.assert_allclose(compiled(x), eager(x), rtol=1e-5)
        for a, b in zip(look(), look_eager(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)
    expected_rows = sum(part.shape[0] for x in batches for part in x.values)
    assert look()[2] == expected_rows


def test_variables_made_by_an_uneven_first_batch():
    strategy = mirrored(2)
    made: list[Any] = []

    @rx.function
    def step(x: Any) -> Any:
        def replica_fn(x: Any) -> Any:
            if not made:
                made.append(rx.Variable(0.0, aggregation="SUM"))
            made[0].assign_add(jnp.sum(x))

        strategy.run(replica_fn, (x,))
        return made[0].read_value()

    uneven = rx.distribute.PerReplica([jnp.ones(2), jnp.ones(1)])
    even = rx.distribute.PerReplica([jnp.ones(2), jnp.ones(2)])
    assert [float(step(x)) for x in (uneven, even, uneven, even)] == [3.0, 7.0, 10.0, 14.0]


def test_an_uneven_batch_in_a_replica_function():
    strategy = mirrored(2)
    with strategy.scope():
        total = rx.Variable(0.0, aggregation="SUM")

    @rx.function
    def replica_fn(x: Any) -> Any:
        total.assign_add(jnp.sum(x))
        return context().all_gather(x, axis=0)

    even = rx.distribute.PerReplica([jnp.ones(2), jnp.ones(2)])
    uneven = rx.distribute.PerReplica([jnp.ones(2), jnp.ones(1)])
    for x, rows in ((even, 4), (uneven, 3), (even, 4)):
        assert parts_of(strategy, strategy.run(replica_fn, (x,)))[1].shape == (rows,)
    assert total.numpy() == 11.0


@pytest.mark.parametrize("deed", ["assign", "all_reduce"])
def test_an_uneven_batch_with_compiled_functions_inside(deed: str):
    strategy = mirrored(2)
    with strategy.scope():
        total = rx.Variable(0.0, aggregation="SUM")

    @rx.function
    def inner(x: Any) -> Any:
        if deed == "assign":
            total.assign_add(jnp.sum(x))
            return jnp.sum(x)
        return context().all_reduce("SUM", jnp.sum(x))

    step = rx.function(lambda x: strategy.run(lambda x: inner(x) + 1, (x,)))
    even = rx.distribute.PerReplica([jnp.ones(2), jnp.ones(2)])
    uneven = rx.distribute.PerReplica([jnp.ones(2), jnp.ones(1)])
    results = [parts_of(strategy, step(x)) for x in (even, uneven, even)]
    if deed == "assign":
        assert results == [[3.0, 3.0], [3.0, 2.0], [3.0, 3.0]]
        assert total.numpy() == 11.0
    else:
        assert results == [[5.0, 5.0], [4.0, 4.0], [5.0, 5.0]]


def test_a_captured_uneven_value():
    strategy = mirrored(2)
    uneven = rx.distribute.PerReplica([jnp.ones(2), jnp.ones(1)])
    step = rx.function(lambda x: strategy.run(lambda x, u: x + jnp.sum(u), (x, uneven)))
    for _ in range(2):
        assert parts_of(strategy, step(jnp.float32(1.0))) == [3.0, 2.0]


def test_empty_arrays_in_the_middle_of_a_program():
    strategy = mirrored(2)

    def replica_fn(x: Any) -> Any:
        nothing = x[:0]
        joined = context().all_gather(nothing, axis=0)
        total = context().all_reduce("SUM", nothing)
        return x + jnp.sum(joined) + jnp.sum(total), nothing

    result, nothing = rx.function(lambda x: strategy.run(replica_fn, (x,)))(jnp.ones(3))
    np.testing.assert_allclose(parts_of(strategy, result), np.ones((2, 3)))
    assert parts_of(strategy, nothing)[1].shape == (0,)


# ------------------------------------------------------------------ signatures


def signed() -> Any:
    traces: list[int] = []

    @rx.function(
        input_signature=[rx.TensorSpec([None, 2], "float32"), rx.TensorSpec([], "float32")]
    )
    def scale(x: Any, s: Any) -> Any:
        traces.append(1)
        assert isinstance(s, jax.Array)
        return x * s

    scale.traces = traces  # type: ignore[attr-defined]
    return scale


@pytest.mark.parametrize(
    "args",
    [
        (jnp.ones((3, 2)), 2.0),
        (jnp.ones((3, 2)), 2),
        (jnp.ones((3, 2)), True),
        (np.ones((3, 2)), 2.0),
        (np.ones((3, 2), np.int64), 2.0),  # NumPy is converted, arrays of another dtype are not
        ([[1.0, 1.0]], 2.0),
        (((1, 1), (1, 1)), 2.0),
        (rx.Variable(jnp.ones((1, 2))), rx.Variable(2.0)),
    ],
    ids=["good", "int", "bool", "float64", "int64", "list", "tuple", "variables"],
)
def test_arguments_that_fit_a_signature(args: Any):
    scale = signed()
    expected = np.asarray(args[0], np.float32) * np.float32(np.asarray(args[1]))
    np.testing.assert_allclose(scale(*args), expected)
    np.testing.assert_allclose(scale(x=args[0], s=args[1]), expected)
    np.testing.assert_allclose(scale(args[0], s=args[1]), expected)
    assert len(scale.traces) == 1


@pytest.mark.parametrize(
    "args, kwargs",
    [
        ((jnp.ones(3), 2.0), {}),
        ((jnp.ones((3, 3)), 2.0), {}),
        ((jnp.ones((3, 2), jnp.int32), 2.0), {}),
        ((jnp.ones((3, 2)),), {}),
        ((jnp.ones((3, 2)), 1.0, 2.0), {}),
        ((), {"x": jnp.ones((3, 2)), "z": 1.0}),
        (("text", 1.0), {}),
        ((None, 1.0), {}),
        ((jnp.ones((3, 2)), "text"), {}),
        ((jnp.ones((3, 2)), {"s": 1.0}), {}),
    ],
    ids=["rank", "size", "dtype", "few", "many", "keyword", "text", "none", "text2", "dict"],
)
def test_arguments_that_do_not_fit_a_signature(args: Any, kwargs: Any):
    # The same error class as TensorFlow's in each case.
    scale = signed()
    with pytest.raises(TypeError):
        scale(*args, **kwargs)
    assert not scale.traces


def test_signatures_of_structures_and_methods():
    spec = rx.TensorSpec([None], "float32")

    @rx.function(input_signature=[{"a": spec, "b": (spec, spec)}])
    def total(d: Any) -> Any:
        return jnp.sum(d["a"]) + jnp.sum(d["b"][0]) - jnp.sum(d["b"][1])

    assert float(total({"b": (jnp.ones(2), jnp.ones(1)), "a": jnp.ones(3)})) == 4.0
    for bad in ({"a": jnp.ones(1)}, [jnp.ones(1)], {"a": jnp.ones(1), "b": jnp.ones(2)}):
        with pytest.raises(TypeError):
            total(bad)

    class Model:
        @rx.function(input_signature=[spec])
        def double(self, x: Any) -> Any:
            return x * 2

    np.testing.assert_allclose(Model().double(jnp.ones(2)), [2.0, 2.0])
    np.testing.assert_allclose(Model().double(x=jnp.ones(3)), [2.0] * 3)
    with pytest.raises(TypeError):
        Model().double(jnp.ones((2, 2)))


def test_bad_signatures():
    with pytest.raises(TypeError, match="input_signature"):
        rx.function(lambda x: x, input_signature=[3])
    with pytest.raises(TypeError, match="input_signature"):
        rx.function(lambda x: x, input_signature=rx.TensorSpec([]))
    with pytest.raises(TypeError):
        rx.function(lambda x: x, input_signature=[rx.TensorSpec([])] * 2)(1.0)
    with pytest.raises(TypeError):
        rx.function(lambda x, y: x, input_signature=[rx.TensorSpec([])])(1.0)
    with_default = rx.function(lambda x, y=3.0: x + y, input_signature=[rx.TensorSpec([])])
    assert float(with_default(1.0)) == 4.0
    with pytest.raises(TypeError):
        with_default(1.0, 2.0)


def test_a_signature_for_per_replica_arguments():
    strategy = mirrored(2)
    spec = rx.TensorSpec([None, 2], "float32")
    traces: list[int] = []

    @rx.function(input_signature=[spec])
    def step(x: Any) -> Any:
        traces.append(1)
        return strategy.reduce("SUM", strategy.run(jnp.sum, (x,)), axis=None)

    assert float(step(rx.distribute.PerReplica([jnp.ones((2, 2)), jnp.ones((2, 2))]))) == 8.0
    assert float(step(rx.distribute.PerReplica([jnp.ones((2, 2)), jnp.ones((1, 2))]))) == 6.0
    with pytest.raises(TypeError):
        step(rx.distribute.PerReplica([jnp.ones(2), jnp.ones(2)]))


# ------------------------------------------------------------------ methods, nesting, no strategy


def test_two_instances_do_not_share_state():
    strategy = mirrored(2)

    class Counter:
        def __init__(self, start: float):
            self.factor = start
            with strategy.scope():
                self.v = rx.Variable(start, aggregation="SUM")

        @rx.function
        def add(self, x: Any) -> Any:
            strategy.run(lambda x: self.v.assign_add(x * self.factor), (x,))
            return self.v.read_value()

        @rx.function
        def replica_add(self, x: Any) -> Any:
            self.v.assign_add(x)
            return self.v * self.factor

    one, two = Counter(1.0), Counter(10.0)
    x = jnp.float32(1.0)
    assert [float(c.add(x)) for c in (one, two, one, two)] == [3.0, 30.0, 5.0, 50.0]
    assert parts_of(strategy, strategy.run(one.replica_add, (x,))) == [7.0, 7.0]
    assert parts_of(strategy, strategy.run(two.replica_add, (x,))) == [520.0, 520.0]
    assert float(Counter.add(one, x)) == 9.0  # through the class
    assert one.add == one.add and one.add != two.add


def test_static_and_class_methods():
    class Maths:
        factor = 3.0

        @staticmethod
        @rx.function
        def double(x: Any) -> Any:
            return x * 2

        @rx.function
        @staticmethod
        def triple(x: Any) -> Any:
            return x * 3

        @classmethod
        @rx.function
        def scaled(cls, x: Any) -> Any:
            return x * cls.factor

    assert float(Maths.double(jnp.float32(1.0))) == 2.0
    assert float(Maths().double(jnp.float32(1.0))) == 2.0
    assert float(Maths.triple(jnp.float32(1.0))) == 3.0
    assert float(Maths().triple(jnp.float32(1.0))) == 3.0
    assert float(Maths.scaled(jnp.float32(1.0))) == 3.0


def test_objects_that_compare_by_value_as_self():
    @dataclasses.dataclass
    class Model:
        scale: float

        @rx.function
        def apply(self, x: Any) -> Any:
            return x * self.scale

    class Slotted:
        __slots__ = ("scale",)

        def __init__(self, scale: float):
            self.scale = scale

        @rx.function
        def apply(self, x: Any) -> Any:
            return x * self.scale

    for kind in (Model, Slotted):
        a, b = kind(2.0), kind(3.0)
        assert [float(m.apply(jnp.float32(1.0))) for m in (a, b, a)] == [2.0, 3.0, 2.0]


def test_functions_nested_in_functions():
    strategy = mirrored(2)
    with strategy.scope():
        v = rx.Variable(0.0, aggregation="SUM")
    traces: list[str] = []

    @rx.function
    def inner(x: Any) -> Any:
        traces.append("inner")
        v.assign_add(x)
        return x * 2

    @rx.function
    def middle(x: Any) -> Any:
        traces.append("middle")
        y = strategy.run(inner, (x,))
        return strategy.run(inner, (y,))

    @rx.function
    def outer(x: Any) -> Any:
        traces.append("outer")
        return strategy.reduce("SUM", middle(x), axis=None)

    x = rx.distribute.PerReplica([1.0, 2.0])
    assert float(outer(x)) == 12.0
    assert v.numpy() == 9.0
    assert float(outer(x)) == 12.0
    assert v.numpy() == 18.0
    assert traces == ["outer", "middle", "inner", "inner"]
    assert parts_of(strategy, middle(x)) == [4.0, 8.0]
    assert parts_of(strategy, strategy.run(inner, (x,))) == [2.0, 4.0]
    assert v.numpy() == 30.0


def test_a_compiled_function_called_by_eager_replicas(strategy: Any):
    with strategy.scope():
        w = rx.Variable(2.0)
        own = rx.Variable(0.0, synchronization=ON_READ, aggregation="SUM")

    @rx.function
    def part(x: Any) -> Any:
        own.assign_add(x)
        return x * w, context().replica_id_in_sync_group

    def replica_fn(x: Any) -> Any:
        y, number = part(x)
        return context().all_reduce("SUM", y), number

    x = by_replica(strategy, lambda index: jnp.float32(index + 1))
    count = strategy.num_replicas_in_sync
    total = sum(range(1, count + 1))
    for calls in (1, 2):
        y, number = strategy.run(replica_fn, (x,))
        assert parts_of(strategy, y) == [2.0 * total] * count
        assert parts_of(strategy, number) == list(range(count))
        assert own.numpy() == calls * total


def test_collectives_in_a_function_that_eager_replicas_call():
    strategy = mirrored(2)
    part = rx.function(lambda x: context().all_reduce("SUM", x) * 2)
    for _ in range(2):
        result = strategy.run(lambda x: part(x), (rx.distribute.PerReplica([1.0, 2.0]),))
        assert parts_of(strategy, result) == [6.0, 6.0]
    assert thread_state.world is None


def test_no_strategy_at_all():
    w = rx.Variable(jnp.ones(2))
    optimizer = rx.Optimizer(optax.adam(0.1))
    traces: list[int] = []

    @rx.function
    def step(x: Any) -> Any:
        traces.append(1)
        assert not rx.distribute.has_strategy()
        loss, gradients = rx.value_and_grad(lambda: jnp.sum(w * x), [w])
        optimizer.apply_gradients(zip(gradients, [w]))
        return loss

    losses = [float(step(jnp.ones(2))) for _ in range(3)]
    np.testing.assert_allclose(losses, [2.0, 1.8, 1.6], rtol=1e-5)
    assert len(traces) == 2  # the first made the optimizer's state


def test_inside_a_scope_and_outside():
    strategy = mirrored(2)
    with strategy.scope():
        v = rx.Variable(1.0, aggregation="SUM")
    step = rx.function(lambda x: strategy.run(lambda x: v.assign_add(x).read_value(), (x,)))
    assert parts_of(strategy, step(jnp.float32(1.0))) == [3.0, 3.0]
    with strategy.scope():
        assert parts_of(strategy, step(jnp.float32(1.0))) == [5.0, 5.0]
        read = rx.function(lambda: v.read_value())
        assert float(read()) == 5.0
    assert float(read()) == 5.0


def test_one_function_under_several_strategies():
    function = rx.function(lambda x: context().all_reduce("SUM", x))
    for count in (1, 2, 3, 2):
        strategy = mirrored(count)
        result = strategy.run(function, (jnp.float32(1.0),))
        assert parts_of(strategy, result) == [count] * count


def test_many_strategies_that_come_and_go():
    # A strategy that is gone must not be taken for the next one at the same address.
    @rx.function
    def number_of_replicas(x: Any) -> Any:
        return x * rx.distribute.get_strategy().num_replicas_in_sync

    for count in (2, 3, 1, 2, 3, 1, 2, 3, 1):
        with mirrored(count).scope():
            assert float(number_of_replicas(jnp.float32(1.0))) == count
        gc.collect()


def test_many_strategies_that_come_and_go_and_run_one_function():
    number_of_replicas = rx.function(lambda x: x * context().num_replicas_in_sync)
    for count in (2, 3, 1, 2, 3, 1, 2, 3, 1):
        strategy = mirrored(count)
        result = strategy.run(number_of_replicas, (jnp.float32(1.0),))
        assert parts_of(strategy, result) == [count] * count
        del strategy, result
        gc.collect()


def test_partials_callables_and_builtins():
    class Callable:
        def __call__(self, x: Any) -> Any:
            return x * 4

    x = jnp.float32(2.0)
    assert float(rx.function(functools.partial(lambda a, b: a * b, 3.0))(x)) == 6.0
    assert float(rx.function(Callable())(x)) == 8.0
    assert float(rx.function(jnp.sin)(x)) == float(jnp.sin(x))
    assert float(rx.function(jax.jit(lambda x: x + 1))(x)) == 3.0
    assert rx.function(rx.function(abs)).__class__ is rx.function(abs).__class__


def test_what_cannot_be_compiled_is_refused_at_once():
    def generator(x: Any) -> Iterator[Any]:
        yield x

    async def coroutine(x: Any) -> Any:
        return x

    for bad in (generator, coroutine, 3, "text"):
        with pytest.raises(TypeError):
            rx.function(bad)  # type: ignore[arg-type]


# ------------------------------------------------------------------ data sets and iterators


class Batches:
    """An iterable of per-replica batches, as a distributed data set is."""

    def __init__(self, strategy: Any, sizes: list[list[int]]):
        self._strategy, self._sizes = strategy, sizes

    def __iter__(self) -> Iterator[Any]:
        for number, sizes in enumerate(self._sizes):
            yield on_devices(self._strategy, [np.full(n, number + 1, np.float32) for n in sizes])


def epoch_of(strategy: Any, defined_anew: bool) -> tuple[Any, Any, list[int]]:
    traces: list[int] = []
    with strategy.scope():
        v = rx.Variable(0.0, aggregation="SUM")

    def replica_fn(x: Any) -> Any:
        traces.append(1)
        v.assign_add(jnp.sum(x))
        return jnp.sum(x) * 2

    @rx.function
    def epoch(batches: Any) -> Any:
        total, count = 0.0, 0

        def anew(x: Any) -> Any:
            return replica_fn(x)

        for x in batches:
            fn = (lambda x: replica_fn(x)) if defined_anew else anew
            total += strategy.reduce("SUM", strategy.run(fn, (x,)), axis=None)
            count += 1
        return total, count

    return epoch, v, traces


@pytest.mark.parametrize("defined_anew", [False, True])
@pytest.mark.parametrize("as_iterator", ["dataset", "iterator", "generator", "list"])
def test_an_epoch_is_a_loop_of_compiled_steps(as_iterator: str, defined_anew: bool):
    strategy = mirrored(2)
    epoch, v, traces = epoch_of(strategy, defined_anew)
    batches: Any = Batches(strategy, [[2, 2]] * 5)
    total = 2 * 2 * (1 + 2 + 3 + 4 + 5)
    for calls in (1, 2):
        argument = {
            "dataset": lambda: batches,
            "iterator": lambda: iter(batches),
            "generator": lambda: (x for x in batches),
            "list": lambda: list(batches),
        }[as_iterator]()
        found, count = epoch(argument)
        assert float(found) == 2 * total and count == 5
        assert v.numpy() == calls * total
    if as_iterator == "list":
        assert len(traces) == 5  # a list is a structure of arguments: it is unrolled, once
    else:
        assert len(traces) == 1


def test_an_epoch_with_a_partial_last_batch():
    strategy = mirrored(2)
    epoch, v, traces = epoch_of(strategy, False)
    found, _ = epoch(Batches(strategy, [[2, 2], [2, 2], [2, 1]]))
    assert float(found) == 2 * (4 + 8 + 9)
    assert v.numpy() == 21.0
    assert len(traces) == 1 + 2  # compiled once; eagerly by each replica for the last
    found, _ = epoch(Batches(strategy, [[1, 0], [2, 2]]))
    assert v.numpy() == 21.0 + 1 + 8


def test_a_captured_iterator_and_next():
    strategy = mirrored(2)
    with strategy.scope():
        v = rx.Variable(0.0, aggregation="SUM")
    traces: list[int] = []

    def replica_fn(x: Any) -> None:
        traces.append(1)
        v.assign_add(jnp.sum(x))

    @rx.function
    def step(iterator: Any) -> None:
        strategy.run(replica_fn, (next(iterator),))

    iterator = iter(Batches(strategy, [[2, 2]] * 4))
    for _ in range(4):
        step(iterator)
    assert v.numpy() == 4 * (1 + 2 + 3 + 4)
    assert len(traces) == 1
    with pytest.raises(StopIteration):
        step(iterator)
    assert thread_state.compiled_runs is None


def test_an_epoch_in_a_method_with_state():
    strategy = mirrored(2)
    traces: list[int] = []

    class Trainer:
        def __init__(self) -> None:
            with strategy.scope():
                self.w = rx.Variable(jnp.ones(()))
                self.optimizer = rx.Optimizer(optax.sgd(0.01))

        def step(self, x: Any) -> Any:
            traces.append(1)
            loss, gradients = rx.value_and_grad(lambda: jnp.sum(self.w * x), [self.w])
            self.optimizer.apply_gradients(zip(gradients, [self.w]))
            return loss

        @rx.function
        def epoch(self, batches: Any) -> Any:
            losses = [strategy.run(self.step, (x,)) for x in batches]
            return losses[-1]

    trainers = [Trainer(), Trainer()]
    for trainer in trainers:
        trainer.epoch(Batches(strategy, [[1, 1]] * 3))
        np.testing.assert_allclose(trainer.w.numpy(), 1 - 0.01 * 2 * (1 + 2 + 3), rtol=1e-5)
    assert len(traces) <= 4  # once to make the optimizer's state, once more; for each


def test_numbers_of_the_loop_in_a_step_are_right():
    strategy = mirrored(2)
    traces: list[int] = []

    @rx.function
    def epoch(batches: Any) -> Any:
        results = []
        for number, x in enumerate(batches):

            def replica_fn(x: Any) -> Any:
                traces.append(1)
                return x + number  # noqa: B023 (called before the next one)

            results.append(strategy.run(replica_fn, (x,)))
        return results

    results = epoch(Batches(strategy, [[1, 1]] * 4))
    assert [float(parts_of(strategy, r)[1][0]) for r in results] == [1.0, 3.0, 5.0, 7.0]
    assert len(traces) == 4  # a number is a constant


def test_arrays_captured_in_a_step_of_a_loop_are_right():
    strategy = mirrored(2)

    @rx.function
    def epoch(batches: Any) -> Any:
        total = jnp.float32(0.0)
        for x in batches:
            y = strategy.run(lambda x: jnp.sum(x) + total, (x,))  # noqa: B023
            total = strategy.reduce("SUM", y, axis=None)
        return total

    assert float(epoch(Batches(strategy, [[1, 1]] * 3))) == ((1 + 1) * 2 + 4) * 2 + 6


def test_attributes_of_objects_that_a_step_in_a_loop_sees():
    # As eagerly; tf.function traces the body of such a loop once, and does not see them.
    strategy = mirrored(2)

    class Model:
        scale = 1.0

        def apply(self, x: Any) -> Any:
            return x * self.scale

    model = Model()

    @rx.function
    def epoch(batches: Any) -> Any:
        results = []
        for x in batches:
            results.append(strategy.run(model.apply, (x,)))
            model.scale *= 2
        return results

    results = epoch(Batches(strategy, [[1, 1]] * 3))
    assert [float(parts_of(strategy, r)[0][0]) for r in results] == [1.0, 4.0, 12.0]


# ------------------------------------------------------------------ threads


def test_threads_call_one_function():
    strategy = mirrored(2)
    with strategy.scope():
        v = rx.Variable(0.0, aggregation="SUM")
    traces: list[int] = []

    @rx.function
    def step(x: Any) -> Any:
        traces.append(1)
        strategy.run(lambda x: v.assign_add(x), (x,))
        return x * 2

    errors: list[BaseException] = []
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        try:
            barrier.wait()
            for _ in range(10):
                assert float(step(jnp.float32(number))) == 2 * number
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert v.numpy() == 2 * 10 * (0 + 1 + 2 + 3)
    assert len(traces) == 1


def test_threads_make_the_variables_once():
    made: list[Any] = []

    @rx.function
    def step(x: Any) -> Any:
        if not made:
            made.append(rx.Variable(0.0))
        return made[0].assign_add(x).read_value()

    errors: list[BaseException] = []
    barrier = threading.Barrier(4)

    def work() -> None:
        try:
            barrier.wait()
            for _ in range(5):
                step(jnp.float32(1.0))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(made) == 1
    assert made[0].numpy() == 20.0


# ------------------------------------------------------------------ errors leave nothing behind


def clean() -> bool:
    state = thread_state
    return (
        state.world is None
        and state.compiled_runs is None
        and not state.interceptors
        and not state.frames
        and not state.creators
    )


@pytest.mark.parametrize("where", ["cross", "replica", "merge", "update", "loss", "scan", "late"])
def test_an_exception_leaves_no_state_behind(where: str):
    strategy = mirrored(2)
    with strategy.scope():
        v = rx.Variable(1.0, aggregation="SUM")
    fail = [True]

    def boom(place: str) -> Any:
        if place == where and fail[0]:
            raise ZeroDivisionError(place)
        return 0.0

    @rx.function
    def step(x: Any) -> Any:
        boom("cross")

        def replica_fn(x: Any) -> Any:
            boom("replica")
            v.assign_add(x)

            def merge(s: Any, x: Any) -> Any:
                boom("merge")
                total = s.extended.reduce_to("SUM", x, v)
                s.extended.update(v, lambda c, t: (boom("update"), c.assign_sub(t))[1], (total,))

            context().merge_call(merge, (x,))
            loss, _ = rx.value_and_grad(lambda: v * x + boom("loss"), [v])
            jax.lax.scan(lambda c, _: (c + boom("scan"), None), 0.0, None, length=2)
            return loss

        result = strategy.run(replica_fn, (x,))
        boom("late")
        return result

    x = rx.distribute.PerReplica([2.0, 2.0])
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match=where) as caught:
            step(x)
        assert clean()
        assert any("step" in note for note in caught.value.__notes__)
        assert v.numpy() == 1.0
    fail[0] = False
    for _ in range(2):
        assert parts_of(strategy, step(x)) == [2.0, 2.0]
    assert v.numpy() == 1.0


def test_an_exception_in_a_loop_of_compiled_steps():
    strategy = mirrored(2)

    @rx.function
    def epoch(batches: Any) -> Any:
        for _ in batches:
            raise ZeroDivisionError("on purpose")

    with pytest.raises(ZeroDivisionError):
        epoch(Batches(strategy, [[1, 1]]))
    assert clean()


def test_an_exception_caught_inside_the_function():
    strategy = mirrored(2)

    @rx.function
    def step(x: Any) -> Any:
        def replica_fn(x: Any) -> Any:
            raise ZeroDivisionError("on purpose")

        try:
            strategy.run(replica_fn, (x,))
        except Exception:
            return strategy.run(lambda x: x * 2, (x,))

    assert parts_of(strategy, step(jnp.float32(1.0))) == [2.0, 2.0]
    assert clean()


def test_a_value_kept_from_a_trace_is_explained():
    kept: list[Any] = []

    @rx.function
    def leak(x: Any) -> Any:
        kept.append(x * 2)
        return x

    leak(jnp.float32(1.0))
    with pytest.raises(Exception, match=r"[Rr]eturn"):
        rx.function(lambda x: x + 1)(kept[0])
    with pytest.raises(jax.errors.UnexpectedTracerError) as caught:
        rx.function(lambda x: x + kept[0])(jnp.float32(1.0))
    assert any("Return it" in note for note in caught.value.__notes__)
    assert clean()


# ------------------------------------------------------------------ JAX around it


def test_jax_transformations_around_a_function_without_state():
    step = rx.function(lambda x: jnp.sum(x**2))
    np.testing.assert_allclose(jax.grad(step)(jnp.arange(3.0)), [0.0, 2.0, 4.0])
    assert float(jax.jit(step)(jnp.arange(3.0))) == 5.0
    np.testing.assert_allclose(jax.vmap(step)(jnp.ones((2, 3))), [3.0, 3.0])
    assert float(step(jnp.arange(3.0))) == 5.0


def test_jax_grad_around_a_function_with_variables():
    w = rx.Variable(3.0)
    step = rx.function(lambda x: x * w)
    assert float(jax.grad(step)(jnp.float32(1.0))) == 3.0
    w.assign(5.0)
    assert float(jax.grad(step)(jnp.float32(1.0))) == 5.0
    assert float(rx.grad(lambda: step(jnp.float32(2.0)), [w])[0]) == 2.0


def test_jax_jit_around_a_function_that_reads_or_writes_is_refused():
    w = rx.Variable(3.0)
    with pytest.raises(RuntimeError, match="read inside a function that JAX traces"):
        jax.jit(rx.function(lambda x: x * w))(jnp.float32(1.0))
    with pytest.raises(RuntimeError, match="rx.function in place of jax.jit"):
        jax.jit(rx.function(lambda x: w.assign(x).read_value()))(jnp.float32(1.0))
    assert w.numpy() == 3.0
    assert clean()


def test_settings_of_jax_are_seen():
    step = rx.function(lambda x: x * jnp.asarray(1 / 3))
    assert step(np.float64(1.0)).dtype == jnp.float32
    with jax.enable_x64(True):
        assert step(np.float64(1.0)).dtype == jnp.float64
    assert step(np.float64(1.0)).dtype == jnp.float32
