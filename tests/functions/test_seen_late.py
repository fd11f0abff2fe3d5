"""What a compiled function sees of a change after it was traced: the table of docs/captures.md."""

import collections
import copy
import dataclasses
import enum
import functools
import importlib
import itertools
import operator
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax._src.functions._captures import Captures
from tests.replicas import mirrored

SCALE = 1.0
TABLE: dict[str, float] = {}


class Pair(NamedTuple):
    left: Any
    right: Any


def losses_of(loss: Callable[[], Any], v: Any, changes: list[Callable[[], Any]]) -> list[float]:
    """The compiled loss after each change, having checked that plain Python agrees."""
    found = []
    for change in [lambda: None, *changes]:
        change()
        expected, gradient = rx.value_and_grad(loss, [v])
        value, compiled = rx.value_and_grad(loss, [v], compile=True)
        np.testing.assert_allclose(value, expected, rtol=1e-6)
        np.testing.assert_allclose(compiled[0], gradient[0], rtol=1e-6)
        assert (value.dtype, compiled[0].dtype) == (expected.dtype, gradient[0].dtype)
        found.append(float(value))
    return found


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


@dataclasses.dataclass
class Settings:
    scale: Any


def local() -> Any:
    held = threading.local()
    held.scale = 1.0
    return held


def with_proxy() -> Any:
    held = types.SimpleNamespace(target=Settings(1.0))
    held.proxy = weakref.proxy(held.target)
    return held


def with_view(view: str) -> Any:
    items = {1.0: 1.0}
    return types.SimpleNamespace(items=items, view=getattr(items, view)())


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "a dict": (lambda: {"k": 1.0}, lambda d: d["k"], lambda d: d.update(k=3.0)),
    "a list": (lambda: [1.0], lambda d: d[-1], lambda d: d.append(3.0)),
    "a set": (lambda: {1.0}, lambda d: max(d), lambda d: d.add(3.0)),
    "a deque": (lambda: collections.deque([1.0]), lambda d: d[-1], lambda d: d.append(3.0)),
    "a dict in a tuple": (lambda: ({"k": 1.0},), lambda d: d[0]["k"], lambda d: d[0].update(k=3.0)),
    "a NumPy array": (lambda: np.ones(1), lambda d: d[0], lambda d: d.fill(3.0)),
    "a dataclass": (lambda: Settings(1.0), lambda d: d.scale, lambda d: setattr(d, "scale", 3.0)),
    "a thread's own": (local, lambda d: d.scale, lambda d: setattr(d, "scale", 3.0)),
    "a weak proxy": (
        with_proxy,
        lambda d: d.proxy.scale,
        lambda d: setattr(d.target, "scale", 3.0),
    ),
    "keys": (lambda: with_view("keys"), lambda d: max(d.view), lambda d: d.items.update({3.0: 0})),
    "values": (
        lambda: with_view("values"),
        lambda d: max(d.view),
        lambda d: d.items.update({1.0: 3.0}),
    ),
    "a flat view": (lambda: np.ones(2).flat, lambda d: float(d[0]), lambda d: d.base.fill(3.0)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_changes_that_losses_see(what: str, v: Any):
    make, read, change = CHANGES[what]
    held = make()
    assert losses_of(lambda: v * read(held), v, [lambda: change(held)]) == [1, 3]


class Plain:
    """An object whose attributes its own class does not name."""


class Matched:
    __match_args__ = ("first",)


class Made:
    def __init__(self) -> None:
        self.made = SCALE

    @classmethod
    def another(cls) -> Any:
        return cls()


class Copied:
    def __copy__(self) -> Any:
        return SCALE


class Named(enum.Enum):
    ONE = Matched()
    TWO = 2


Named.ONE.value.inner = 1.0  # type: ignore[attr-defined]


class Tagged(np.ndarray):
    """An array with attributes."""


def an_object(**attributes: Any) -> Any:
    held = Plain()
    for name, value in attributes.items():
        setattr(held, name, value)
    return held


def matches(held: Any, v: Any) -> Any:
    match held:
        case Matched(1.0):
            return v * 1.0
        case _:
            return v * 3.0


prefix = "is_"
called = operator.methodcaller("read_it")
Plain.read_it = lambda self: self.only_here  # type: ignore[attr-defined]


def odd_reads() -> dict[str, tuple[Any, Callable[[Any, Any], Any], Callable[[Any], Any]]]:
    """What is held, how a loss reads it, and how it is changed; 1 becomes 3."""
    matched = Matched()
    matched.first = 1.0  # type: ignore[attr-defined]
    tagged = np.ones(2).view(Tagged)
    tagged.scale = 1.0  # type: ignore[attr-defined]
    parent = an_object(scale=1.0)
    numbers = {"a": 1.0}
    records = np.array([(1, "x")], dtype=[("number", int), ("any", object)])
    texts = np.array(["a"], dtype=np.dtypes.StringDType())
    return {
        "a pattern": (matched, matches, lambda d: setattr(d, "first", 3.0)),
        "hasattr": (
            Plain(),
            lambda d, v: v * (3.0 if hasattr(d, prefix + "on") else 1.0),
            lambda d: setattr(d, "is_on", True),
        ),
        "a method caller": (
            an_object(only_here=1.0),
            lambda d, v: v * called(d),
            lambda d: setattr(d, "only_here", 3.0),
        ),
        "a weak proxy": (
            weakref.proxy(parent),
            lambda d, v: v * d.scale,
            lambda _: setattr(parent, "scale", 3.0),
        ),
        "values of a dict": (
            numbers.values(),
            lambda d, v: v * sum(d),
            lambda _: numbers.update(a=3.0),
        ),
        "a method of a list": (
            [1].__len__,
            lambda d, v: v * d(),
            lambda d: d.__self__.extend([2, 3]),
        ),
        "an attribute of an array": (
            tagged,
            lambda d, v: v * d.scale,
            lambda d: setattr(d, "scale", 3.0),
        ),
        "records with objects": (
            records,
            lambda d, v: v * d["number"][0],
            lambda d: d["number"].fill(3),
        ),
        "an array of texts": (
            texts,
            lambda d, v: v * len(d[0]),
            lambda d: d.__setitem__(0, "abc"),
        ),
        "a value of an enum": (
            Named.ONE,
            lambda d, v: v * d.value.inner,
            lambda d: setattr(d.value, "inner", 3.0),
        ),
        "an attribute of an enum": (
            Named.TWO,
            lambda d, v: v * getattr(d, "scale", 1.0),
            lambda d: setattr(d, "scale", 3.0),
        ),
        "a slice": (
            (slice(np.array(1), None),),
            lambda d, v: v * int(d[0].start),
            lambda d: d[0].start.fill(3),
        ),
        "long lists": (
            [1.0] * 100,
            lambda d, v: v * d[50],
            lambda d: d.__setitem__(50, 3.0),
        ),
    }


@pytest.mark.parametrize("what", odd_reads())
def test_what_is_read_in_odd_ways(what: str, v: Any):
    held, read, change = odd_reads()[what]
    assert losses_of(lambda: read(held, v), v, [lambda: change(held)]) == [1, 3]


@pytest.mark.parametrize(
    ("held", "read"),
    [
        (Made(), lambda held: held.another().made),
        (Copied(), lambda held: copy.copy(held)),
        (collections.defaultdict(lambda: SCALE), lambda held: (held["a"], held.clear())[0]),
    ],
    ids=["a class method", "a copy", "a default"],
)
def test_globals_that_make_objects(held: Any, read: Any, v: Any, monkeypatch: pytest.MonkeyPatch):
    change = lambda: monkeypatch.setitem(globals(), "SCALE", 3.0)  # noqa: E731
    assert losses_of(lambda: v * read(held), v, [change]) == [1, 3]


def test_minus_zero_in_a_long_list(v: Any):
    held = [0.0] * 100
    loss = lambda: v * jnp.copysign(1.0, held[0])  # noqa: E731
    assert losses_of(loss, v, [lambda: held.__setitem__(0, -0.0)]) == [1, -1]
    integers: list[Any] = [1] * 100
    loss = lambda: v * (2.0 if isinstance(integers[0], bool) else 1.0)  # noqa: E731
    assert losses_of(loss, v, [lambda: integers.__setitem__(0, True)]) == [1, 2]


@dataclasses.dataclass(eq=False)
class Linked:
    x: Any
    other: Any = None


def test_structures_that_contain_themselves(v: Any):
    a = Linked(jnp.float32(2))
    a.other = Linked(jnp.float32(3), a)
    change = lambda: setattr(a, "x", jnp.float32(5))  # noqa: E731
    assert losses_of(lambda: v * a.other.other.x, v, [change]) == [2, 5]
    own: Any = collections.OrderedDict(x=jnp.float32(2))
    own["own"] = own
    assert losses_of(lambda: v * own["own"]["x"], v, []) == [2]


def test_objects_with_arrays_that_are_keys_too(v: Any):
    layers = [Linked(jnp.float32(1)), Linked(jnp.float32(10))]
    weights = {layers[0]: 1.0, layers[1]: 2.0}
    loss = lambda: v * sum(each.x * weights.get(each, 7.0) for each in layers)  # noqa: E731
    change = lambda: setattr(layers[0], "x", jnp.float32(2))  # noqa: E731
    assert losses_of(loss, v, [change]) == [21, 22]


def test_what_cannot_be_looked_at(v: Any):
    class Closed:
        @property
        def __class__(self) -> Any:
            raise RuntimeError("there is no request")

    gone = weakref.proxy(Plain())
    for held in (Closed(), gone, [gone, jnp.float32(1)]):
        assert losses_of(lambda held=held: v * (2.0 if held is not None else 1.0), v, []) == [2]


def test_containers_made_anew_are_not_traced_again(v: Any):
    traces = itertools.count()
    for step in range(3):
        names, table = {"a", "b"}, {("a", 0): jnp.float32(step)}

        def loss() -> Any:
            next(traces)
            return v * table["a", 0] * ("a" in names)  # noqa: B023

        assert float(rx.value_and_grad(loss, [v], compile=True)[0]) == step
    assert next(traces) == 1


def test_a_dict_that_another_thread_changes(v: Any):
    held: dict[str, float] = {}
    is_done = threading.Event()

    def change() -> None:
        for number in itertools.count():
            held[f"k{number % 50}"] = 1.0
            held.pop(f"k{number * 3 % 50}", None)
            if is_done.is_set():
                return

    thread = threading.Thread(target=change)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for _ in range(1000):
            Captures(lambda: v * ("x" in held))
    finally:
        is_done.set()
        thread.join()
        sys.setswitchinterval(interval)


# ------------------------------------------------------------------ functions given to `run`


def tpu() -> Any:
    return rx.distribute.TPUStrategy()


@pytest.mark.parametrize("what", CHANGES)
def test_changes_that_compiled_runs_see(what: str):
    make, read, change = CHANGES[what]
    held, strategy = make(), tpu()

    def once() -> float:
        result = strategy.run(lambda x: x * read(held), (jnp.float32(2),))
        return float(strategy.experimental_local_results(result)[0])

    before = once()
    change(held)
    assert (before, once()) == (2, 6)


@pytest.mark.parametrize("kind", ["in a loop over data", "by TPUStrategy"])
def test_keyword_only_defaults_of_compiled_runs(kind: str):
    strategy = tpu() if kind == "by TPUStrategy" else mirrored(2)

    def epoch(batches: Any) -> list[Any]:
        found = []
        for number, x in enumerate(batches):

            def helper(x: Any, *, k: Any = number) -> Any:
                return x * k

            found.append(strategy.run(lambda x, *, k=number: jnp.sum(x) * k, (x,)))
            found.append(strategy.run(lambda x, helper=helper: jnp.sum(helper(x)), (x,)))
        return found

    dataset = rx.data.Dataset.from_tensor_slices(np.ones(24, np.float32)).batch(8)
    function = epoch if kind == "by TPUStrategy" else rx.function(epoch)
    found = function(strategy.experimental_distribute_dataset(dataset))
    totals = [float(sum(strategy.experimental_local_results(each))) for each in found]
    assert totals == [0, 0, 8, 8, 16, 16]


def test_attributes_of_objects_that_compiled_runs_see():
    class Model:
        scale = 1.0

        def apply(self, x: Any) -> Any:
            return x * self.scale

    model, strategy = Model(), tpu()
    found = []
    for scale in (1.0, 2.0):
        model.scale = scale
        found.append(strategy.run(lambda x: model.apply(x), (jnp.float32(1),)))
        found.append(strategy.run(model.apply, (jnp.float32(1),)))
    assert [float(strategy.experimental_local_results(x)[0]) for x in found] == [1, 1, 2, 2]


def test_what_the_step_does_not_name_may_change_without_a_new_trace():
    traces = []

    class Trainer:
        def __init__(self) -> None:
            self.history: list[Any] = []
            self.count = 0
            self.scale = 2.0

        def step(self, x: Any) -> Any:
            traces.append(1)
            return x * self.scale

        def epoch(self) -> None:
            for _ in range(4):
                self.history.append(strategy.run(self.step, (jnp.float32(1),)))
                self.count += 1

    strategy, trainer = tpu(), Trainer()
    trainer.epoch()
    assert len(traces) == 1
    trainer.scale = 3.0
    trainer.epoch()
    assert len(traces) == 2
    assert float(strategy.experimental_local_results(trainer.history[-1])[0]) == 3


def test_attributes_that_are_read_by_a_computed_name(v: Any):
    class Model:
        def __init__(self) -> None:
            self.scale_a, self.scale_b = 1.0, 2.0

    model = Model()
    loss = lambda: v * getattr(model, "scale_" + "ab"[0])  # noqa: E731
    assert losses_of(loss, v, [lambda: setattr(model, "scale_a", 5.0)]) == [1, 5]
    loss = lambda: v * sum(vars(model).values())  # noqa: E731
    assert losses_of(loss, v, [lambda: setattr(model, "more", 5.0)]) == [7, 12]


def test_a_function_that_changes_what_it_reads_is_traced_each_time(v: Any):
    counts = [0]

    def loss() -> Any:
        counts[0] += 1
        return v * counts[0]

    assert [float(rx.value_and_grad(loss, [v], compile=True)[0]) for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("given", "read", "change"),
    [
        (Settings, lambda d: d.scale, lambda d: setattr(d, "scale", 3.0)),
        (lambda x: types.SimpleNamespace(k=x), lambda d: d.k, lambda d: setattr(d, "k", 3.0)),
        (lambda x: {x}, max, lambda d: d.add(3.0)),
    ],
)
def test_objects_among_the_arguments_of_compiled_runs(given: Any, read: Any, change: Any):
    strategy, value = tpu(), given(1.0)

    def once() -> float:
        result = strategy.run(lambda x, held: x * read(held), (jnp.float32(2), value))
        return float(strategy.experimental_local_results(result)[0])

    before = once()
    change(value)
    assert (before, once()) == (2, 6)


# ------------------------------------------------------------------ arguments that are constants


def test_constants_that_are_equal_and_not_the_same():
    @rx.function
    def kinds(x: Any, chosen: frozenset[Any]) -> Any:
        (one,) = chosen
        return x * (2 if one is True else 3)

    x = jnp.float32(1)
    assert float(kinds(x, frozenset({1}))) == 3
    assert float(kinds(x, frozenset({True}))) == 2
    assert float(kinds(x, frozenset({1.0}))) == 3


def test_sets_and_keys_of_dicts_by_their_exact_values():
    @rx.function
    def kinds(chosen: Any) -> Any:
        return [type(each).__name__ for each in chosen]

    x: Any = jnp.ones(2)
    chosen: set[Any] = {1}
    assert [kinds({key: x}) for key in (1, True, 1.0)] == [["int"], ["bool"], ["float"]]
    assert [kinds({key: x, 0: x}) for key in (1, True)] == [["int", "int"], ["bool", "int"]]
    assert [kinds(frozenset({(key,)})) for key in (1, 2)] == [["tuple"], ["tuple"]]
    assert kinds(chosen) == ["int"]
    chosen.add("text")
    assert sorted(kinds(chosen)) == ["int", "str"]


# ------------------------------------------------------------------ dicts keep their order


@pytest.mark.parametrize("compile", [False, True])
def test_what_a_loss_returns_beside_itself_keeps_its_order(compile: bool, v: Any):
    def loss() -> Any:
        return v * 2, {"z": v * 3, "a": Settings({"y": v * 4, "x": None})}

    (_, aux), _ = rx.value_and_grad(loss, [v], has_aux=True, compile=compile)
    assert list(aux) == ["z", "a"] and list(aux["a"].scale) == ["y", "x"]
    assert float(aux["z"]) == 3 and float(aux["a"].scale["y"]) == 4


@pytest.mark.parametrize(
    "kind", [dict, collections.OrderedDict, lambda x: collections.defaultdict(int, x)]
)
def test_dicts_keep_their_order_in_and_out(kind: Any, strategy: Any, executor: Any):
    def step(batch: Any, **more: Any) -> Any:
        total = jnp.concatenate(list(batch.values()), -1) @ jnp.float32([100, 10, 1])
        return {
            "z": total,
            "order": list(batch),
            "a": kind({"y": total, "x": total * 2}),
            "m": list(more),
        }

    given = kind({"height": jnp.float32([1]), "age": jnp.float32([1]), "b": jnp.float32([0])})
    result = executor.run(strategy, step, (given,), {"size": jnp.float32(1), "area": 2})
    assert list(result) == ["z", "order", "a", "m"]
    assert list(result["a"]) == ["y", "x"]
    assert result["order"] == ["height", "age", "b"]
    assert result["m"] == ["size", "area"]
    assert float(strategy.experimental_local_results(result["z"])[0]) == 110
    assert type(result["a"]) is type(kind({}))


def test_uneven_batches_see_dicts_as_even_ones_do():
    strategy = mirrored(2)
    w = jnp.float32([[100.0], [1.0]])

    @rx.function
    def step(batch: Any) -> Any:
        def replica(batch: Any) -> Any:
            return jnp.sum(jnp.concatenate(list(batch.values()), -1) @ w)

        return strategy.reduce("SUM", strategy.run(replica, (batch,)), axis=None)

    rows = {"height": np.ones((3, 1), np.float32), "age": np.zeros((3, 1), np.float32)}
    dataset = rx.data.Dataset.from_tensor_slices(rows).batch(2)
    found = [float(step(x)) for x in strategy.experimental_distribute_dataset(dataset)]
    assert found == [200, 100]


def test_elements_mapped_on_devices_keep_their_order():
    strategy = mirrored(2)
    rows = {"b": np.arange(4), "a": np.arange(4) * 10}
    rows = {name: each.astype(np.float32) for name, each in rows.items()}

    def mapped(row: Any) -> Any:
        assert list(row) == ["b", "a"]
        return {"z": row["a"], **row}

    dataset = rx.data.Dataset.from_tensor_slices(rows).batch(2).map(mapped, on_device=True)
    for batch in strategy.experimental_distribute_dataset(dataset):
        assert list(batch) == ["z", "b", "a"]
