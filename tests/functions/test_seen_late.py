"""What a compiled function sees of a change after it was traced: the table of docs/captures.md."""

import dataclasses
import enum
import functools
import importlib
import itertools
import sys
import types
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from tests.functions.seen_late import losses_of
from tests.replicas import mirrored

SCALE = 1.0
TABLE: dict[str, float] = {}


class Pair(NamedTuple):
    left: Any
    right: Any


@pytest.fixture
def v() -> Any:
    return rx.Variable(1.0)


# ------------------------------------------------------------------ losses


def test_gradients_do_not_flow_through_an_assigned_variable(strategy: Any, executor: Any):
    with strategy.scope():
        p = rx.Variable(1.0)
        v = rx.Variable(1.0, synchronization="ON_READ", aggregation="MEAN")

    def step(x: Any) -> Any:
        def loss() -> Any:
            v.assign(p * 2)
            return v * 3 * x + p

        return rx.value_and_grad(loss, [p], compile=True)

    loss, gradients = executor.run(strategy, step, (jnp.float32(1),))
    for each in strategy.experimental_local_results(gradients[0]):
        assert float(each) == 1.0
    for each in strategy.experimental_local_results(loss):
        assert float(each) == 7.0


def test_uneven_shares_give_the_gradients_of_even_ones():
    strategy = mirrored(2)
    with strategy.scope():
        p = rx.Variable(1.0)
        v = rx.Variable(1.0, synchronization="ON_READ", aggregation="MEAN")

    def step(x: Any) -> Any:
        def loss() -> Any:
            v.assign(p * 2)
            return v * jnp.sum(x)

        return rx.value_and_grad(loss, [p])[1][0]

    function = rx.function(lambda x: strategy.run(step, (x,)))
    even = function(rx.distribute.PerReplica([jnp.ones(2), jnp.ones(2)]))
    uneven = function(rx.distribute.PerReplica([jnp.ones(2), jnp.ones(1)]))
    assert [float(x) for x in (*even.values, *uneven.values)] == [0, 0, 0, 0]


@pytest.mark.parametrize("make", [lambda a, b: (a, b), Pair, lambda a, b: [a, b]])
def test_containers_with_arrays_that_were_met_before(make: Any, v: Any):
    one, two, three, four = (jnp.float32(x) for x in (1, 2, 3, 4))

    def step(a: Any, b: Any) -> list[float]:
        pair = make(a, b)
        return losses_of(lambda: v * (10 * pair[0] + pair[1]), v, [])

    found = [step(one, two), step(three, four), step(one, four), step(four, four), step(two, one)]
    assert found == [[12], [34], [14], [44], [21]]


def test_partials_with_arrays_that_were_met_before(v: Any):
    def digits(a: Any, b: Any) -> Any:
        return v * (10 * a + b)

    one, two, three = jnp.float32(1), jnp.float32(2), jnp.float32(3)
    both = one, two
    assert losses_of(functools.partial(digits, *both), v, []) == [12]
    assert losses_of(functools.partial(digits, two, b=three), v, []) == [23]
    assert losses_of(functools.partial(digits, b=three, a=one), v, []) == [13]


def test_arrays_in_attributes_of_functions(v: Any):
    x = jnp.float32(5)

    def helper(y: Any) -> Any:
        return y * jnp.sum(helper.table)  # type: ignore[attr-defined]

    helper.table = jnp.ones(4)  # type: ignore[attr-defined]

    def change() -> None:
        helper.table = jnp.ones(2)  # type: ignore[attr-defined]

    assert losses_of(lambda: v * helper(x), v, [change]) == [20, 10]


def test_numbers_in_attributes_of_functions(v: Any):
    def loss() -> Any:
        return v * loss.k  # type: ignore[attr-defined]

    loss.k = 2  # type: ignore[attr-defined]
    assert losses_of(loss, v, [lambda: setattr(loss, "k", 5)]) == [2, 5]


def test_a_list_that_is_reached_twice(v: Any):
    class Holder:
        def __init__(self, items: list[Any]):
            self.items = items

    items = [jnp.float32(2), jnp.float32(7)]
    holder = Holder(items)

    def loss() -> Any:
        return v * (10 * holder.items[0] + items[1])

    def change() -> None:
        items[0], items[1] = items[1], items[0]

    assert losses_of(loss, v, [change, lambda: items.insert(0, jnp.float32(1))]) == [27, 72, 17]


def test_a_list_that_is_reached_by_the_closure_first(v: Any):
    class Holder:
        def __init__(self, items: list[Any]):
            self.items = items

    def step(a: Any, b: Any) -> list[float]:
        a_list = [a, b]
        holder = Holder(a_list)
        return losses_of(lambda: v * (10 * a_list[0] + holder.items[1]), v, [])

    numbers = [jnp.float32(x) for x in range(5)]
    assert step(numbers[1], numbers[2]) == [12]
    assert step(numbers[3], numbers[4]) == [34]


def test_globals_in_methods_of_dataclasses_and_named_tuples(v: Any, monkeypatch: Any):
    @dataclasses.dataclass
    class Record:
        x: Any

        def scaled(self) -> Any:
            return self.x * SCALE

    class Named(Pair):
        def scaled(self) -> Any:
            return self.left * SCALE

    class Cached:
        @functools.cached_property
        def scale(self) -> float:
            return SCALE

        @functools.singledispatchmethod
        def scaled(self, x: Any) -> Any:
            return x * SCALE

    record, named, cached = Record(jnp.float32(2)), Named(jnp.float32(2), 0), Cached()
    change = lambda: monkeypatch.setitem(globals(), "SCALE", 3.0)  # noqa: E731
    for loss in (
        lambda: v * record.scaled(),
        lambda: v * named.scaled(),
        lambda: v * cached.scaled(2.0),
    ):
        monkeypatch.setitem(globals(), "SCALE", 1.0)
        assert losses_of(loss, v, [change]) == [2, 6]


def test_keyword_only_defaults(v: Any):
    for number in range(3):

        def helper(*, k: Any = number) -> Any:
            return k

        assert losses_of(lambda helper=helper: v * helper(), v, []) == [number]


def test_weak_types_are_told_apart():
    v = rx.Variable(jnp.bfloat16(2))
    for x in (jnp.asarray(1.5), jnp.float32(1.5), jnp.asarray(2.5), np.float32(1.5)):
        losses_of(lambda x=x: v * x, v, [])


@pytest.fixture
def package() -> Any:
    """A package of the user's, with a module in it."""
    outer, inner = types.ModuleType("outer_package"), types.ModuleType("outer_package.settings")
    outer.settings, inner.SCALE = inner, 1.0  # type: ignore[attr-defined]
    inner.deeper = types.SimpleNamespace(scale=1.0)  # type: ignore[attr-defined]
    sys.modules.update({"outer_package": outer, "outer_package.settings": inner})
    yield outer
    del sys.modules["outer_package"], sys.modules["outer_package.settings"]


def test_attributes_of_modules_in_packages(v: Any, package: Any):
    def loss() -> Any:
        return v * package.settings.SCALE * package.settings.deeper.scale

    def change() -> None:
        package.settings.deeper.scale = 5.0

    changes = [lambda: setattr(package.settings, "SCALE", 3.0), change]
    assert losses_of(loss, v, changes) == [1, 3, 15]


def test_globals_in_special_methods(v: Any, monkeypatch: pytest.MonkeyPatch):
    class Scaled:
        def __getitem__(self, index: int) -> float:
            return SCALE * index

        def __mul__(self, other: Any) -> Any:
            return other * SCALE

        @property
        def now(self) -> float:
            return SCALE

        def __len__(self) -> int:
            return int(SCALE)

    scaled = Scaled()
    change = lambda: monkeypatch.setitem(globals(), "SCALE", 3.0)  # noqa: E731
    assert losses_of(lambda: v * scaled[1], v, [change]) == [1, 3]
    monkeypatch.setitem(globals(), "SCALE", 1.0)
    assert losses_of(lambda: (scaled * 1.0) * v, v, [change]) == [1, 3]
    monkeypatch.setitem(globals(), "SCALE", 1.0)
    assert losses_of(lambda: v * scaled.now * len(scaled), v, [change]) == [1, 9]


def test_a_bound_method_as_a_class_attribute(v: Any):
    class Source:
        scale = 1.0

        def now(self) -> float:
            return self.scale

    source = Source()

    class Model:
        scale = source.now

    model = Model()
    assert losses_of(lambda: v * model.scale(), v, [lambda: setattr(source, "scale", 3.0)]) == [
        1,
        3,
    ]


def test_sixty_four_bits_are_those_of_numpy(v: Any):
    large = np.array([1e8, 1.0])
    assert losses_of(lambda: v * (large.sum() - 1e8), v, []) == [1]
    whole = np.array([2**31, 5])
    assert losses_of(lambda: v * (whole[0] // 2**31 + whole[1]), v, []) == [6]
    counts = np.full(3, 2**30, np.int32)
    assert losses_of(lambda: v * (counts.sum() / 2**30), v, []) == [3]


def test_numpy_arrays_that_numpy_computes_with_are_seen_when_they_change(v: Any):
    x = np.ones(3)

    def change() -> None:
        x[:] = 2

    assert losses_of(lambda: v * np.mean(x), v, [change]) == [1, 2]
    assert losses_of(lambda: v * x.max(), v, [lambda: x.fill(7)]) == [2, 7]


def test_numpy_arrays_that_jax_computes_with_are_inputs(v: Any):
    traces = itertools.count()
    for step in range(4):
        x, y = np.full((2, 3), step, np.int64), np.array([1, 2, 3], np.int32)

        def loss() -> Any:
            next(traces)
            return jnp.sum(v * x[:, 1:].reshape(-1)) + jnp.sum(y.astype(np.float32) * v)  # noqa: B023

        value, _ = rx.value_and_grad(loss, [v], compile=True)
        assert float(value) == 4 * step + 6
    assert next(traces) == 1


def test_a_loss_that_changes_what_it_captures_runs_as_python(v: Any):
    kept = [jnp.float32(3)]

    def loss() -> Any:
        kept.append(kept[-1] * 2)
        return v * kept[-1]

    assert [float(rx.value_and_grad(loss, [v], compile=True)[0]) for _ in range(3)] == [6, 12, 24]
    assert [float(x) for x in kept] == [3, 6, 12, 24]


def test_a_registered_class_whose_flattening_leaves_something_out(v: Any):
    @jax.tree_util.register_pytree_node_class
    class Lossy:
        def __init__(self, x: Any, scale: float = 1.0):
            self.x, self.scale = x, scale

        def tree_flatten(self) -> tuple[Any, None]:
            return (self.x,), None

        @classmethod
        def tree_unflatten(cls, aux: None, children: Any) -> Any:
            return cls(*children)

    lossy = Lossy(jnp.float32(2), scale=3.0)
    assert losses_of(lambda: v * lossy.x * lossy.scale, v, []) == [6]
    assert losses_of(
        lambda: v * lossy.x * lossy.scale, v, [lambda: setattr(lossy, "scale", 5.0)]
    ) == [6, 10]


class Attributes(dict):
    """A dict whose items are attributes, as many libraries have one."""

    __getattr__ = dict.__getitem__


class Colour(enum.IntFlag):
    RED = 1
    BLUE = 2

    def scaled(self) -> float:
        return SCALE


class Mangled:
    __slots__ = ("__scale",)

    def __init__(self) -> None:
        self.__scale = 1.0

    def change(self) -> None:
        self.__scale = 3.0

    def read(self) -> float:
        return self.__scale


def wrapping(fn: Any) -> Any:
    @functools.wraps(fn)
    def inner(*args: Any) -> Any:
        return fn(*args) * SCALE

    return inner


mean = wrapping(jnp.mean)


@jax.custom_vjp
def reversed_gradient(x: Any) -> Any:
    return x


reversed_gradient.defvjp(lambda x: (x, None), lambda _, g: (-SCALE * g,))


def test_dicts_whose_items_are_attributes(v: Any):
    held = Attributes(scale=1.0)
    assert losses_of(lambda: v * held.scale, v, [lambda: held.update(scale=3.0)]) == [1, 3]


def test_slots_with_mangled_names(v: Any):
    held = Mangled()
    assert losses_of(lambda: v * held.read(), v, [held.change]) == [1, 3]


@pytest.mark.parametrize(
    "read",
    [
        lambda v: mean(v * jnp.ones(2)),
        lambda v: reversed_gradient(v * 1.0) * 1.0,
        lambda v: v * Colour.RED.scaled(),
        lambda v: v * (lambda: __import__("math").sqrt(1.0) * SCALE)(),
    ],
    ids=["a wrapper of a library's function", "custom_vjp", "a method of an enum", "an import"],
)
def test_globals_that_are_read_in_odd_places(read: Any, v: Any, monkeypatch: pytest.MonkeyPatch):
    change = lambda: monkeypatch.setitem(globals(), "SCALE", 3.0)  # noqa: E731
    losses_of(lambda: read(v), v, [change])


def test_modules_that_the_function_imports(v: Any, package: Any):
    def loss() -> Any:
        import outer_package  # type: ignore[import-not-found]
        from outer_package.settings import SCALE as scale  # type: ignore[import-not-found]

        return v * scale * outer_package.settings.SCALE

    assert losses_of(loss, v, [lambda: setattr(package.settings, "SCALE", 3.0)]) == [1, 9]


@pytest.mark.parametrize(
    "read",
    [
        lambda: importlib.import_module("outer_package.settings").SCALE,
        lambda: sys.modules["outer_package.settings"].SCALE,
        lambda: __import__("outer_package").settings.SCALE,
    ],
    ids=["import_module", "sys.modules", "__import__"],
)
def test_modules_that_are_found_by_a_text(read: Any, v: Any, package: Any):
    change = lambda: setattr(package.settings, "SCALE", 3.0)  # noqa: E731
    assert losses_of(lambda: v * read(), v, [change]) == [1, 3]


@pytest.mark.parametrize("read", [lambda: globals()["SC" + "ALE"], lambda: eval("SCALE")])
def test_globals_that_no_code_names(read: Any, v: Any, monkeypatch: pytest.MonkeyPatch):
    change = lambda: monkeypatch.setitem(globals(), "SCALE", 3.0)  # noqa: E731
    assert losses_of(lambda: v * read(), v, [change]) == [1, 3]


def test_names_and_texts_of_functions_and_classes(v: Any):
    class Named:
        """1"""

    def named() -> None:
        """1"""

    def change() -> None:
        Named.__doc__ = named.__doc__ = "3"

    loss = lambda: v * float(Named.__doc__ or 0) * float(named.__doc__ or 0)  # noqa: E731
    assert losses_of(loss, v, [change]) == [1, 9]


def test_static_fields_of_modules(v: Any, monkeypatch: pytest.MonkeyPatch):
    equinox = pytest.importorskip("equinox")

    class Module(equinox.Module):
        x: Any
        act: Any = equinox.field(static=True)

    def act(x: Any) -> Any:
        return x * SCALE

    module = Module(jnp.float32(2), act)
    change = lambda: monkeypatch.setitem(globals(), "SCALE", 3.0)  # noqa: E731
    assert losses_of(lambda: v * module.act(module.x), v, [change]) == [2, 6]


def test_a_function_that_asks_what_it_captures(v: Any):
    def prepared(x: Any) -> Any:
        return jnp.asarray(x) / 4 if isinstance(x, np.ndarray) else x

    x = np.array([4, 8], np.float32)
    assert losses_of(lambda: v * jnp.sum(prepared(x)), v, [lambda: x.fill(4)]) == [3, 2]


OFFSET = jnp.float32(1)
CALLS = 0


def test_a_function_that_assigns_globals_beside_arrays(v: Any):
    def loss() -> Any:
        global CALLS
        CALLS += 1
        return v * OFFSET * CALLS

    assert [float(rx.value_and_grad(loss, [v], compile=True)[0]) for _ in range(3)] == [1, 2, 3]


def test_a_function_that_assigns_an_array_around_it(v: Any):
    state = jnp.float32(1)

    def loss() -> Any:
        nonlocal state
        state = state + 1
        return v * state

    assert [float(rx.value_and_grad(loss, [v], compile=True)[0]) for _ in range(3)] == [2, 3, 4]


def test_numpy_arrays_are_inputs_of_most_of_jax(v: Any):
    traces = itertools.count()
    for step in range(3):
        x, labels = np.full((2, 3), step, np.float32), np.array([0, 1])

        def loss() -> Any:
            next(traces)
            total = jnp.sum(x) + jnp.mean(jax.nn.relu(x)) + jax.jit(jnp.sum)(x)  # noqa: B023
            picked = jnp.take_along_axis(jnp.ones((2, 3)), labels[:, None], 1)  # noqa: B023
            return v * (total + jax.vmap(jnp.sum)(x)[0] + jnp.sum(picked))  # noqa: B023

        value, _ = rx.value_and_grad(loss, [v], compile=True)
        assert float(value) == 6 * step + step + 6 * step + 3 * step + 2
    assert next(traces) == 1


def test_a_captured_numpy_array_that_is_returned(v: Any):
    x = np.ones(2, np.float32)
    (_, found), _ = rx.value_and_grad(lambda: (v * 1.0, x), [v], has_aux=True, compile=True)
    assert np.asarray(found).tolist() == [1, 1]


def test_flags_without_a_name(v: Any):
    for flag in (Colour(8), Colour(16)):
        assert losses_of(lambda flag=flag: v * int(flag), v, []) == [int(flag)]
