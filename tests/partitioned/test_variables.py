"""Variables in parts: read, changed, shown and copied as if they were whole."""

import copy
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from tests.partitioned.looking import bytes_by_device, bytes_on_each, logical_devices
from tests.partitioned.models import MESHES, mirrored_on, state_layout, tpu_on
from tests.replicas import by_replica, context, parts_of
from tests.under_test import cpus

Layout = rx.distribute.Layout
START = np.arange(32, dtype=np.float32).reshape(8, 4)
SUM, MEAN = rx.VariableAggregation.SUM, rx.VariableAggregation.MEAN
FIRST = rx.VariableAggregation.ONLY_FIRST_REPLICA

# Of a variable of 8 x 4 with two replicas of four logical devices: bytes, of 128, on each device.
LAYOUTS: dict[str, tuple[Any, int]] = {
    "whole": (None, 128),
    "rows": ([4, 1], 32),
    "both": ([2, 2], 32),
    "over replicas": (Layout(replica_dim=0), 64),
    "over all": (Layout((1, 4), replica_dim=0), 16),
    "over all in one dimension": (Layout((4, 1), replica_dim=0), 16),
}
layouts = pytest.mark.parametrize("layout", LAYOUTS)


def strategy_of(kind: str = "mirrored", **kwargs: Any) -> Any:
    return (mirrored_on if kind == "mirrored" else tpu_on)(MESHES["2x(2x2)"], **kwargs)


def variable_in(strategy: Any, layout: str, value: Any = START, **kwargs: Any) -> Any:
    with strategy.scope():
        return rx.Variable(value, layout=LAYOUTS[layout][0], **kwargs)


def require(variable: Any, expected: Any, layout: str) -> None:
    """It has this value, for everyone, and lies where it should."""
    np.testing.assert_array_equal(variable.numpy(), expected)
    for part in parts_of(variable.distribute_strategy, variable):
        np.testing.assert_array_equal(part, expected)
    assert bytes_on_each(variable) == LAYOUTS[layout][1]
    assert len(bytes_by_device(variable)) == 8


@layouts
def test_reading(layout: str, executor: Any):
    strategy = strategy_of()
    v = variable_in(strategy, layout)
    require(v, START, layout)
    assert v.shape == (8, 4) and v.dtype == np.float32
    for read in (v.value, v.read_value, lambda: v + 0, lambda: v[...], lambda: jnp.asarray(v)):
        np.testing.assert_array_equal(read(), START)
        for part in parts_of(strategy, executor.run(strategy, read)):
            np.testing.assert_array_equal(part, START)
    result = executor.run(strategy, lambda: (v @ jnp.ones(4), v.T, jnp.sum(v, axis=0), v[2:5, 1]))
    expected = (START @ np.ones(4), START.T, START.sum(0), START[2:5, 1])
    for found, value in zip(result, expected, strict=True):
        for part in parts_of(strategy, found):
            np.testing.assert_array_equal(part, value)
    with strategy.scope():
        np.testing.assert_array_equal(v.value(), START)
        np.testing.assert_array_equal(strategy.extended.read_var(v), START)
    require(v, START, layout)


@layouts
def test_assigning_in_cross_replica_context(layout: str):
    strategy = strategy_of()
    v = variable_in(strategy, layout)
    for is_compiled in (False, True):

        def step(fn: Callable[[], Any], is_compiled: bool = is_compiled) -> None:
            (rx.function(fn) if is_compiled else fn)()

        v.assign(START)
        step(lambda: v.assign(START * 2))
        require(v, START * 2, layout)
        step(lambda: v.assign_add(np.ones((8, 4), np.float32)))
        require(v, START * 2 + 1, layout)
        step(lambda: v.assign_sub(jnp.ones((8, 4)) * 3))
        require(v, START * 2 - 2, layout)
        with strategy.scope():
            step(lambda: v.assign(v * 2))
        require(v, START * 4 - 4, layout)


@layouts
@pytest.mark.parametrize("aggregation", [SUM, MEAN, FIRST])
def test_assigning_in_replica_context(layout: str, aggregation: Any, executor: Any):
    strategy = strategy_of()
    v = variable_in(strategy, layout, aggregation=aggregation)
    given = by_replica(strategy, lambda index: jnp.full((8, 4), index + 1.0))
    combined = {SUM: 3.0, MEAN: 1.5, FIRST: 1.0}[aggregation]
    executor.run(strategy, lambda x: v.assign_add(x), (given,))
    require(v, START + combined, layout)
    executor.run(strategy, lambda x: v.assign_sub(x), (given,))
    require(v, START, layout)
    executor.run(strategy, lambda x: v.assign(x), (given,))
    require(v, np.full((8, 4), combined), layout)


@layouts
def test_assigning_a_split_value(layout: str, executor: Any):
    strategy = strategy_of()
    v = variable_in(strategy, layout, aggregation=MEAN)

    def fn(x: Any) -> None:
        v.assign(strategy.experimental_split_to_logical_devices(x * 2, [2, 2]))

    executor.run(strategy, fn, (jnp.asarray(START),))
    require(v, START * 2, layout)


@layouts
def test_assigning_to_itself_and_to_another_layout(layout: str):
    strategy = strategy_of()
    for other in LAYOUTS:
        v = variable_in(strategy, layout)
        w = variable_in(strategy, other, START * 3)
        v.assign(w)
        require(v, START * 3, layout)
        w.assign(v + 1)
        require(w, START * 3 + 1, other)


@layouts
def test_extended_update(layout: str, executor: Any):
    strategy = strategy_of()
    v = variable_in(strategy, layout)

    def merged(distribution: Any, x: Any) -> None:
        total = distribution.extended.reduce_to("SUM", x, v)
        distribution.extended.update(v, lambda var, value: var.assign_sub(value), args=(total,))

    given = by_replica(strategy, lambda index: jnp.full((8, 4), index + 1.0))
    executor.run(strategy, lambda x: context().merge_call(merged, args=(x,)), (given,))
    require(v, START - 3, layout)
    with strategy.scope():
        strategy.extended.update(v, lambda var: var.assign(var * 2))
        found = strategy.extended.update(v, lambda var: jnp.sum(var.value()), group=False)
    require(v, (START - 3) * 2, layout)
    for part in found:
        assert float(part) == float(((START - 3) * 2).sum())


@layouts
@pytest.mark.parametrize("aggregation", [SUM, MEAN, FIRST])
def test_variables_of_each_replica(layout: str, aggregation: Any, executor: Any):
    strategy = strategy_of()
    if getattr(LAYOUTS[layout][0], "replica_dim", None) is not None:
        with pytest.raises(ValueError, match="each replica's own .* cannot be cut over the"):
            variable_in(strategy, layout, synchronization=rx.VariableSynchronization.ON_READ)
        return
    v = variable_in(
        strategy,
        layout,
        np.zeros((8, 4), np.float32),
        synchronization=rx.VariableSynchronization.ON_READ,
        aggregation=aggregation,
    )
    given = by_replica(strategy, lambda index: jnp.asarray(START) * (index + 1))
    executor.run(strategy, lambda x: v.assign_add(x), (given,))
    own = executor.run(strategy, lambda: v.value())
    for index, part in enumerate(parts_of(strategy, own)):
        np.testing.assert_array_equal(part, START * (index + 1))
    expected = {SUM: START * 3, MEAN: START * 1.5, FIRST: START}[aggregation]
    np.testing.assert_array_equal(v.read_value(), expected)
    np.testing.assert_array_equal(v.numpy(), expected)
    assert bytes_on_each(v) == LAYOUTS[layout][1]
    with strategy.scope():
        v.assign(START * 4)
    np.testing.assert_array_equal(v.numpy(), START * 4)
    assert bytes_on_each(v) == LAYOUTS[layout][1]


@layouts
def test_gradients_of_variables_in_parts(layout: str, executor: Any):
    strategy = strategy_of()
    v = variable_in(strategy, layout)
    x = by_replica(strategy, lambda index: jnp.ones((2, 8)) * (index + 1))

    def fn(x: Any) -> Any:
        return rx.value_and_grad(lambda: jnp.sum(jnp.tanh(x @ v.value() / 100)), [v])[1][0]

    result = executor.run(strategy, fn, (x,))
    for index, part in enumerate(parts_of(strategy, result)):
        expected = jax.grad(
            lambda w, i=index: jnp.sum(jnp.tanh(jnp.ones((2, 8)) * (i + 1) @ w / 100))
        )
        np.testing.assert_allclose(part, expected(jnp.asarray(START)), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("layout", ["whole", "both", "over all"])
@pytest.mark.parametrize("over_replicas", ["optimizer", "everything"])
def test_constraints_see_the_whole(layout: str, over_replicas: str, executor: Any):
    """A norm is not a sum of norms: the constraint must not be applied part by part."""
    strategy = strategy_of(state_layout=state_layout(over_replicas))

    def bounded(w: Any) -> Any:
        return w / jnp.maximum(1.0, jnp.linalg.norm(w))

    with strategy.scope():
        v = rx.Variable(START, layout=LAYOUTS[layout][0], constraint=bounded)
        optimizer = rx.Optimizer(optax.sgd(0.5, momentum=0.9))
    gradient = np.cos(START)

    def fn() -> None:
        optimizer.apply_gradients([(jnp.asarray(gradient) / 2, v)])

    expected = START
    for count in range(1, 3):
        executor.run(strategy, fn)
        trace = gradient if count == 1 else gradient * 1.9
        expected = expected - 0.5 * trace
        expected = expected / max(1.0, float(np.linalg.norm(expected)))
    np.testing.assert_allclose(v.numpy(), expected, rtol=1e-5, atol=1e-6)


# --- made, shown, copied --------------------------------------------------------------------------


def test_rules_by_name():
    rules = {"ffn/in": [1, 4], "ffn/.*": [4, 1], "^head$": [2, 2]}
    strategy = strategy_of(state_layout=rx.distribute.StateLayout(rules=rules))
    with strategy.scope():
        found = {
            name: rx.Variable(jnp.zeros((8, 4)), name=name).layout.parts
            for name in ("block/ffn/in/w", "ffn/out", "head", "head/w", "other")
        }
        own = rx.Variable(jnp.zeros((8, 4)), name="ffn/in", layout=[2, 2])
        whole = rx.Variable(jnp.zeros((8, 4)), name="ffn/in", layout=Layout())
    assert found == {
        "block/ffn/in/w": (1, 4),
        "ffn/out": (4, 1),
        "head": (2, 2),
        "head/w": (),
        "other": (),
    }
    assert own.layout.parts == (2, 2)
    assert whole.layout.is_plain


@pytest.mark.parametrize("over_replicas", ["nothing", "everything"])
def test_variables_made_in_a_compiled_function(over_replicas: str):
    strategy = strategy_of(state_layout=state_layout(over_replicas))
    made: list[Any] = []

    @rx.function
    def fn(x: Any) -> Any:
        def replica_fn(x: Any) -> Any:
            if not made:
                made.append(rx.Variable(lambda: jnp.full((8, 4), 2.0), layout=[2, 2]))
            return jnp.sum(x @ made[0])

        return strategy.run(replica_fn, args=(x,))

    for _ in range(2):
        for part in parts_of(strategy, fn(jnp.ones((2, 8)))):
            assert part == 2 * 8 * 4 * 2
    assert bytes_on_each(made[0]) == (32 if over_replicas == "nothing" else 16)


REFUSED: dict[str, tuple[Any, str]] = {
    "length": ([4], r"with 1 number\(s\), but the tensor has 2 dimension"),
    "product": ([2, 1], "is 2, but a replica has 4 logical device"),
    "divisible": ([1, 4], "dimension 1 of the tensor has size 6, which cannot be split into 4"),
    "of a Layout": (Layout((2, 1)), "is 2, but a replica has 4 logical device"),
    "no such dimension": (Layout(replica_dim=2), "cannot be cut over 2 replicas in dimension 2"),
    "both": (Layout((1, 2), 1), "is 2, but a replica has 4"),
    "too many parts together": (Layout((4, 1), 0), "cannot be cut over 2 replicas in dimension 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_layouts_that_are_refused(name: str):
    layout, text = REFUSED[name]
    strategy = strategy_of()
    with strategy.scope(), pytest.raises(ValueError, match=text) as raised:
        rx.Variable(jnp.zeros((4, 6)), name="mine", layout=layout)
    assert "'mine:0'" in str(raised.value)
    rules = rx.distribute.StateLayout(rules={"mine": [1, 4]})
    with strategy_of(state_layout=rules).scope():
        with pytest.raises(ValueError, match="by the rule 'mine'"):
            rx.Variable(jnp.zeros((4, 6)), name="mine")


@pytest.mark.parametrize("layout", ["rows", 4, [1.0, 4], [True, 4]])
def test_layouts_of_the_wrong_type(layout: Any):
    with strategy_of().scope(), pytest.raises(TypeError, match="is a list of integers"):
        rx.Variable(jnp.zeros((8, 4)), layout=layout)


@pytest.mark.parametrize("replica_dim", [-1, 1.0, True, "0"])
def test_layouts_check_themselves(replica_dim: Any):
    with pytest.raises(ValueError, match="`replica_dim` is the number of a dimension, from 0"):
        Layout(replica_dim=replica_dim)
    with pytest.raises(ValueError, match="`parts` has numbers below 1"):
        Layout((2, 0))
    with pytest.raises(TypeError, match="`parts` is a list of integers"):
        Layout("22")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "kwargs",
    [
        {"over_replicas": "all"},
        {"over_replicas": True},
        {"min_size": -1},
        {"min_size": 1.5},
        {"rules": {"(": [1]}},
        {"rules": ["ffn"]},
        {"rules": {"ffn": 4}},
    ],
    ids=str,
)
def test_state_layouts_that_are_refused(kwargs: dict[str, Any]):
    with pytest.raises(ValueError, match="StateLayout: "):
        rx.distribute.StateLayout(**kwargs)


def test_what_is_no_state_layout():
    with pytest.raises(TypeError, match="must be a rx.distribute.StateLayout"):
        rx.distribute.MirroredStrategy(cpus(2), state_layout="everything")  # type: ignore[arg-type]
    with pytest.raises(rx.errors.DeviceError, match="8 devices cannot be grouped .* of 3"):
        rx.distribute.MirroredStrategy(cpus(8), logical_devices_per_replica=3)
    for count in (0, -1, 1.0, True, "2"):
        with pytest.raises(ValueError, match="at least 1; got"):
            rx.distribute.MirroredStrategy(cpus(8), logical_devices_per_replica=count)  # type: ignore[arg-type]


def test_a_variable_of_no_strategy_has_one_logical_device():
    assert rx.Variable(START, layout=[1, 1]).layout.is_plain
    with pytest.raises(ValueError, match="a replica has 1 logical device"):
        rx.Variable(START, layout=[1, 2])


@layouts
def test_what_is_shown(layout: str):
    strategy = strategy_of()
    v = variable_in(strategy, layout, name="v")
    plain = variable_in(strategy, "whole", name="v")
    if v.layout.replica_dim is None:
        assert repr(v) == str(v) == repr(plain)
    else:  # no replica has a copy: it is written once
        assert repr(v) == str(v)
        assert f"{v.layout}: <rx.Variable 'v:0' shape=(8, 4) dtype=float32" in repr(v)
        assert "replica_1" not in repr(v)
    html = v._repr_html_()
    assert "<table" in html and "v:0" in html and "unavailable" not in html
    assert str(v.layout) in html or layout == "whole"
    assert repr(v.values[1]).startswith("<rx.Variable 'v/replica_1:0' shape=(8, 4)")


@layouts
def test_copies(layout: str):
    strategy = strategy_of()
    v = variable_in(strategy, layout)
    model = {"a": v, "b": [v]}
    twin = copy.deepcopy(model)
    assert twin["b"][0] is twin["a"] is not v and twin["a"].layout == v.layout
    step = rx.function(lambda: strategy.run(lambda: v.value() * 2))
    step()
    twin["a"].assign(START + 1)
    require(v, START, layout)
    require(twin["a"], START + 1, layout)
    v.assign_add(START)
    require(v, START * 2, layout)
    require(twin["a"], START + 1, layout)


@pytest.mark.parametrize("dtype", ["bfloat16", "int32", "uint8", "bool", "complex64"])
@pytest.mark.parametrize("layout", ["both", "over replicas", "over all"])
def test_other_dtypes(dtype: str, layout: str, executor: Any):
    strategy = strategy_of()
    value = jnp.asarray(START % 3, dtype)
    v = variable_in(strategy, layout, value, trainable=False, aggregation=FIRST)
    assert v.dtype == value.dtype
    executor.run(strategy, lambda: v.assign(v.value()[::-1]))
    np.testing.assert_array_equal(v.numpy(), np.asarray(value)[::-1])
    for part in parts_of(strategy, executor.run(strategy, lambda: v.value())):
        np.testing.assert_array_equal(part, np.asarray(value)[::-1])


def test_keys_under_a_layout_that_cuts_everything(executor: Any):
    strategy = strategy_of(state_layout=state_layout("everything"))
    with strategy.scope():
        keys = rx.Variable(jax.random.split(jax.random.key(0), 8), aggregation=FIRST)
    found = executor.run(strategy, lambda: jax.random.uniform(keys.value()[3]))
    expected = jax.random.uniform(jax.random.split(jax.random.key(0), 8)[3])
    for part in parts_of(strategy, found):
        assert part == expected


@pytest.mark.parametrize("kind", ["mirrored", "tpu"])
def test_metrics(kind: str):
    strategy = strategy_of(kind, state_layout=state_layout("everything"))
    with strategy.scope():
        metrics = [rx.metrics.Mean(), rx.metrics.SparseCategoricalAccuracy()]
    scores = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
    labels = np.arange(16) % 4

    def fn(scores: Any, labels: Any) -> None:
        scores = strategy.experimental_split_to_logical_devices(scores, [1, 4])
        metrics[0].update_state(scores)
        metrics[1].update_state(labels, scores)

    def share(array: np.ndarray) -> Any:
        return by_replica(strategy, lambda index: jnp.asarray(array[index * 8 :][:8]))

    step = rx.function(lambda x, y: strategy.run(fn, args=(x, y)))
    for run in (lambda x, y: strategy.run(fn, args=(x, y)), step):
        for metric in metrics:
            metric.reset_state()
        run(share(scores), share(labels))
        np.testing.assert_allclose(metrics[0].result(), scores.mean(), rtol=1e-5)
        accuracy = np.mean(scores.argmax(1) == labels)
        np.testing.assert_allclose(metrics[1].result(), accuracy, rtol=1e-6)


LOOPS: dict[str, Callable[[Any, Any], Any]] = {
    "scan": lambda v, x: jax.lax.scan(lambda c, _: (jnp.tanh(c @ v), None), x, None, length=3)[0],
    "while": lambda v, x: jax.lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c @ v), x),
    "cond": lambda v, x: jax.lax.cond(jnp.sum(x) > 0, lambda: x @ v, lambda: x - jnp.sum(v)),
    "vmap": lambda v, x: jax.vmap(lambda row: jnp.tanh(row @ v))(x),
    "checkpoint": lambda v, x: jax.grad(jax.checkpoint(lambda x: jnp.sum(jnp.sin(x @ v))))(x),
    "jit": lambda v, x: jax.jit(lambda x: x @ v)(x),
}


@pytest.mark.parametrize("layout", ["both", "over replicas", "over all"])
@pytest.mark.parametrize("name", LOOPS)
def test_read_inside_of(name: str, layout: str):
    strategy = strategy_of()
    square = np.random.default_rng(0).normal(scale=0.3, size=(8, 8)).astype(np.float32)
    v = variable_in(strategy, layout, square)
    x = np.random.default_rng(1).normal(size=(4, 8)).astype(np.float32)
    fn = rx.function(lambda x: strategy.run(lambda x: LOOPS[name](v, x), args=(x,)))
    found = fn(jnp.asarray(x))
    for index, part in enumerate(strategy.experimental_local_results(found)):
        np.testing.assert_allclose(part, LOOPS[name](square, x), rtol=1e-5, atol=1e-6)
        assert part.devices() <= set(logical_devices(strategy, index))


@pytest.mark.parametrize("layout", ["both", "over replicas", "over all"])
def test_assigned_inside_of_a_loop(layout: str):
    strategy = strategy_of()
    v = variable_in(strategy, layout, aggregation=FIRST)

    def fn() -> None:
        def body(i: Any, carry: Any) -> Any:
            v.assign(v.value() + 1)
            return carry

        jax.lax.fori_loop(0, 3, body, 0)

    rx.function(lambda: strategy.run(fn))()
    require(v, START + 3, layout)
