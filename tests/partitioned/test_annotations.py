"""The three annotations: what they refuse, that they change no value, and where they may stand."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType

import replicax as rx
from tests.partitioned.looking import logical_devices
from tests.partitioned.models import MESHES, MeshOf, mirrored_on, tpu_on
from tests.replicas import by_replica, parts_of

FOUR = MESHES["2x(2x2)"]


@functools.cache
def four_logical_devices() -> Any:
    """Two replicas of four logical devices each."""
    return mirrored_on(FOUR)


def where_it_may_stand(strategy: Any, fn: Callable[[], Any]) -> dict[str, Callable[[], Any]]:
    """Calls of `fn` in every context."""

    def in_scope() -> Any:
        with strategy.scope():
            return fn()

    return {
        "outside": fn,
        "scope": in_scope,
        "replica": lambda: strategy.run(fn),
        "function": lambda: rx.function(fn)(),
        "compiled run": lambda: rx.function(lambda: strategy.run(fn))(),
        "run of a function": lambda: strategy.run(rx.function(fn)),
        "merge_call": lambda: strategy.run(
            lambda: rx.distribute.get_replica_context().merge_call(lambda _: fn())  # type: ignore[union-attr]
        ),
    }


CONTEXTS = list(where_it_may_stand(None, lambda: None))


# --- refusals -------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "too few": ([2, 2], ValueError, r"with 2 number\(s\), but the tensor has 3 dimension"),
    "too many": ([1, 2, 2, 1], ValueError, r"with 4 number\(s\), but the tensor has 3 dimension"),
    "none": ([], ValueError, r"with 0 number\(s\), but the tensor has 3 dimension"),
    "product too small": ([1, 2, 1], ValueError, r"is 2, but a replica has 4 logical device"),
    "product too large": ([2, 2, 2], ValueError, r"is 8, but a replica has 4 logical device"),
    "not divisible": ([1, 1, 4], ValueError, r"dimension 2 of the tensor has size 6, which cannot"),
    "zero": ([0, 4, 1], ValueError, "below 1"),
    "negative": ([-2, -2, 1], ValueError, "below 1"),
    "a number": (4, TypeError, "is a list of integers; got 4"),
    "a text": ("411", TypeError, "is a list of integers; got '411'"),
    "nothing": (None, TypeError, "is a list of integers; got None"),
    "fractions": ([1, 4.0, 1], TypeError, "is a list of integers; got"),
    "truths": ([True, 4, True], TypeError, "is a list of integers; got"),
    "nested": ([[1], [4], [1]], TypeError, "is a list of integers; got"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_splits_that_are_refused(name: str):
    parts, error, text = REFUSED[name]
    strategy = four_logical_devices()

    def fn() -> Any:
        return strategy.experimental_split_to_logical_devices(jnp.ones((4, 8, 6)), parts)

    for call in where_it_may_stand(strategy, fn).values():
        with pytest.raises(error, match=text) as raised:
            call()
        assert "experimental_split_to_logical_devices" in str(raised.value)
        assert "partition_dimensions" in str(raised.value)


@pytest.mark.parametrize("number", [-1, 4, 99, np.int64(4)])
def test_logical_devices_that_there_are_not(number: int):
    strategy = four_logical_devices()

    def fn() -> Any:
        return strategy.experimental_assign_to_logical_device(jnp.ones(2), number)

    for call in where_it_may_stand(strategy, fn).values():
        with pytest.raises(
            ValueError, match=rf"no logical device {number}; .* 4, numbered from 0 to 3"
        ):
            call()


@pytest.mark.parametrize("number", [1.0, True, "0", None, [0]])
def test_logical_devices_that_are_no_numbers(number: Any):
    strategy = four_logical_devices()
    with pytest.raises(TypeError, match="`logical_device_id` is an integer; got"):
        strategy.experimental_assign_to_logical_device(jnp.ones(2), number)


@pytest.mark.parametrize("tensor", [{"a": jnp.ones(4)}, "text", None, object(), [jnp.ones(2), "x"]])
def test_what_is_no_tensor(tensor: Any):
    strategy = four_logical_devices()
    for call in (
        lambda: strategy.experimental_split_to_logical_devices(tensor, [4]),
        lambda: strategy.experimental_replicate_to_logical_devices(tensor),
        lambda: strategy.experimental_assign_to_logical_device(tensor, 0),
    ):
        with pytest.raises(TypeError, match="takes one tensor; got"):
            call()


# --- values are unchanged -------------------------------------------------------------------------

DTYPES = ["bfloat16", "int8", "bool", "complex64"]

# Of tensors of rank 2, over four logical devices.
MARKS: dict[str, Callable[[Any, Any], Any]] = {
    "split": lambda s, x: s.experimental_split_to_logical_devices(x, [4, 1]),
    "split twice": lambda s, x: s.experimental_split_to_logical_devices(
        s.experimental_split_to_logical_devices(x, [2, 2]), [1, 4]
    ),
    "replicate": lambda s, x: s.experimental_replicate_to_logical_devices(x),
    "assign": lambda s, x: s.experimental_assign_to_logical_device(x, 3),
    "assign, then split": lambda s, x: s.experimental_split_to_logical_devices(
        s.experimental_assign_to_logical_device(x, 2), [1, 4]
    ),
    "split, then replicate": lambda s, x: s.experimental_replicate_to_logical_devices(
        s.experimental_split_to_logical_devices(x, [1, 4])
    ),
    "split, then assign": lambda s, x: s.experimental_assign_to_logical_device(
        s.experimental_split_to_logical_devices(x, [1, 4]), 1
    ),
}


@pytest.mark.parametrize(
    ("mark", "dtype"),
    [*((mark, "float32") for mark in MARKS), *(("split, then assign", each) for each in DTYPES)],
)
def test_values_are_unchanged(mark: str, dtype: str):
    strategy = four_logical_devices()
    value = jnp.asarray(np.arange(32).reshape(4, 8) % 5, dtype)
    calls = where_it_may_stand(strategy, lambda: MARKS[mark](strategy, value))
    for call in calls.values():
        for part in strategy.experimental_local_results(call()):
            assert part.dtype == value.dtype and part.shape == value.shape
            np.testing.assert_array_equal(np.asarray(part), value)


def over_all_devices(kind: AxisType) -> jax.Array:
    mesh = jax.make_mesh((8,), ("x",), axis_types=(kind,))
    return jax.device_put(jnp.ones((4, 8)), jax.NamedSharding(mesh, jax.P(None, "x")))


INPUTS: dict[str, Callable[[], Any]] = {
    "numpy": lambda: np.ones((4, 8), np.float32),
    "python": lambda: [[1.0] * 8] * 4,
    "jax": lambda: jnp.ones((4, 8)),
    "on another device": lambda: jax.device_put(jnp.ones((4, 8)), jax.devices()[7]),
    "over all devices": lambda: over_all_devices(AxisType.Auto),
    "variable": lambda: rx.Variable(jnp.ones((4, 8))),
}


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("mark", ["split", "replicate", "assign"])
def test_anything_like_a_tensor(mark: str, kind: str):
    strategy = four_logical_devices()
    value = INPUTS[kind]()
    calls = where_it_may_stand(strategy, lambda: MARKS[mark](strategy, value))
    for where in ("outside", "scope", "replica", "compiled run"):
        for part in strategy.experimental_local_results(calls[where]()):
            assert isinstance(part, jax.Array)
            np.testing.assert_array_equal(np.asarray(part), np.ones((4, 8)))


@pytest.mark.parametrize("mark", MARKS)
def test_variables_of_the_strategy(mark: str):
    strategy = four_logical_devices()
    with strategy.scope():
        variables = [
            rx.Variable(jnp.ones((4, 8))),
            rx.Variable(jnp.ones((4, 8)), layout=[1, 4]),
            rx.Variable(jnp.ones((4, 8)), layout=rx.distribute.Layout((2, 2), replica_dim=1)),
        ]
    for variable in variables:

        def fn(variable: Any = variable) -> Any:
            return MARKS[mark](strategy, variable)

        calls = where_it_may_stand(strategy, fn)
        for where in ("outside", "scope", "replica", "compiled run"):
            for part in strategy.experimental_local_results(calls[where]()):
                np.testing.assert_array_equal(np.asarray(part), np.ones((4, 8)))


@pytest.mark.parametrize("mark", MARKS)
def test_per_replica_values_in_cross_replica_context(mark: str):
    strategy = four_logical_devices()
    value = by_replica(strategy, lambda index: jnp.full((4, 8), float(index)))
    for fn in (MARKS[mark], lambda s, x: rx.function(lambda x: MARKS[mark](s, x))(x)):
        with strategy.scope():
            result = fn(strategy, value)
        assert isinstance(result, rx.distribute.PerReplica)
        for index, part in enumerate(strategy.experimental_local_results(result)):
            np.testing.assert_array_equal(part, np.full((4, 8), float(index)))
            if fn is MARKS[mark]:
                assert part.devices() <= set(logical_devices(strategy, index))


def test_without_logical_devices_they_do_nothing(strategy: Any, executor: Any):
    value = jnp.arange(6.0).reshape(2, 3)

    def fn(x: Any) -> Any:
        x = strategy.experimental_split_to_logical_devices(x, [1, 1])
        x = strategy.experimental_assign_to_logical_device(x, 0)
        return strategy.experimental_replicate_to_logical_devices(x)

    for part in parts_of(strategy, executor.run(strategy, fn, (value,))):
        np.testing.assert_array_equal(part, value)
    np.testing.assert_array_equal(fn(value), value)
    with pytest.raises(ValueError, match="a replica has 1 logical device"):
        strategy.experimental_split_to_logical_devices(value, [2, 1])
    with pytest.raises(ValueError, match="no logical device 1"):
        strategy.experimental_assign_to_logical_device(value, 1)


@pytest.mark.parametrize("parts", [[3, 2], [2, 3], [6, 1], [1, 6]])
def test_a_number_of_logical_devices_with_several_primes(parts: list[int], executor: Any):
    mesh = MeshOf(1, 6)
    strategy = mirrored_on(mesh)
    value = jnp.arange(72.0).reshape(6, 12)

    def fn(x: Any) -> Any:
        return strategy.experimental_split_to_logical_devices(x, parts)

    result = executor.run(strategy, fn, (value,))
    np.testing.assert_array_equal(result, value)
    shape = (6 // parts[0], 12 // parts[1])
    assert {shard.data.shape for shard in result.addressable_shards} == {shape}
    assert len({shard.device for shard in result.addressable_shards}) == 6
    with strategy.scope():
        variable = rx.Variable(value, layout=parts)
    np.testing.assert_array_equal(variable.numpy(), value)


@settings(max_examples=20)
@given(
    logical=st.sampled_from([2, 3, 4, 6, 8]),
    rank=st.integers(1, 4),
    compiled=st.booleans(),
    data=st.data(),
)
def test_no_split_changes_a_value(logical: int, rank: int, compiled: bool, data: Any):
    strategy = mirrored_on(MeshOf(8 // logical, logical))
    rest, parts = logical, []
    for _ in range(rank - 1):
        count = data.draw(st.sampled_from([n for n in range(1, rest + 1) if rest % n == 0]))
        parts.append(count)
        rest //= count
    parts = data.draw(st.permutations([*parts, rest]))
    shape = tuple(count * data.draw(st.integers(1, 3)) for count in parts)
    value = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)

    def fn(x: Any) -> Any:
        return strategy.experimental_split_to_logical_devices(x, parts)

    run = lambda x: strategy.run(fn, args=(x,))  # noqa: E731
    result = (rx.function(run) if compiled else run)(jnp.asarray(value))
    for replica, part in enumerate(strategy.experimental_local_results(result)):
        np.testing.assert_array_equal(part, value)
        assert part.devices() == set(logical_devices(strategy, replica))
        pieces = {str(shard.index) for shard in part.addressable_shards}
        assert len(pieces) == logical  # every device has another piece
        for shard in part.addressable_shards:
            np.testing.assert_array_equal(shard.data, value[shard.index])


# --- inside of JAX's transformations --------------------------------------------------------------

WEIGHTS = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
INPUT = np.random.default_rng(1).normal(scale=0.2, size=(4, 8)).astype(np.float32)


def plain_loss(w: Any, x: Any, mark: Callable[[Any], Any] = lambda x: x) -> Any:
    return jnp.sum(jnp.square(mark(jnp.tanh(mark(x) @ w))))


def require_close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("compile_loss", [False, True], ids=["", "compiled_loss"])
@pytest.mark.parametrize("mark", MARKS)
def test_value_and_grad(mark: str, executor: Any, compile_loss: bool):
    strategy = four_logical_devices()
    with strategy.scope():
        w = rx.Variable(WEIGHTS)

    def fn(x: Any) -> Any:
        def loss() -> Any:
            return plain_loss(w.value(), x, lambda x: MARKS[mark](strategy, x))

        return rx.value_and_grad(loss, [w], compile=compile_loss)

    x = by_replica(strategy, lambda index: jnp.asarray(INPUT) * (index + 1))
    value, (gradient,) = executor.run(strategy, fn, (x,))
    values = strategy.experimental_local_results(value)
    gradients = strategy.experimental_local_results(gradient)
    for index in range(2):
        expected = jax.value_and_grad(plain_loss)(WEIGHTS, INPUT * (index + 1))
        require_close(values[index], expected[0])
        require_close(gradients[index], expected[1])
        assert gradients[index].devices() <= set(logical_devices(strategy, index))


# Assigning in the middle of a computation is left out: eagerly, what follows must be brought
# together with tensors of other devices by hand.
INSIDE = ["split", "split, then replicate"]


def transformed(name: str, mark: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """A function of weights and inputs in which `mark` stands inside of something of JAX's."""

    def checkpoint(w: Any, x: Any) -> Any:
        return jax.grad(jax.checkpoint(lambda w, x: plain_loss(w, x, mark)))(w, x)

    def scan(w: Any, x: Any) -> Any:
        def body(carry: Any, _: Any) -> Any:
            carry = mark(jnp.tanh(carry @ w))
            return carry, jnp.sum(carry)

        return jax.lax.scan(body, x, None, length=3)[0]

    def vmap(w: Any, x: Any) -> Any:
        return jax.vmap(lambda x: jnp.tanh(mark(x) @ w))(jnp.stack([x, 2 * x]))

    def cond(w: Any, x: Any) -> Any:
        return jax.lax.cond(jnp.sum(x) > 0, lambda: mark(x @ w), lambda: mark(mark(x - 1) @ w))

    def while_loop(w: Any, x: Any) -> Any:
        def body(state: Any) -> Any:
            number, x = state
            return number + 1, mark(jnp.tanh(x @ w))

        return jax.lax.while_loop(lambda state: state[0] < 3, body, (0, x))[1]

    def jit(w: Any, x: Any) -> Any:
        return jax.jit(lambda x: mark(x) @ w)(x)

    def jvp(w: Any, x: Any) -> Any:
        return jax.jvp(lambda w: mark(x) @ mark(w), (w,), (jnp.ones_like(w),))[1]

    def map(w: Any, x: Any) -> Any:
        return jax.lax.map(lambda x: mark(x) @ w, jnp.stack([x, 2 * x]))

    return {
        each.__name__: each for each in (checkpoint, scan, vmap, cond, while_loop, jit, jvp, map)
    }[name]


TRANSFORMATIONS = "checkpoint scan vmap cond while_loop jit jvp map".split()


@pytest.mark.parametrize("mark", INSIDE)
@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_inside_of(name: str, mark: str, executor: Any):
    strategy = four_logical_devices()
    fn = transformed(name, lambda x: MARKS[mark](strategy, x))
    x = by_replica(strategy, lambda index: jnp.asarray(INPUT) * (index + 1))
    result = executor.run(strategy, lambda x: fn(jnp.asarray(WEIGHTS), x), (x,))
    for index, part in enumerate(strategy.experimental_local_results(result)):
        expected = transformed(name, lambda x: x)(WEIGHTS, INPUT * (index + 1))
        require_close(part, expected)
        assert part.devices() <= set(logical_devices(strategy, index))


@pytest.mark.xfail(reason="inside of a program for replicas XLA wants branches to end alike")
def test_marks_that_differ_by_branch():
    strategy = four_logical_devices()

    def fn(x: Any) -> Any:
        def marked() -> Any:
            return strategy.experimental_split_to_logical_devices(x @ WEIGHTS, [4, 1])

        return jax.lax.cond(jnp.sum(x) > 0, marked, lambda: x @ WEIGHTS)

    result = rx.function(lambda: strategy.run(fn, args=(jnp.asarray(INPUT),)))()
    for part in strategy.experimental_local_results(result):
        require_close(part, INPUT @ WEIGHTS)


# --- tensors of different logical devices ---------------------------------------------------------


def test_eagerly_an_assigned_tensor_is_computed_with_on_its_device():
    strategy = four_logical_devices()

    def fn() -> Any:
        one = strategy.experimental_assign_to_logical_device(jnp.ones(4), 1)
        return one * 2 + 1

    for index, part in enumerate(strategy.experimental_local_results(strategy.run(fn))):
        assert part.devices() == {logical_devices(strategy, index)[1]}


def test_tensors_of_different_logical_devices_need_to_be_brought_together():
    strategy = four_logical_devices()

    def fn(bring: Callable[[Any], Any]) -> Any:
        one = strategy.experimental_assign_to_logical_device(jnp.ones((4, 4)), 1)
        other = strategy.experimental_split_to_logical_devices(jnp.ones((4, 4)), [4, 1])
        return bring(one) + other

    with pytest.raises(ValueError, match="experimental_replicate_to_logical_devices"):
        strategy.run(lambda: fn(lambda x: x))
    mended = lambda: fn(strategy.experimental_replicate_to_logical_devices)  # noqa: E731
    for part in strategy.experimental_local_results(strategy.run(mended)):
        np.testing.assert_array_equal(part, np.full((4, 4), 2.0))
    # One compiled program runs on all logical devices, and has nothing to bring together.
    compiled = rx.function(lambda: strategy.run(lambda: fn(lambda x: x)))
    for part in strategy.experimental_local_results(compiled()):
        np.testing.assert_array_equal(part, np.full((4, 4), 2.0))


def test_a_tpu_strategy_has_the_same_annotations():
    strategy = tpu_on(FOUR)
    value = jnp.arange(32.0).reshape(4, 8)
    for mark in MARKS.values():
        for result in (
            strategy.run(lambda mark=mark: mark(strategy, value)),
            mark(strategy, value),
        ):
            for part in strategy.experimental_local_results(result):
                np.testing.assert_array_equal(part, value)
    with pytest.raises(ValueError, match="is 2, but a replica has 4"):
        strategy.run(lambda: strategy.experimental_split_to_logical_devices(value, [2, 1]))
